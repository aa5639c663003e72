"""The definitions that a role works with, each loaded from the hot store and compiled once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from headrace.hot.keys import INPUT_FIELD
from headrace.hot.store import HotStore
from headrace.model.definition import Definition, RetryConfig
from headrace.model.messages import Work
from headrace.model.plan import Plan
from headrace.settings import Settings

MOST_NODES_HELD = 1_000_000
MOST_ROOTS = 100  # that go to the workers in the call that opens an execution

_encode = msgspec.json.Encoder().encode

log = structlog.get_logger(__name__)


class LoadedPlan:
    """A plan with what the settings add to it, and the payloads of nodes that need no rendering."""

    __slots__ = (
        *("_defaults", "_named_children", "_payloads", "_reads", "_reads_beyond"),
        *("content_hash", "definition", "graph", "named_parents", "names", "plan"),
    )

    def __init__(self, plan: Plan, defaults: RetryConfig) -> None:
        self.plan = plan
        self.definition = plan.definition
        self.content_hash = plan.definition.content_hash
        self.graph = plan.graph
        self.names = tuple(node.id for node in plan.definition.nodes)
        self.named_parents = tuple(zip(self.names, plan.graph.parent_counts, strict=True))
        self._defaults = defaults
        self._payloads: dict[int, str] = {}
        self._reads: dict[int, tuple[str, ...]] = {}
        self._reads_beyond: dict[int, tuple[str, ...]] = {}
        self._named_children: dict[int, tuple[tuple[str, int], ...]] = {}

    def named_children(self, index: int) -> tuple[tuple[str, int], ...]:
        """The names of the node's children, with their numbers of parents."""
        known = self._named_children.get(index)
        if known is None:
            children = self.graph.children[index]
            known = self._named_children[index] = tuple(map(self.named_parents.__getitem__, children))
        return known

    def reads(self, index: int) -> tuple[str, ...]:
        """The fields of the execution's outputs that rendering the node needs."""
        known = self._reads.get(index)
        if known is None:
            needs = self.plan.needs(index)
            known = self._reads[index] = (*needs, INPUT_FIELD) if self.plan.needs_input(index) else needs
        return known

    def reads_beyond(self, index: int) -> tuple[str, ...]:
        """What rendering those of the node's children that are light needs besides the outputs of their parents."""
        known = self._reads_beyond.get(index)
        if known is None:
            found: dict[str, None] = {}
            for child in filter(self.plan.is_light, self.graph.children[index]):
                parents = self.definition.nodes[child].dependencies
                found |= dict.fromkeys(name for name in self.reads(child) if name not in parents)
            known = self._reads_beyond[index] = tuple(found)
        return known

    def policy(self, index: int) -> RetryConfig:
        own = self.definition.nodes[index].retry_config
        return self._defaults if own is None else own.over(self._defaults)

    def payload(self, index: int, context: Mapping[str, Any]) -> str:
        """From what `reads` names. Where that is nothing, it is always the same."""
        known = self._payloads.get(index)
        if known is not None:
            return known
        rendered = self.plan.render(index, context, context.get(INPUT_FIELD) or {})
        timeout_seconds = self.definition.nodes[index].timeout_seconds
        made = _encode(Work(rendered.config, timeout_seconds, rendered.secrets)).decode()
        if not context and not self.reads(index):
            self._payloads[index] = made
        return made

    def roots(self, input_params: dict[str, object]) -> list[tuple[int, str]]:
        """The nodes without parents and their payloads; nothing, if there are many or one has to be rendered."""
        roots = self.graph.roots
        if len(roots) > MOST_ROOTS or any(self.plan.is_templated(index) for index in roots):
            return []
        return [
            (index, self.constant_payload(index) or self.payload(index, {INPUT_FIELD: input_params})) for index in roots
        ]

    def constant_payload(self, index: int) -> str | None:
        """The payload of a node whose config reads nothing; None for the others."""
        return None if self.reads(index) else self.payload(index, {})


class Plans:
    def __init__(self, store: HotStore, settings: Settings, most_nodes: int = MOST_NODES_HELD) -> None:
        self._store = store
        self._defaults = settings.retry
        self._most_nodes = most_nodes
        self._held: OrderedDict[str, LoadedPlan] = OrderedDict()
        self._nodes = 0

    def held(self, content_hash: str) -> LoadedPlan | None:
        held = self._held.get(content_hash)
        if held is not None:
            self._held.move_to_end(content_hash)
        return held

    async def get(self, partition: int, content_hash: str, *, most_bytes: int | None = None) -> LoadedPlan | None:
        """None, if the store does not have it, or if it is larger than that."""
        held = self.held(content_hash)
        if held is not None:
            return held
        if most_bytes is not None and await self._store.definition_bytes(partition, content_hash) > most_bytes:
            return None
        text = await self._store.definition(partition, content_hash)
        if text is None:
            return None
        definition = _read(text, content_hash)
        if definition is None:
            log.error("a damaged definition is dropped; the record will bring it back", definition=content_hash)
            await self._store.drop_definition(partition, content_hash)
            return None
        return self.of(definition)

    def of(self, definition: Definition) -> LoadedPlan:
        held = self.held(definition.content_hash)
        if held is not None:
            return held
        loaded = self._held[definition.content_hash] = LoadedPlan(Plan(definition), self._defaults)
        self._nodes += len(loaded.names)
        while self._nodes > self._most_nodes and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._nodes -= len(dropped.names)
        return loaded


def _read(text: bytes, content_hash: str) -> Definition | None:
    """Its name is the hash of its content, so damage shows."""
    try:
        definition = Definition.from_json(text)
    except (ValueError, msgspec.MsgspecError):
        return None
    return definition if definition.content_hash == content_hash else None
