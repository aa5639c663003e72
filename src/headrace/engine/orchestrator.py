"""An orchestrator takes hints, applies them, renders what became ready and dispatches it.

    read_hints -> decide -> advance -> render -> dispatch (which acknowledges the hints)

What will most likely be ready, because its last parent is in this very batch, and whose outputs are at hand, is
rendered before and goes along with `advance`, which then dispatches it in the same step: one call and one round trip
less. That is only a guess, and the store decides: what it does not take goes the long way.

It keeps nothing that matters: hints stay pending in the results stream, as entries of several, until what follows from
them exists, so an orchestrator may die at any point, be doubled, or see a hint twice. What it left pending, another one
takes over (keeper.py). A node with many children is walked in slices; each slice's children are dispatched before the
next one is counted, and the entry goes with the last slice of its last hint.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import structlog

from headrace.errors import StoreUnavailable
from headrace.hot.store import SLICE, HotStore
from headrace.model.messages import Dispatch, Failure, Hint, Outcome, Verdict
from headrace.model.retry import Again, decide
from headrace.settings import Settings
from headrace.steps.ahead import Ahead, ready
from headrace.steps.plans import LoadedPlan, Plans
from headrace.steps.rendering import Ready, Renderer

CALL_BYTES = 4 << 20  # bound of one call's bodies
AWAY_SECONDS = 0.2
HINTS_TOGETHER = 8  # about what an entry holds under load: fewer entries are read than hints are wanted
MOST_PARKED = 10_000

_decode_outcome = msgspec.json.Decoder(Outcome).decode
_encode = msgspec.json.Encoder().encode

log = structlog.get_logger(__name__)

Hints = Sequence[tuple[str, Hint]]  # with the id of the entry; those of one entry follow each other
Answer = Sequence[tuple[int, int]]  # nodes, and the attempts that they had so far


@dataclass(slots=True)
class Entry:
    """What an orchestrator takes and acknowledges: some hints together. `left`: those that are not over yet."""

    id: str
    left: int = 0
    begun: bool = False


@dataclass(slots=True)
class Walk:
    """One hint on its way: which of its nodes have been passed to `advance`."""

    entry: Entry
    hint: Hint
    plan: LoadedPlan | None
    verdict: str
    body: str = ""
    delay_ms: int = 0
    flag: bool = False
    nodes: Sequence[int] = ()
    offset: int = 0
    skipped: frozenset[int] = frozenset()
    finished: bool = False
    are_ready: bool = False  # some of its nodes are known to be

    @property
    def over(self) -> bool:
        return self.finished or (self.plan is not None and self.offset >= len(self.nodes))

    def next_nodes(self, room: int) -> Sequence[int]:
        return self.nodes[self.offset : self.offset + room]

    def slice(self, nodes: Sequence[int], tasks: Sequence[Dispatch | None], *, quiet: bool) -> Verdict:
        hint = self.hint
        names = [self.plan.named_parents[i] for i in nodes] if self.plan else []
        return Verdict(
            self.entry.id, hint.execution_id, hint.epoch, hint.run, hint.node, hint.attempt, self.verdict, self.body,
            self.delay_ms, self.flag, self.offset, len(self.nodes), quiet, names, tasks,
        )  # fmt: skip


class Orchestrator:
    def __init__(self, store: HotStore, settings: Settings, name: str) -> None:
        self._store = store
        self._settings = settings
        self.name = name
        self._plans = Plans(store, settings)
        self._renderer = Renderer(store, settings)
        self._ahead = Ahead(self._renderer)
        self._parked: set[str] = set()
        self._random = random.Random()  # noqa: S311 - jitter, not a secret

    async def follow(self, partition: int, lane: int, stop: asyncio.Event) -> None:
        """Works on one partition's hints until told to stop; what it then still holds pending it finishes.

        Several lanes follow a partition side by side: while one renders, the store works for another."""
        consumer = f"{self.name}/{lane}"
        stopped = asyncio.ensure_future(stop.wait())
        try:
            unsure = True  # something may be pending under our name: a reply was lost, or a step failed
            while not stop.is_set():
                try:
                    if unsure:
                        await self._finish_pending(partition, consumer)
                        unsure = False
                    await self.process(partition, await self._read(partition, consumer, stopped))
                    await asyncio.sleep(0)  # what came for another lane meanwhile goes first
                except StoreUnavailable as error:
                    log.warning("store away", partition=partition, error=str(error))
                    unsure = True
                    await asyncio.wait((stopped,), timeout=AWAY_SECONDS)
            await self._finish_pending(partition, consumer)
            await self._store.leave(partition, [consumer])
        except StoreUnavailable as error:
            log.warning("stopped while the store is away", partition=partition, error=str(error))
        finally:
            stopped.cancel()

    async def _read(self, partition: int, consumer: str, stopped: asyncio.Future[Any]) -> Hints:
        """The next batch, or nothing once told to stop; what a read that is given up may have brought stays pending."""
        batch = max(1, self._settings.orchestrator_batch // HINTS_TOGETHER)
        reading = asyncio.ensure_future(self._store.read_hints(partition, consumer, batch))

        def give_up(_: object) -> None:
            reading.cancel()

        stopped.add_done_callback(give_up)
        try:
            return await reading
        except asyncio.CancelledError:
            if not stopped.done():
                raise
            return []
        finally:
            stopped.remove_done_callback(give_up)

    async def _finish_pending(self, partition: int, consumer: str) -> None:
        after = "0-0"
        while hints := await self._store.own_pending_hints(partition, consumer, after, SLICE // HINTS_TOGETHER):
            after = hints[-1][0]
            await self.process(partition, [each for each in hints if each[0] not in self._parked])

    async def process(self, partition: int, hints: Hints) -> None:
        """In batches of whole entries; if anything in one is refused, hint by hint, so that a bad one does not stop the
        others."""
        entries = [(entry_id, [hint for _, hint in some]) for entry_id, some in groupby(hints, itemgetter(0))]
        while entries:
            taken = _first(entries, self._settings.orchestrator_batch)
            batch, entries = entries[:taken], entries[taken:]
            try:
                await self._process(partition, batch)
            except StoreUnavailable:
                raise
            except Exception:
                for entry_id, some in batch:
                    await self._process_apart(partition, entry_id, some)

    async def _process_apart(self, partition: int, entry_id: str, hints: Sequence[Hint]) -> None:
        """Hint by hint, under no entry. If one is refused, the entry stays pending and is parked here; it is tried
        again when somebody takes it over."""
        refused = False
        for hint in hints:
            try:
                refused |= not await self._process(partition, [("", [hint])])
            except StoreUnavailable:
                raise
            except Exception:
                refused = True
                log.exception("hint refused", hint=entry_id, execution_id=hint.execution_id, node=hint.node)
        if not refused:
            await self._store.dispatch(partition, (), [entry_id])
            return
        if len(self._parked) >= MOST_PARKED:
            self._parked.clear()
        self._parked.add(entry_id)

    async def retry(self, partition: int, ready: Sequence[Ready]) -> None:
        """Dispatches nodes whose retry is due."""
        await self._dispatch(partition, ready, ())

    async def plan(self, partition: int, content_hash: str) -> LoadedPlan | None:
        return await self._plans.get(partition, content_hash)

    async def _process(self, partition: int, entries: Sequence[tuple[str, Sequence[Hint]]]) -> bool:
        """Whether nothing is left to do with any of them; what is left stays pending."""
        walks: list[Walk] = []
        for entry_id, hints in entries:
            entry = Entry(entry_id, len(hints), begun=not entry_id)
            for hint in hints:
                plan = self._plans.held(hint.definition) or await self.plan(partition, hint.definition)
                walks.append(self._walk(entry, hint, plan))
        every = [walk.entry for walk in walks]
        await self._renderer.fetch(
            ready(walk.hint, walk.plan, child)
            for walk in walks
            if walk.are_ready and walk.plan and len(walk.nodes) <= SLICE
            for child in walk.nodes
        )
        while walks:
            asked = await self._advance(partition, walks)
            found: dict[tuple[str, str], Ready] = {}
            for walk, answer in asked:
                for node in self._take_answer(walk, answer) if answer else ():
                    found.setdefault((node.execution_id, node.node), node)
            await self._dispatch(partition, list(found.values()), _over(asked))
            # Those that had no room in this call come first in the next: a large fan-out holds nobody up.
            walks = [*walks[len(asked) :], *(walk for walk, _ in asked if walk.plan is not None and not walk.over)]
        return not any(entry.left for entry in every)

    async def _advance(self, partition: int, walks: Sequence[Walk]) -> list[tuple[Walk, Answer]]:
        """One call, with as many slices as fit into it. It acknowledges an entry that is in it as a whole and for the
        first time, if nothing is left to do with it."""
        asked: list[tuple[Walk, Sequence[int], Sequence[Dispatch | None]]] = []
        room, size = SLICE, CALL_BYTES
        for walk in walks:
            if asked and (room <= 0 or size <= 0):
                break
            nodes = walk.next_nodes(max(room, 1))
            tasks: Sequence[Dispatch | None] = ()
            if nodes and walk.plan and walk.verdict == "C":
                tasks = self._ahead.tasks(walk.hint, walk.plan, nodes, are_ready=walk.are_ready)
            asked.append((walk, nodes, tasks))
            room, size = room - len(nodes), size - len(walk.body)
            for task in tasks:
                size -= len(task.payload) if task else 0
        for walk in walks[len(asked) :]:
            walk.entry.begun = True  # not all of it goes along
        replies = await self._store.advance(
            partition, [walk.slice(nodes, tasks, quiet=not walk.entry.begun) for walk, nodes, tasks in asked]
        )
        answers: list[tuple[Walk, Answer]] = []
        for (walk, nodes, _), reply in zip(asked, replies, strict=True):
            walk.offset += len(nodes)
            walk.finished = reply.finished
            walk.body = ""  # it took effect with the first slice
            if walk.verdict in ("T", "F"):
                walk.verdict = "K"
            answer = [(nodes[position], attempt) for position, attempt in reply.answer] if reply.answer else ()
            answers.append((walk, answer))
        return answers

    def _take_answer(self, walk: Walk, answer: Answer) -> list[Ready]:
        """Ready nodes; or, where nodes were skipped, their children join the walk."""
        plan = walk.plan
        if plan is None:
            return []
        if walk.verdict == "K":
            walk.skipped |= {i for i, _ in answer}
            below = (child for i, _ in answer for child in plan.graph.children[i])
            walk.nodes = [i for i in dict.fromkeys((*walk.nodes[walk.offset :], *below)) if i not in walk.skipped]
            walk.offset = 0
            return []
        return [ready(walk.hint, plan, i, attempt + 1) for i, attempt in answer]

    async def _dispatch(self, partition: int, ready: Sequence[Ready], hints: Sequence[str]) -> None:
        """In calls of bounded size; the hints go with the last one, when all that follows from them exists."""
        size = 0
        items: list[Dispatch] = []
        for item in await self._renderer.render(ready):
            if size > CALL_BYTES or len(items) >= SLICE:
                await self._store.dispatch(partition, items, ())
                size, items = 0, []
            items.append(item)
            size += len(item.payload)
        if items or hints:
            await self._store.dispatch(partition, items, hints)

    def _walk(self, entry: Entry, hint: Hint, plan: LoadedPlan | None) -> Walk:
        if plan is None:
            log.error("definition is missing", definition=hint.definition, execution_id=hint.execution_id)
            return Walk(entry, hint, None, "N")
        if hint.is_start:
            nodes = plan.graph.roots if hint.outcome == "roots" else range(len(plan.names))
            return Walk(entry, hint, plan, "S", nodes=nodes)
        index = plan.graph.index[hint.node]
        outcome = self._outcome(hint)
        if outcome.output is not None:
            children = plan.graph.children[index]
            body = "" if outcome.complete else outcome.output  # the store has it already
            return Walk(entry, hint, plan, "C", body=body, nodes=children, are_ready=outcome.complete)
        failure = outcome.failure or Failure("bad_output", "the worker reported neither an output nor a failure")
        body = _encode(failure).decode()
        decision = decide(
            failure, plan.policy(index), retries=hint.retries, lost=hint.lost, chance=self._random.random()
        )
        downstream = plan.graph.children[index] if plan.definition.on_failure == "continue" else ()
        if isinstance(decision, Again):
            delay_ms = round(decision.delay_seconds * 1000)
            return Walk(entry, hint, plan, "T", body, delay_ms, flag=decision.lost, nodes=downstream)
        return Walk(entry, hint, plan, "F", body=body, nodes=downstream)

    def _outcome(self, hint: Hint) -> Outcome:
        """What the worker reported. What cannot be read, be it the output alone, is a failure of the node."""
        try:
            outcome = _decode_outcome(hint.outcome)
            if outcome.output is not None:
                self._renderer.remember(hint.execution_id, hint.epoch, hint.node, outcome.output)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return Outcome(failure=Failure("bad_output", f"the worker's report cannot be read: {error}"))
        return outcome


def _first(entries: Sequence[tuple[str, Sequence[Hint]]], most: int) -> int:
    """How many of the entries make one batch: as many as have not more hints than that together, at least one."""
    taken = size = 0
    for _, hints in entries:
        size += len(hints)
        if taken and size > most:
            break
        taken += 1
    return taken


def _over(asked: Sequence[tuple[Walk, Answer]]) -> list[str]:
    """The entries whose last hint is over with this call, and which `advance` has not acknowledged itself."""
    done: dict[str, bool] = {}  # entry -> whether it is acknowledged already
    for walk, _ in asked:
        entry = walk.entry
        entry.left -= walk.over
        done[entry.id] = done.get(entry.id, not entry.begun) and walk.finished
    left = {walk.entry.id: walk.entry.left for walk, _ in asked}
    for walk, _ in asked:
        walk.entry.begun = True
    return [entry_id for entry_id, acknowledged in done.items() if entry_id and not left[entry_id] and not acknowledged]
