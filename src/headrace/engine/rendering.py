"""Turns ready nodes into tasks: finds the outputs that their templates read, renders, and packs.

A node whose config cannot be rendered becomes an item that `dispatch` turns into a final failure: it can neither stop
the others nor be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from headrace.engine.outputs import OutputCache
from headrace.engine.plans import LoadedPlan
from headrace.errors import TemplateError
from headrace.hot.keys import INPUT_FIELD
from headrace.hot.store import HotStore
from headrace.model.messages import Dispatch, Failure, Outcome
from headrace.settings import Settings

CACHE_BYTES = 64 << 20
MOST_SHARED = 32

_encode = msgspec.json.Encoder().encode

log = structlog.get_logger(__name__)


class Ready(msgspec.Struct, frozen=True):
    """A node that may be dispatched, under this attempt number."""

    execution_id: str
    epoch: str
    run: int
    attempt: int
    plan: LoadedPlan
    index: int

    @property
    def node(self) -> str:
        return self.plan.names[self.index]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.plan.reads(self.index)


class Renderer:
    def __init__(self, store: HotStore, settings: Settings) -> None:
        self._store = store
        self._most_bytes = settings.max_context_bytes
        self._cache = OutputCache(max(CACHE_BYTES, 2 * settings.max_context_bytes))

    def remember(self, execution_id: str, epoch: str, node: str, output: str) -> None:
        self._cache.put((execution_id, epoch, node), output)

    def render_ahead(self, node: Ready) -> Dispatch | None:
        """The item of a node whose outputs are all at hand and that can be rendered; else None."""
        context = self._held(node)
        if context is None:
            return None
        try:
            return _item(node, self._payload(node, context))
        except Exception:  # the long way says what is wrong
            return None

    async def render(self, ready: Sequence[Ready]) -> list[Dispatch]:
        """One item per node, in the same order."""
        await self._fetch_shared(ready)
        return [await self._item(node) for node in ready]

    async def _item(self, node: Ready) -> Dispatch:
        context = await self._context(node)
        failed = False
        try:
            payload = self._payload(node, context)
        except Exception as error:  # whatever it is, it is a failure of this node, and must not stop the others
            if not isinstance(error, TemplateError):
                log.exception("rendering failed", execution_id=node.execution_id, node=node.node)
            failure = Failure("template", str(error), type(error).__name__)
            payload, failed = _encode(Outcome(failure=failure)).decode(), True
        return _item(node, payload, failed=failed)

    def _payload(self, node: Ready, context: Mapping[str, Any] | None) -> str:
        constant = node.plan.constant_payload(node.index)
        if constant is not None:
            return constant
        if context is None:
            raise TemplateError(f"the outputs that it reads are more than MAX_CONTEXT_BYTES ({self._most_bytes})")
        input_params = context.get(INPUT_FIELD) or {}
        return node.plan.payload(node.index, node.plan.plan.render(node.index, context, input_params))

    async def _context(self, node: Ready) -> Mapping[str, Any] | None:
        """What it reads; None when that is more than it may."""
        held = self._held(node)
        if held is not None:
            return held
        texts = await self._store.outputs(node.execution_id, node.reads, most_bytes=self._most_bytes)
        if texts is None:
            return None
        return {name: self._cache.put((node.execution_id, node.epoch, name), texts[name]) for name in texts}

    def _held(self, node: Ready) -> Mapping[str, Any] | None:
        """What it reads, if all of that is in the cache."""
        context, size = {}, 0
        for name in node.reads:
            found = self._cache.get((node.execution_id, node.epoch, name))
            if found is None:
                return None
            context[name] = found[0]
            size += found[1]
        return context if size <= self._most_bytes else None

    async def _fetch_shared(self, ready: Sequence[Ready]) -> None:
        """Brings what nodes of one batch need into the cache in one round trip, as far as it is little."""
        missing: dict[tuple[str, str], list[str]] = {}
        for node in ready:
            reads = node.reads
            if len(reads) > MOST_SHARED:
                continue  # a large fan-in reads for itself, in slices
            for name in reads:
                if self._cache.get((node.execution_id, node.epoch, name)) is None:
                    names = missing.setdefault((node.execution_id, node.epoch), [])
                    if name not in names:
                        names.append(name)
        if not missing:
            return
        wanted = [(execution_id, names) for (execution_id, _), names in missing.items()]
        found = await self._store.outputs_of_many(wanted, most_bytes=CACHE_BYTES // 2)
        for (execution_id, epoch), texts in zip(missing, found, strict=True):
            for name, text in texts.items():
                self._cache.put((execution_id, epoch, name), text)


def _item(node: Ready, payload: str, *, failed: bool = False) -> Dispatch:
    plan, index = node.plan, node.index
    return Dispatch(
        node.execution_id, node.epoch, node.run, plan.names[index], node.attempt, plan.graph.parent_counts[index],
        plan.definition.nodes[index].handler, payload, failed,
    )  # fmt: skip
