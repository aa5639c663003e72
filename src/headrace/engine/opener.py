"""Brings executions that SQL says are running into the hot store: fresh starts, next runs and rebuilds alike.

    reserve (hot) -> take the epoch (SQL, compare-and-set) -> open (hot)

Any number of openers is safe: only one of them gets the epoch, and what it reserved expires if it dies before it opens.
What does not succeed now is found again by the reconciler. A fresh start is reserved before SQL knows of it: then the
transaction that accepts it also takes the epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from headrace.engine.opening import SLICE_BYTES, Kept, Run, continued, fresh
from headrace.hot.store import SLICE, HotStore
from headrace.model import payload
from headrace.model.definition import Definition
from headrace.model.messages import Execution, OpenSlice, Record, Reservation
from headrace.model.state import NodeState
from headrace.record.openings import NodeHistory, Openings, Wanted
from headrace.settings import Settings
from headrace.steps.plans import MOST_NODES_HELD, LoadedPlan, Plans

TOGETHER = 200
NODES_TOGETHER = 20_000
MOST_DEFINITIONS = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """An execution to open; `behind` is what the hot store has of it, if that is older than the record, or reserved by
    somebody who does not open it. Under its `token`, if it has one, it may be reserved already."""

    wanted: Wanted
    behind: Execution | None = None
    token: str = ""


def new_token() -> str:
    return secrets.token_urlsafe(9)


class Opener:
    def __init__(self, store: HotStore, openings: Openings, settings: Settings) -> None:
        self._store = store
        self._openings = openings
        self._settings = settings
        self._plans = Plans(store, settings)
        self._definitions: dict[str, Definition] = {}
        self._nodes = 0  # of all these definitions

    async def open(self, ids: Mapping[str, str]) -> int:
        """Those of these that should be running and are not, each under its token, if it has one. How many were
        opened."""
        wanted = await self._openings.wanted(list(ids))
        return await self.open_wanted([Opening(one, token=ids[one.execution_id]) for one in wanted])

    async def reserve(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Places for new executions, which SQL does not know yet. Gives those that were reserved."""
        reserved: dict[str, str] = {}
        ttl = self._settings.hot_ttl_seconds
        for partition, there in self._by_partition(tokens).items():
            places = [Reservation(execution_id, tokens[execution_id], again=False) for execution_id in there]
            answers = await self._store.reserve(partition, places, definition_ttl_seconds=ttl)
            reserved |= {one: tokens[one] for one, answer in zip(there, answers, strict=True) if answer == "reserved"}
        return reserved

    async def open_reserved(self, fresh: Mapping[str, tuple[Wanted, str]], inputs: Mapping[str, str]) -> None:
        """Executions that SQL has accepted under the tokens of their places."""
        plans = await self._loaded({wanted.definition_id for wanted, _ in fresh.values()})
        for partition, there in self._by_partition(fresh).items():
            await self._open_ours(partition, {one: fresh[one] for one in there}, plans, inputs)

    async def open_wanted(self, openings: Sequence[Opening]) -> int:
        opened = 0
        by_id = {one.wanted.execution_id: one for one in openings}
        for partition, there in self._by_partition(by_id).items():
            for start in range(0, len(there), TOGETHER):
                some = [by_id[one] for one in there[start : start + TOGETHER]]
                plans = await self._loaded({one.wanted.definition_id for one in some})
                for batch in _batches(some, plans):
                    opened += await self._open(partition, batch, plans)
        return opened

    async def _open(
        self, partition: int, openings: Sequence[Opening], plans: Mapping[str, LoadedPlan], *, again: bool = False
    ) -> int:
        tokens = [one.token or new_token() for one in openings]
        reserved = await self._reserve(partition, list(zip(openings, tokens, strict=True)), again=again)
        inputs = await self._openings.take([(one.wanted, token) for one, token in reserved])
        ours = {one.wanted.execution_id: (one.wanted, token) for one, token in reserved}
        ours = {execution_id: ours[execution_id] for execution_id in inputs}
        await self._open_ours(partition, ours, plans, inputs, again=again)
        return len(ours)

    async def _open_ours(
        self,
        partition: int,
        ours: Mapping[str, tuple[Wanted, str]],
        plans: Mapping[str, LoadedPlan],
        inputs: Mapping[str, str],
        *,
        again: bool = False,
    ) -> None:
        """Those that SQL has under the tokens of their reservations."""
        gone = await self._fill(partition, ours, plans, inputs)
        if gone and again:
            log.warning("openings were lost: the reconciler will see to them", count=len(gone))
        elif gone:  # the store was wiped meanwhile. It goes on under a new epoch, unless another opener has it by now
            lost = [replace(wanted, epoch=token, last_event="") for wanted, token in map(ours.__getitem__, gone)]
            await self._open(partition, [Opening(one) for one in lost], plans, again=True)

    async def _fill(
        self,
        partition: int,
        ours: Mapping[str, tuple[Wanted, str]],
        plans: Mapping[str, LoadedPlan],
        inputs: Mapping[str, str],
    ) -> set[str]:
        """Opens what is reserved; gives the ids of those whose reservation is gone."""
        for definition_id in {wanted.definition_id for wanted, _ in ours.values()}:
            await self._put_definition(partition, plans[definition_id].definition)
        calls = _Calls(self._store, partition)
        again: dict[str, tuple[Wanted, str]] = {}
        for wanted, token in ours.values():
            if wanted.run > 1 or wanted.epoch or wanted.is_cancelled:
                again[wanted.execution_id] = (wanted, token)
            else:
                run = _fresh_run(wanted, plans[wanted.definition_id], inputs[wanted.execution_id])
                await calls.add(fresh(run, token))
        await self._open_again(again, plans, inputs, calls)
        await calls.send()
        return calls.gone

    async def _open_again(
        self,
        again: Mapping[str, tuple[Wanted, str]],
        plans: Mapping[str, LoadedPlan],
        inputs: Mapping[str, str],
        calls: _Calls,
    ) -> None:
        """From what SQL knows: completions stand, failed attempts count, in `continue` mode failures stand too."""
        if not again:
            return
        now_ms = await self._store.now_ms()
        histories = self._openings.histories({name: wanted.run for name, (wanted, _) in again.items()})
        async with aclosing(histories):
            async for execution_id, nodes in histories:
                wanted, token = again[execution_id]
                plan = plans[wanted.definition_id]
                run = Run(
                    execution_id,
                    plan.definition,
                    inputs[execution_id],
                    number=wanted.run,
                    created_ms=wanted.created_ms,
                    elapsed_ms=max(0, now_ms - wanted.started_ms) if wanted.started_ms else 0,
                    is_cancelled=wanted.is_cancelled,
                    traceparent=wanted.traceparent,
                )
                kept = _kept(nodes, keeps_failures=plan.definition.on_failure == "continue")
                for piece in continued(run, token, plan.graph, kept):
                    await calls.add(piece)

    async def _reserve(
        self, partition: int, openings: Sequence[tuple[Opening, str]], *, again: bool = False
    ) -> list[tuple[Opening, str]]:
        """Those that were. `again`: also in the place of another reservation."""
        reservations = [
            Reservation(
                one.wanted.execution_id,
                token,
                one.behind.epoch if one.behind else one.wanted.epoch,
                one.behind.last if one.behind else one.wanted.last_event,
                one.wanted.run,
                again=again or one.behind is not None,
                behind=one.behind is not None,
            )
            for one, token in openings
        ]
        ttl = self._settings.hot_ttl_seconds
        answers = await self._store.reserve(partition, reservations, definition_ttl_seconds=ttl)
        return [pair for pair, answer in zip(openings, answers, strict=True) if answer == "reserved"]

    def _by_partition(self, ids: Iterable[str]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for execution_id in ids:
            found.setdefault(self._store.partition_of(execution_id), []).append(execution_id)
        return found

    async def _loaded(self, wanted: Set[str]) -> dict[str, LoadedPlan]:
        missing = [one for one in wanted if one not in self._definitions]
        if missing:
            if len(self._definitions) > MOST_DEFINITIONS or self._nodes > MOST_NODES_HELD:
                self._definitions.clear()
                self._nodes, missing = 0, list(wanted)
            for name, text in (await self._openings.definitions(missing)).items():
                self._definitions[name] = Definition.from_json(text)
                self._nodes += len(self._definitions[name].nodes)
        return {one: self._plans.of(self._definitions[one]) for one in wanted}

    async def restore_definitions(self, used: Set[tuple[int, str]]) -> None:
        """Of executions that are open: what they are to do must be in the store as long as they are."""
        plans = await self._loaded({definition_id for _, definition_id in used})
        for partition, definition_id in used:
            definition = plans[definition_id].definition
            if not await self._store.has_definition(partition, definition.content_hash):
                log.warning("a definition was missing", partition=partition, definition=definition.content_hash)
                await self._put_definition(partition, definition)

    async def _put_definition(self, partition: int, definition: Definition) -> None:
        ttl = self._settings.hot_ttl_seconds
        await self._store.put_definition(partition, definition.content_hash, definition.to_json(), ttl)


class _Calls:
    """Small executions are opened together; one call holds a bounded amount. Of a large one, each slice goes at once,
    and only the last, which opens it, may wait for others."""

    def __init__(self, store: HotStore, partition: int) -> None:
        self.gone: set[str] = set()
        self._store = store
        self._partition = partition
        self._waiting: list[OpenSlice] = []
        self._rows = self._size = 0

    async def add(self, piece: OpenSlice) -> None:
        if piece.opening is None:
            await self._open([piece])
            return
        self._waiting.append(piece)
        self._rows += len(piece.rows) + len(piece.counts)
        self._size += sum(len(text) for _, text in piece.outputs) + sum(len(root.payload) for root in piece.roots)
        if self._rows >= SLICE or self._size > SLICE_BYTES:
            await self.send()

    async def send(self) -> None:
        if self._waiting:
            await self._open(self._waiting)
        self._waiting, self._rows, self._size = [], 0, 0

    async def _open(self, pieces: Sequence[OpenSlice]) -> None:
        answers = await self._store.open(self._partition, pieces)
        lost = (one for one, answer in zip(pieces, answers, strict=True) if answer in ("gone", "no definition"))
        self.gone.update(one.execution_id for one in lost)


def _batches(openings: Iterable[Opening], plans: Mapping[str, LoadedPlan]) -> Iterator[list[Opening]]:
    """Few enough that all of them are open before their reservations expire."""
    batch: list[Opening] = []
    nodes = 0
    for one in openings:
        if batch and nodes >= NODES_TOGETHER:
            yield batch
            batch, nodes = [], 0
        batch.append(one)
        nodes += len(plans[one.wanted.definition_id].names)
    yield batch


def _fresh_run(wanted: Wanted, plan: LoadedPlan, input_text: str) -> Run:
    nodes = plan.definition.nodes
    return Run(
        wanted.execution_id,
        plan.definition,
        input_text,
        number=wanted.run,
        created_ms=wanted.created_ms,
        traceparent=wanted.traceparent,
        roots=[(nodes[index], text) for index, text in plan.roots(payload.decode(input_text))],
    )


def _kept(nodes: Mapping[str, NodeHistory], *, keeps_failures: bool) -> dict[str, Kept]:
    return {
        name: Kept(_record(node, keeps_failures=keeps_failures), node.output)
        for name, node in nodes.items()
        if node.attempt or node.state == NodeState.SKIPPED.name
    }


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
