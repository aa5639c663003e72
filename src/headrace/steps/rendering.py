"""Turns ready nodes into tasks: finds the outputs that their templates read, renders, and packs.

A node whose config cannot be rendered becomes an item that `dispatch` turns into a final failure: it can neither stop
the others nor be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from headrace.errors import TemplateError
from headrace.hot.store import HotStore
from headrace.model.messages import Dispatch, Failure, Outcome
from headrace.settings import Settings
from headrace.steps.outputs import OutputCache
from headrace.steps.plans import LoadedPlan

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
    """`light_bytes`: only what is light (plan.py) is rendered ahead, and what reads no more than that."""

    def __init__(
        self, store: HotStore, settings: Settings, *, cache_bytes: int = CACHE_BYTES, light_bytes: int | None = None
    ) -> None:
        self._store = store
        self._is_light = light_bytes is not None
        self._most_bytes = settings.max_context_bytes if light_bytes is None else light_bytes
        self._fetch_bytes = cache_bytes // 2
        self._cache = OutputCache(max(cache_bytes, 2 * self._most_bytes))

    def remember(self, execution_id: str, epoch: str, node: str, output: str) -> None:
        self._cache.put((execution_id, epoch, node), output)

    def render_ahead(self, node: Ready) -> Dispatch | None:
        """The item of a node whose outputs are all at hand and that can be rendered; else None."""
        plan, index = node.plan, node.index
        if self._is_light and not plan.plan.is_light(index):
            return None
        context = self._held(node)
        if context is None:
            return None
        try:
            return _item(node, plan.payload(index, context))
        except Exception:  # the long way says what is wrong
            return None

    async def render(self, ready: Sequence[Ready]) -> list[Dispatch]:
        """One item per node, in the same order."""
        await self.fetch(ready)
        return [await self._item(node) for node in ready]

    async def fetch(self, ready: Iterable[Ready]) -> None:
        """Brings what these nodes read to hand, as far as it is little; a large fan-in reads for itself, in slices."""
        nodes = (node for node in ready if len(node.reads) <= MOST_SHARED)
        await self.fetch_outputs((node.execution_id, node.epoch, node.reads) for node in nodes)

    async def fetch_outputs(self, wanted: Iterable[tuple[str, str, Iterable[str]]]) -> None:
        """Of executions and their epochs the outputs of these nodes, in one round trip, as far as it is little."""
        missing: dict[tuple[str, str], dict[str, None]] = {}
        for execution_id, epoch, names in wanted:
            for name in names:
                if not self.has(execution_id, epoch, name):
                    missing.setdefault((execution_id, epoch), {})[name] = None
        if not missing:
            return
        found = await self._store.outputs_of_many(
            [(execution_id, list(names)) for (execution_id, _), names in missing.items()], most_bytes=self._fetch_bytes
        )
        for (execution_id, epoch), texts in zip(missing, found, strict=True):
            for name, text in texts.items():
                if len(text) <= self._most_bytes:
                    self._cache.put((execution_id, epoch, name), text)

    def has(self, execution_id: str, epoch: str, name: str) -> bool:
        return self._cache.get((execution_id, epoch, name)) is not None

    async def _item(self, node: Ready) -> Dispatch:
        context = await self._context(node)
        failed = False
        try:
            if context is None:
                raise TemplateError(f"the outputs that it reads are more than MAX_CONTEXT_BYTES ({self._most_bytes})")
            payload = node.plan.payload(node.index, context)
        except Exception as error:  # whatever it is, it is a failure of this node, and must not stop the others
            if not isinstance(error, TemplateError):
                log.exception("rendering failed", execution_id=node.execution_id, node=node.node)
            failure = Failure("template", str(error), type(error).__name__)
            payload, failed = _encode(Outcome(failure=failure)).decode(), True
        return _item(node, payload, failed=failed)

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
        execution_id, epoch, get = node.execution_id, node.epoch, self._cache.get
        for name in node.plan.reads(node.index):
            found = get((execution_id, epoch, name))
            if found is None:
                return None
            context[name] = found[0]
            size += found[1]
        return context if size <= self._most_bytes else None


def _item(node: Ready, payload: str, *, failed: bool = False) -> Dispatch:
    plan, index = node.plan, node.index
    return Dispatch(
        node.execution_id, node.epoch, node.run, plan.names[index], node.attempt, plan.graph.parent_counts[index],
        plan.definition.nodes[index].handler, payload, failed, plan.content_hash,
    )  # fmt: skip
