"""Brings executions that SQL says are running into the hot store: fresh starts, next runs and rebuilds alike.

    reserve (hot) -> take the epoch (SQL, compare-and-set) -> open (hot)

Any number of openers is safe: only one of them gets the epoch, and what it reserved expires if it dies before it opens.
What does not succeed now is found again by the reconciler.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from headrace.engine.opening import Kept, Run, continued, fresh
from headrace.engine.plans import LoadedPlan, Plans
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.definition import Definition
from headrace.model.messages import Execution, OpenSlice, Record, Reservation
from headrace.model.state import NodeState
from headrace.record.openings import NodeHistory, Openings, Wanted
from headrace.settings import Settings

TOGETHER = 200

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """An execution to open; `behind` is what the hot store has of it, if that is older than the record."""

    wanted: Wanted
    behind: Execution | None = None


class Opener:
    def __init__(self, store: HotStore, openings: Openings, settings: Settings) -> None:
        self._store = store
        self._openings = openings
        self._settings = settings
        self._plans = Plans(store, settings)
        self._definitions: dict[str, Definition] = {}

    async def open(self, ids: Sequence[str]) -> int:
        """Those of these that should be running and are not. How many were opened."""
        return await self.open_wanted([Opening(one) for one in await self._openings.wanted(ids)])

    async def open_wanted(self, openings: Sequence[Opening]) -> int:
        opened = 0
        by_partition: dict[int, list[Opening]] = {}
        for one in openings:
            by_partition.setdefault(self._store.partition_of(one.wanted.execution_id), []).append(one)
        for partition, there in by_partition.items():
            for start in range(0, len(there), TOGETHER):
                opened += await self._open(partition, there[start : start + TOGETHER])
        return opened

    async def _open(self, partition: int, openings: Sequence[Opening]) -> int:
        plans = await self._loaded(one.wanted.definition_id for one in openings)
        tokens = [secrets.token_urlsafe(9) for _ in openings]
        reserved = await self._reserve(partition, openings, tokens)
        taken = await self._openings.take([(one.wanted, token) for one, token in reserved])
        ours = [(one.wanted, token) for one, token in reserved if one.wanted.execution_id in taken]
        if not ours:
            return 0
        for plan in {id(plans[one.definition_id]): plans[one.definition_id] for one, _ in ours}.values():
            await self._put_definition(partition, plan.definition)
        again = {one.execution_id: one.run for one, _ in ours if one.run > 1 or one.epoch}
        histories = await self._openings.histories(again) if again else {}
        slices: list[OpenSlice] = []
        for wanted, token in ours:
            plan = plans[wanted.definition_id]
            if wanted.execution_id in again or wanted.is_cancelled:
                nodes = histories[wanted.execution_id].nodes if wanted.execution_id in histories else {}
                await self._open_again(partition, wanted, token, plan, nodes)
            else:
                slices.append(fresh(self._fresh_run(wanted, plan), token))
        if slices:
            self._check(await self._store.open(partition, slices))
        return len(ours)

    async def _reserve(
        self, partition: int, openings: Sequence[Opening], tokens: Sequence[str]
    ) -> list[tuple[Opening, str]]:
        reservations = [
            Reservation(
                one.wanted.execution_id,
                token,
                one.behind.epoch if one.behind else one.wanted.epoch,
                one.behind.last if one.behind else one.wanted.last_event,
                one.wanted.run,
                again=False,
                behind=one.behind is not None,
            )
            for one, token in zip(openings, tokens, strict=True)
        ]
        ttl = self._settings.hot_ttl_seconds
        answers = await self._store.reserve(partition, reservations, definition_ttl_seconds=ttl)
        return [
            pair
            for pair, answer in zip(zip(openings, tokens, strict=True), answers, strict=True)
            if answer == "reserved"
        ]

    def _fresh_run(self, wanted: Wanted, plan: LoadedPlan) -> Run:
        nodes = plan.definition.nodes
        roots = plan.roots(payload.decode(wanted.input_text))
        return Run(
            wanted.execution_id,
            plan.definition,
            wanted.input_text,
            number=wanted.run,
            created_ms=wanted.created_ms,
            roots=[(nodes[index], text) for index, text in roots],
        )

    async def _open_again(
        self, partition: int, wanted: Wanted, token: str, plan: LoadedPlan, nodes: Mapping[str, NodeHistory]
    ) -> None:
        """From what SQL knows: completions stand, failed attempts count, in `continue` mode failures stand too."""
        run = Run(
            wanted.execution_id,
            plan.definition,
            wanted.input_text,
            number=wanted.run,
            created_ms=wanted.created_ms,
            is_cancelled=wanted.is_cancelled,
        )
        keeps_failures = plan.definition.on_failure == "continue"
        kept = {
            name: Kept(_record(node, keeps_failures=keeps_failures), node.output)
            for name, node in nodes.items()
            if node.attempt or node.state == NodeState.SKIPPED.name
        }
        for piece in continued(run, token, plan.graph, kept):
            self._check(await self._store.open(partition, [piece]))

    async def _loaded(self, ids: Iterable[str]) -> dict[str, LoadedPlan]:
        wanted = set(ids)
        missing = [one for one in wanted if one not in self._definitions]
        if missing:
            if len(self._definitions) > 1000:
                self._definitions.clear()
                missing = list(wanted)
            for name, text in (await self._openings.definitions(missing)).items():
                self._definitions[name] = Definition.from_json(text)
        return {one: self._plans.of(self._definitions[one]) for one in wanted}

    async def _put_definition(self, partition: int, definition: Definition) -> None:
        ttl = self._settings.hot_ttl_seconds
        await self._store.put_definition(partition, definition.content_hash, definition.to_json(), ttl)

    def _check(self, answers: Sequence[str]) -> None:
        lost = [answer for answer in answers if answer not in ("opened", "already", "filled")]
        if lost:
            log.warning("openings were lost: the reconciler will see to them", count=len(lost), answer=lost[0])


def _record(node: NodeHistory, *, keeps_failures: bool) -> Record:
    state = NodeState[node.state]
    if state in (NodeState.FAILED, NodeState.SKIPPED) and not keeps_failures:
        state = NodeState.PENDING
    ended = state != NodeState.PENDING
    return Record(
        state.value,
        node.attempt,
        node.retries,
        node.lost,
        0,
        node.queued_ms if ended else 0,
        node.started_ms if ended else 0,
        node.finished_ms if ended else 0,
        (node.owner if state == NodeState.SKIPPED else node.worker) if ended else "",
        node.error if state == NodeState.FAILED else "",
    )
