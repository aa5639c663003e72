"""Histories: orchestrators, workers and reconcilers that repeat, delay and reorder their calls, forge tokens, stop in
the middle and lose the store. Each step is a few small numbers that choose among what is possible, so that Hypothesis
can shrink a history to the steps that matter. Every call goes to the server and to the reference; answers and states
must be the same, and the invariants hold.

What a caller must keep to, here as in the engine: a hint is acknowledged by `dispatch` only together with everything
that it made ready; an execution is opened only after the compare-and-set of its epoch in the ledger (which is SQL); a
token is for one reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from headrace.hot import codec, keys
from headrace.hot.store import HotStore
from headrace.model.messages import (
    Advanced,
    Dispatch,
    Due,
    Event,
    Hint,
    Opening,
    OpenSlice,
    Record,
    Report,
    Reservation,
    Task,
    Token,
    Verdict,
)
from tests.conformance.invariants import Invariants
from tests.conformance.reference import LONG_AGO, WORKER_LOST, Definition, Partition, Timer
from tests.conformance.snapshot import HANDLERS, Mirror, plain_outcome

LEASE_MS = 60_000
BACKOFF_MS = 90_000
TIMEOUT_MS = 600_000
DEFINITION_TTL_SECONDS = 3600
BUDGET = 2  # retries, and lost leases
ROUNDS_TO_END = 120


@dataclass(frozen=True)
class Shape:
    """A definition: for each node its parents, which come before it, and its handler."""

    parents: dict[str, tuple[str, ...]]
    handlers: dict[str, str]
    mode: str = "fail_fast"
    timeout_ms: int = 0
    content_hash: str = "h"

    @cached_property
    def children(self) -> dict[str, list[str]]:
        return {name: [child for child, above in self.parents.items() if name in above] for name in self.parents}

    def item(self, of: Any, name: str, attempt: int) -> Dispatch:
        parents, handler = len(self.parents[name]), self.handlers[name]
        return Dispatch(of.execution_id, of.epoch, of.run, name, attempt, parents, handler, f"{name}@{attempt}")

    def downstream(self, names: Sequence[str]) -> set[str]:
        found: set[str] = set()
        todo = list(names)
        while todo:
            for child in self.children[todo.pop()]:
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return found


@dataclass
class Ledger:
    """What SQL knows of an execution: it applies the events of its epoch, in their order."""

    status: str = "R"
    run: int = 1
    epoch: str = ""
    last: str = ""
    heard: list[str] = field(default_factory=lambda: ["0-1"])  # every event id, for forged ones
    outputs: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)

    def apply(self, entry_id: str, event: Event) -> None:
        self.heard.append(entry_id)
        if event.epoch != self.epoch:
            return
        assert event.previous == self.last
        self.last = entry_id
        for change in event.changes:
            name = change.node
            self.attempts[name] = max(change.attempt, self.attempts.get(name, 0))
            if change.state == "C":
                self.outputs[name] = change.detail
            elif change.state == "T":
                self.retries[name] = self.retries.get(name, 0) + 1
            elif change.state == "F":
                self.failed[name] = change.detail
        self.status = event.status or self.status

    def next_run(self) -> None:
        self.status, self.run, self.failed, self.retries = "R", self.run + 1, {}, {}


class Visit:
    """An orchestrator's way through some or all hints of an entry, to the call of `dispatch` that acknowledges it."""

    def __init__(self, partition: int, entry_id: str, *, whole: bool) -> None:
        self.partition, self.entry_id, self.whole = partition, entry_id, whole
        self.walks: list[Walk] = []
        self.begun = self.rendered = False

    @property
    def quiet(self) -> bool:
        return self.whole and not self.begun

    @property
    def over(self) -> bool:
        return all(walk.over for walk in self.walks)

    @property
    def acknowledged(self) -> bool:
        return self.whole and all(walk.finished for walk in self.walks)

    @property
    def left(self) -> list[Walk]:
        return [walk for walk in self.walks if not walk.over]


class Walk:
    """An orchestrator's way through one hint, slice by slice."""

    def __init__(self, visit: Visit, shape: Shape, hint: Hint, size: int, ahead: int = 0) -> None:
        """`ahead`: of which nodes the tasks go along with `advance`, as bits of their place in the definition."""
        self.visit, self.shape, self.hint, self.size, self.ahead = visit, shape, hint, size, ahead
        visit.walks.append(self)
        self.ready: list[tuple[str, int]] = []
        self.over, self.finished = False, False
        self._offset = 0
        self._seen: set[str] = set()
        self._frontier: list[str] = []
        self.letter, self.body, self.flag, self.names = self._decide()
        self._next()

    def _decide(self) -> tuple[str, str, bool, list[str]]:
        hint, children = self.hint, self.shape.children
        if hint.is_start:
            roots = hint.outcome == "roots"
            return "S", "", False, [name for name, above in self.shape.parents.items() if not (roots and above)]
        if hint.outcome.startswith("ok"):
            return "C", hint.outcome, False, children[hint.node]
        lost = hint.outcome == WORKER_LOST
        below = children[hint.node] if self.shape.mode == "continue" else []
        if (lost and hint.lost < BUDGET) or (hint.outcome == "retry" and hint.retries < BUDGET):
            return "T", hint.outcome, lost, below
        return "F", hint.outcome, False, below

    def _next(self) -> None:
        names = tuple(self.names[self._offset : self._offset + self.size])
        hint, pairs = self.hint, tuple((name, len(self.shape.parents[name])) for name in names)
        self.verdict = Verdict(
            self.visit.entry_id, hint.execution_id, hint.epoch, hint.run, hint.node, hint.attempt, self.letter,
            self.body, BACKOFF_MS, self.flag, self._offset, len(self.names), self.visit.quiet, pairs,
            self._tasks(names),
        )  # fmt: skip

    def _tasks(self, names: Sequence[str]) -> list[Dispatch | None]:
        if not self.ahead or self.letter not in "SC":
            return []
        places = list(self.shape.parents)
        return [
            self.shape.item(self.hint, name, 1) if self.ahead >> places.index(name) % 4 & 1 else None for name in names
        ]

    def heard(self, verdict: Verdict, reply: Advanced) -> None:
        if verdict is not self.verdict or self.over:
            return  # a late answer to a slice that is behind us
        self.visit.begun = True
        found = [(verdict.names[position][0], attempt) for position, attempt in reply.answer]
        if self.letter in "SC":
            self.ready += found
        else:
            self._frontier += [name for name, _ in found]
        self._offset += self.size
        if self.letter in "TF":
            self.letter = "K"
        if reply.finished or (self._offset >= len(self.names) and not self._go_on_skipping()):
            self.over, self.finished = True, reply.finished
            return
        self._next()

    def _go_on_skipping(self) -> bool:
        fresh = [name for name in dict.fromkeys(self._frontier) if name not in self._seen]
        self._seen.update(fresh)
        self.names = [child for name in fresh for child in self.shape.children[name]]  # some of them twice
        self._frontier, self._offset = [], 0
        return bool(self.names)


class Call(NamedTuple):
    verb: str
    partition: int
    args: tuple[Any, ...]
    named: dict[str, Any] = {}  # noqa: RUF012 (never written to)
    walks: tuple[Walk, ...] = ()


class Step(NamedTuple):
    what: str
    pick: int
    how: int
    fate: int


class History:
    def __init__(self, store: HotStore, shapes: dict[str, Shape]) -> None:
        self.store, self.shapes = store, shapes
        self.ids = list(shapes)
        self.home = {execution_id: store.partition_of(execution_id) for execution_id in self.ids}
        self.partitions = sorted(set(self.home.values()))
        self.ledgers = {execution_id: Ledger() for execution_id in self.ids}
        self.invariants = Invariants({execution_id: shape.parents for execution_id, shape in shapes.items()})
        self.models: dict[int, Partition] = {}
        self.mirrors: dict[int, Mirror] = {}
        self.hints: list[tuple[int, str, Hint]] = []
        self.visits: list[Visit] = []
        self.rendered: list[Call] = []
        self.openings: list[list[Call]] = []
        self.claimed: list[tuple[int, Task]] = []
        self.sent: list[Call] = []
        self.kept: list[Call] = []
        self._tokens = (f"t{number}" for number in range(1, 10_000))
        self._outputs = 0
        self._ranks = 0
        self._looks = 0

    async def begin(self) -> None:
        await self._raw("FLUSHDB")
        for partition in range(self.store.partitions):
            await self.store.make_group(partition)
            await self.store.settle(partition, await self.store.unsettled(partition))
        hashes = sorted({shape.content_hash for shape in self.shapes.values()})
        for partition in self.partitions:
            model = self.models[partition] = Partition()
            here = [execution_id for execution_id in self.ids if self.home[execution_id] == partition]
            self.mirrors[partition] = Mirror(self.store, partition, model, here, hashes)
            await self._define(partition)
        for execution_id in self.ids:
            await self._reconcile(execution_id)

    async def _define(self, partition: int) -> None:
        for content_hash in self.mirrors[partition].hashes:
            await self.store.put_definition(partition, content_hash, "{}", DEFINITION_TTL_SECONDS)
            self.models[partition].definitions.setdefault(content_hash, Definition())

    async def _raw(self, *command: Any) -> Any:
        return await self.store._link.call(*command)

    # ---- one call, to both

    async def send(self, call: Call) -> Any:
        model, mirror = self.models[call.partition], self.mirrors[call.partition]
        args = call.args if call.verb == "cancel" else (call.partition, *call.args)
        before = dict(mirror.seen)
        real = await getattr(self.store, call.verb)(*args, **call.named)
        expected = getattr(model, call.verb)(*call.args, **call.named)
        assert real == expected, f"{call.verb} answered {real}, expected {expected}"
        await self._look(call.verb, call.partition, before)
        if call.verb == "claim":
            self.invariants.claims(real[0])
            self.claimed += [(call.partition, task) for task in real[0]]
        elif call.verb == "due":
            self.rendered += [self._render_retry(call.partition, item) for item in real[0]]
        if call.walks:
            for walk, verdict, reply in zip(call.walks, call.args[0], real, strict=True):
                walk.heard(verdict, reply)
        return real

    async def _look(self, verb: str, partition: int, before: dict[str, Any]) -> None:
        self._looks += 1
        for number, mirror in self.mirrors.items():
            if number != partition and self._looks % 4:
                continue  # nothing may change there, and now and then we look
            new = await mirror.compare()
            assert number == partition or not new
            self.invariants.events(new)
            for entry_id, event in new:
                self.ledgers[event.execution_id].apply(entry_id, event)
        for execution_id, seen in before.items():
            self.invariants.moved(verb, execution_id, seen, self.mirrors[partition].seen[execution_id])

    async def deliver(self, call: Call, fate: int) -> None:
        """Now, twice (as after a lost reply), or some time later."""
        if fate >= 8:
            self.kept.append(call)
            return
        if fate >= 6:
            await self.send(call._replace(walks=()))
        await self.send(call)
        self.sent.append(call)

    # ---- steps

    async def step(self, step: Step) -> None:
        move = getattr(self, f"_{step.what}", None)
        if move:
            await move(step.pick, step.how, step.fate)

    async def _advance(self, pick: int, how: int, fate: int) -> None:
        """One to all slices of an entry's hints: a new one, an old one again, or one that was left in the middle."""
        unfinished = [visit for visit in self.visits if not visit.over]
        if pick >= 12 and unfinished:
            visit = unfinished[-1 - how % len(unfinished)]
        else:
            found = await self._find_hint(pick)
            if not found:
                return
            partition, entry_id, hint = found
            ahead = (0, 15, 15, 5, 10, 0, 15, 3)[(pick + how) % 8]
            hints = self._entry(partition, entry_id) if fate % 4 else [hint]
            visit = self._visit(partition, entry_id, hints, how % 3 + 1, ahead)
            self.visits.append(visit)
        partition = visit.partition
        await self._probe(partition, visit.walks[0], how)
        for number in range(1 + how // 3 if how < 9 else 1000):
            fate = (fate + 3 * number) % 10
            others = [other for other in unfinished if other is not visit and other.partition == partition]
            batch = [visit, *others[: fate % 3]]
            await self.deliver(self._advance_call(partition, batch), fate)
            if how % 4 == 1:  # slice by slice; the entry goes with the last one
                items = tuple(
                    self._item(walk.hint, name, attempt + 1) for walk in visit.walks for name, attempt in walk.ready
                )
                if items:
                    self.rendered.append(Call("dispatch", partition, (items, ())))
            for one in batch:
                self._render(one, bad=how in (2, 11))
            if visit.over or fate >= 8:
                break
        await self._probe(partition, visit.walks[0], how)
        if how >= 12 and self.rendered:
            await self.deliver(self.rendered.pop(), 0)

    def _entry(self, partition: int, entry_id: str) -> list[Hint]:
        return [hint for home, other, hint in self.hints if (home, other) == (partition, entry_id)]

    def _visit(self, partition: int, entry_id: str, hints: Sequence[Hint], size: int, ahead: int = 0) -> Visit:
        visit = Visit(partition, entry_id, whole=len(hints) == len(self._entry(partition, entry_id)))
        for hint in hints:
            Walk(visit, self.shapes[hint.execution_id], hint, size, ahead)
        return visit

    def _advance_call(self, partition: int, visits: Sequence[Visit]) -> Call:
        walks = tuple(walk for visit in visits for walk in visit.left)
        return Call("advance", partition, (tuple(walk.verdict for walk in walks),), walks=walks)

    async def _probe(self, partition: int, walk: Walk, how: int) -> None:
        """What other orchestrators may ask about the same hint: it must not disturb this walk."""
        changes: dict[str, Any] = {}
        if walk.letter == "C" and how % 8 == 5:
            changes = {"offset": 50, "total": 60}  # a slice too far
        elif how % 8 == 4:
            changes = {"verdict": "N", "body": "", "names": (), "tasks": (), "total": 0}
        if changes:
            probe = msgspec.structs.replace(walk.verdict, entry_id="1-1", **changes)
            await self.send(Call("advance", partition, ((probe,),)))

    async def _find_hint(self, pick: int) -> tuple[int, str, Hint] | None:
        if pick == 11:
            old = [one for one in self.hints if self._is_superseded(one[2])]
            if old:
                return old[-1]
        if pick >= 10 and self.hints:
            return self.hints[-1 - pick % len(self.hints)]
        pending = [(number, *one) for number, model in self.models.items() for one in model.pending()]
        if not pending or pick % 3 == 0:
            for number in self.partitions:
                await self._read(number, 1 + pick % 3, 0)
            pending = [(number, *one) for number, model in self.models.items() for one in model.pending()]
        return pending[pick % len(pending)] if pending else None

    def _is_superseded(self, hint: Hint) -> bool:
        """A later attempt of its node is reported or has succeeded."""
        x = self.models[self.home[hint.execution_id]].executions.get(hint.execution_id)
        if hint.is_start or not x or (x.epoch, x.run) != (hint.epoch, hint.run):
            return False
        node = x.node(hint.node)
        return node.attempt > hint.attempt and node.state in "DC"

    def _render(self, visit: Visit, *, bad: bool = False) -> None:
        """A visit that came to its end leaves a call of `dispatch`, unless the entry is acknowledged already."""
        if not visit.over or visit.acknowledged or visit.rendered:
            return
        items = [self._item(walk.hint, name, attempt + 1) for walk in visit.walks for name, attempt in walk.ready]
        if bad and items:
            items[0] = msgspec.structs.replace(items[0], payload="template", failed=True)
        over = (visit.entry_id,) if visit.whole else ()
        self.rendered.append(Call("dispatch", visit.partition, (tuple(items), over)))
        visit.rendered = True

    def _render_retry(self, partition: int, item: Due) -> Call:
        return Call("dispatch", partition, ((self._item(item, item.node, item.attempt + 1),), ()))

    def _item(self, of: Any, name: str, attempt: int) -> Dispatch:
        return self.shapes[of.execution_id].item(of, name, attempt)

    async def _read(self, partition: int, most: int, how: int) -> None:
        consumer = f"o{most % 2}"
        if how >= 8:
            taken = await self.store.take_over_hints(partition, consumer, 0, 100)
            assert [(i, plain_outcome(h)) for i, h in taken] == self.models[partition].pending()
            return
        if all(entry.read for entry in self.models[partition].results):
            return  # it would block
        real = await self.store.read_hints(partition, consumer, most)
        plain = [(hint_id, plain_outcome(hint)) for hint_id, hint in real]
        assert plain == self.models[partition].read_hints(most)
        self.hints += [(partition, hint_id, hint) for hint_id, hint in plain]
        await self._look("read", partition, dict(self.mirrors[partition].seen))

    async def _dispatch(self, pick: int, how: int, fate: int) -> None:
        if how == 14:  # too early: nobody knows whether it is ready
            execution_id = self.ids[fate % len(self.ids)]
            x = self.models[self.home[execution_id]].executions.get(execution_id)
            name = list(self.shapes[execution_id].parents)[pick % len(self.shapes[execution_id].parents)]
            if x and x.status != "O" and len(self.shapes[execution_id].parents[name]) != 1:
                early = self._item(Token(x.id, x.epoch, x.run, name, 0), name, x.node(name).attempt + 1)
                await self.deliver(Call("dispatch", self.home[execution_id], ((early,), ())), fate % 8)
            return
        if how == 15:
            old = [call for call in self.sent if call.verb == "dispatch" and call.args[0]]
            if old:  # forged: of another attempt, epoch or run; it must not carry a hint
                item = old[-1 - pick % len(old)].args[0][0]
                await self.deliver(Call("dispatch", old[0].partition, ((self._forge(item, pick),), ())), fate % 8)
            return
        if not self.rendered:
            return
        call = self.rendered.pop(-1 - pick % len(self.rendered))
        if how % 4 == 0:  # a batch
            more = [other for other in self.rendered if other.partition == call.partition][:2]
            self.rendered = [other for other in self.rendered if all(other is not one for one in more)]
            items = call.args[0] + tuple(item for other in more for item in other.args[0])
            call = Call("dispatch", call.partition, (items, call.args[1] + tuple(h for o in more for h in o.args[1])))
        await self.deliver(call, fate)

    def _forge(self, item: Any, pick: int) -> Any:
        others = [ledger.epoch for ledger in self.ledgers.values()]
        changes: list[dict[str, Any]] = [
            {"attempt": item.attempt + 1},
            {"attempt": max(0, item.attempt - 1)},
            {"run": item.run + 1},
            {"run": max(1, item.run - 1)},
            {"epoch": "t0"},
            {"epoch": others[pick % len(others)]},
            {"execution_id": self.ids[-1]},
        ]
        forged = msgspec.structs.replace(item, **changes[pick % len(changes)])
        known = forged.node in self.shapes[forged.execution_id].parents
        return forged if known and self.home[forged.execution_id] == self.home[item.execution_id] else item

    async def _claim(self, pick: int, how: int, fate: int) -> None:
        handlers = (HANDLERS, HANDLERS, HANDLERS[::-1], HANDLERS[:1])[how // 4]
        partition = self.partitions[pick % len(self.partitions)]
        await self.deliver(Call("claim", partition, (f"w{pick % 3}", 1 + how % 4, LEASE_MS, handlers)), fate % 7)

    def _claimed_earlier(self, pick: int, *, superseded: bool) -> tuple[int, Task]:
        """An attempt that was claimed, the newest first; or one in whose place another one waits or runs."""
        if superseded:
            for home, task in reversed(self.claimed):
                x = self.models[home]._mine(task)
                if x and x.node(task.node).attempt > task.attempt and x.node(task.node).state in "QR":
                    return home, task
        return self.claimed[-1 - pick % len(self.claimed)]

    def _held(self, pick: int, how: int) -> list[tuple[int, Task]]:
        """Attempts that were claimed at some time, the newest first; some are forged."""
        if not self.claimed:
            return []
        partition, task = self._claimed_earlier(pick, superseded=how % 4 == 2)
        chosen = [task]
        if how % 4 == 3:
            chosen += [other for home, other in self.claimed[-3:] if home == partition]
        if how >= 14:
            chosen = [self._forge(one, pick) for one in chosen]
        return [(partition, one) for one in chosen]

    async def _report(self, pick: int, how: int, fate: int) -> None:
        reports = []
        for _, task in self._held(pick, how):
            self._outputs += 1
            outcome = "retry" if 9 <= how <= 11 else "fatal" if how in (12, 13) else f"ok{self._outputs}"
            ahead = (None, 0, 15, 5, 10, None)[(pick + how) % 6]
            reports.append(self._report_of(task, outcome, ahead))
        if reports:
            partition = self.home[reports[0].token.execution_id]
            await self.deliver(Call("report", partition, (tuple(reports),)), fate)

    def _report_of(self, task: Task, outcome: str, ahead: int | None) -> Report:
        """`ahead`: None for a plain report; else the children of a success go along, and the tasks of these."""
        shape = self.shapes[task.execution_id]
        if ahead is None or not outcome.startswith("ok") or task.node not in shape.parents:
            return Report(task.token, outcome)
        names, places = shape.children[task.node], list(shape.parents)
        tasks = [shape.item(task, name, 1) if ahead >> places.index(name) % 4 & 1 else None for name in names]
        return Report(task.token, outcome, [(name, len(shape.parents[name])) for name in names], tasks)

    async def _renew(self, pick: int, how: int, fate: int) -> None:
        held = self._held(pick, how)
        if held:
            tokens = tuple(task.token for _, task in held)
            await self.deliver(Call("renew", held[0][0], (f"w{pick % 3}", f"a{how}", LEASE_MS, tokens)), fate)

    async def _release(self, pick: int, how: int, fate: int) -> None:
        held = self._held(pick, how)
        if held:
            await self.deliver(Call("release", held[0][0], (tuple(task for _, task in held),)), fate)

    async def _reject(self, pick: int, how: int, fate: int) -> None:
        partition = self.partitions[pick % len(self.partitions)]
        age_ms = 0 if how < 12 else 3_600_000
        await self.deliver(Call("reject", partition, (HANDLERS[pick % 2], age_ms, 1 + how % 3, "no_handler")), fate)

    async def _due(self, pick: int, how: int, fate: int) -> None:
        partition = self.partitions[pick % len(self.partitions)]
        timers = sorted(self.models[partition].timers)
        if how < 8:
            chosen = timers[pick % len(timers) :][:1] if timers else []
        else:
            kinds = ("T", "T", "T", "T", "L", "L", "TL", "")[how - 8]
            chosen = [timer for timer in timers if timer.kind in kinds]
        await self._pass_time(partition, chosen)
        await self.deliver(Call("due", partition, (2 if pick == 9 else 100, LEASE_MS)), fate % 7)

    async def _pass_time(self, partition: int, timers: Sequence[Timer]) -> None:
        model = self.models[partition]
        for timer in timers:
            self._ranks += 1
            assert self._ranks <= LONG_AGO
            model.timers[timer] = self._ranks
            await self._raw("ZADD", keys.prefix(partition) + "timers", self._ranks, timer.member)

    async def _gap(self, pick: int, how: int, fate: int) -> None:
        """`due` was away for longer than a lease; or the grace that followed is over."""
        for partition, model in self.models.items():
            meta = keys.prefix(partition) + "meta"
            if pick % 2:
                model.grace = False
                await self._raw("HSET", meta, "grace", 1)
            else:
                model.gap = True
                await self._raw("HSET", meta, "due", await self.store.now_ms() - 2 * LEASE_MS)

    async def _ghost(self, pick: int, how: int, fate: int) -> None:
        """A task or a timer of an attempt that is over comes back, as after a server that went back in time."""
        if not self.claimed:
            return
        partition, task = self._claimed_earlier(pick, superseded=pick % 2 == 0)
        model = self.models[partition]
        if how < 8:
            model.tasks.setdefault(task.handler, []).append(task)
            await self._raw("SADD", keys.prefix(partition) + "queues", task.handler)
            await self._raw("RPUSH", keys.tasks(partition, task.handler), codec.encode(task))
            if how < 4:  # then its successor stands behind it
                await self.send(Call("release", partition, ((task,),)))
                await self.send(Call("reject", partition, (task.handler, 0, 1, "no_handler")))
            return
        timer = (
            Timer("X", *codec.token_fields(task.token)[:3], "", 0)
            if how < 11
            else Timer("LT"[how % 2], *codec.token_fields(task.token))
        )
        await self._pass_time(partition, [timer])
        await self.deliver(Call("due", partition, (100, LEASE_MS)), 0)

    async def _cancel(self, pick: int, how: int, fate: int) -> None:
        execution_id = self.ids[pick % len(self.ids)]
        run = self.ledgers[execution_id].run + (1 if how == 14 else -1 if how == 15 else 0)
        await self.deliver(Call("cancel", self.home[execution_id], (execution_id, run)), fate)

    async def _forget(self, pick: int, how: int, fate: int) -> None:
        partition = self.partitions[pick % len(self.partitions)]
        items = []
        for execution_id in [one for one in self.ids if self.home[one] == partition]:
            ledger = self.ledgers[execution_id]
            epoch = "t0" if how == 13 else ledger.epoch
            last = ledger.heard[-2:][0] if how in (14, 15) else ledger.last
            items.append((execution_id, epoch, last))
        named = {"definition_ttl_seconds": DEFINITION_TTL_SECONDS}
        await self.deliver(Call("forget", partition, (tuple(items + items[:1] if how == 12 else items),), named), fate)

    async def _again(self, pick: int, how: int, fate: int) -> None:
        """A call that was sent before, with the same arguments."""
        if not self.sent:
            return
        call = self.sent[-1 - pick % len(self.sent)]
        if call.verb == "reserve":  # a token is for one reservation; a ghost of it must find the place taken
            held = [self.models[call.partition].executions.get(one.execution_id) for one in call.args[0]]
            if not all(x and x.status != "O" and x.run >= one.run for x, one in zip(held, call.args[0], strict=True)):
                return
        await self.send(call._replace(walks=()))

    async def _kept(self, pick: int, how: int, fate: int) -> None:
        """A call that was delayed arrives."""
        if not self.kept:
            return
        call = self.kept.pop(pick % len(self.kept))
        await self.send(call)
        self.sent.append(call)
        for walk in call.walks:
            self._render(walk.visit)

    async def _open(self, pick: int, how: int, fate: int) -> None:
        """What a reconciler does: reserve and open what is missing, the next run, the rest of an opening."""
        if self.openings and how % 2:
            await self._go_on_opening(self.openings[pick % len(self.openings)], fate)
            return
        execution_id = self.ids[pick % len(self.ids)]
        ledger = self.ledgers[execution_id]
        if ledger.status in "FX":
            ledger.next_run()
        if how == 14:
            await self._reserve(execution_id, ledger.heard[-2:][0], ledger.epoch, fate)
        elif how == 12:
            await self._reserve(execution_id, ledger.last, "t0", fate)
        elif ledger.status == "R":
            await self._reconcile(execution_id, pick, how, fate)

    async def _reserve(self, execution_id: str, last: str, old_epoch: str, fate: int) -> tuple[str, str]:
        token = next(self._tokens)
        again = fate != 1  # whether another reservation may be replaced
        behind = fate in (2, 5)  # the caller holds what is open, in the same run, for older than the record
        wanted = Reservation(execution_id, token, old_epoch, last, self.ledgers[execution_id].run, again, behind)
        named = {"definition_ttl_seconds": DEFINITION_TTL_SECONDS}
        call = Call("reserve", self.home[execution_id], ((wanted,),), named)
        if fate >= 8:
            self.kept.append(call)
            return token, "late"
        answer = ""
        for _ in range(2 if fate >= 6 else 1):
            (answer,) = await self.send(call)
        self.sent.append(call)
        return token, answer

    async def _reconcile(self, execution_id: str, pick: int = 0, how: int = 0, fate: int = 0) -> None:
        ledger = self.ledgers[execution_id]
        old_epoch = ledger.epoch
        token, answer = await self._reserve(execution_id, ledger.last, old_epoch, fate)
        if answer != "reserved" or ledger.status != "R" or ledger.epoch != old_epoch:
            return
        ledger.epoch, ledger.last = token, ""
        opening = list(self._opening(execution_id, token, pick, how))
        self.openings.append(opening)
        if how < 10:
            while opening:
                await self._go_on_opening(opening, fate)

    async def _go_on_opening(self, opening: list[Call], fate: int) -> None:
        await self.deliver(opening.pop(0), fate % 8)
        if not opening:
            self.openings = [one for one in self.openings if one]

    def _opening(self, execution_id: str, token: str, pick: int, how: int) -> Iterator[Call]:
        shape, ledger = self.shapes[execution_id], self.ledgers[execution_id]
        keep_failed = shape.mode == "continue"
        rows = []
        for name in shape.parents:
            attempt, retries = ledger.attempts.get(name, 0), ledger.retries.get(name, 0)
            if name in ledger.outputs:
                rows.append((name, *msgspec.structs.astuple(Record("C", attempt, cursor=len(shape.children[name])))))
            elif keep_failed and name in ledger.failed:
                rows.append((name, *msgspec.structs.astuple(Record("F", attempt, retries, error=ledger.failed[name]))))
            elif keep_failed and name in shape.downstream(list(ledger.failed)):
                rows.append((name, *msgspec.structs.astuple(Record("S", attempt))))
            elif attempt:
                rows.append((name, *msgspec.structs.astuple(Record("P", attempt, retries))))
        done = {name: sum(parent in ledger.outputs for parent in above) for name, above in shape.parents.items()}
        counts = [(name, count) for name, count in done.items() if count]
        outputs = [*ledger.outputs.items(), (keys.INPUT_FIELD, "{}")]
        left = len(shape.parents) - sum(str(row[1]) in "CFS" for row in rows)
        failed = sum(row[1] == "F" for row in rows)
        start = "all" if rows or counts else "roots"
        created_ms = 0 if ledger.run == 1 else 7
        head = Opening(
            ledger.run, shape.content_hash, shape.mode, left, failed, created_ms, shape.timeout_ms, how == 8, start
        )
        home, parts = self.home[execution_id], []
        if pick % 2 and rows:
            parts = [OpenSlice(execution_id, token, rows[:2], counts[:1])]
            rows, counts = rows[2:], counts[1:]
            if pick % 4 == 1:
                yield Call("open", home, (tuple(parts),))
                parts = []
        roots = [name for name, above in shape.parents.items() if not above] if start == "roots" and pick % 3 else []
        ready = [shape.item(Token(execution_id, token, ledger.run, name, 0), name, 1) for name in roots]
        parts.append(OpenSlice(execution_id, token, rows, counts, outputs, head, ready))
        yield Call("open", home, (tuple(parts),))

    async def _lose(self, pick: int, how: int, fate: int) -> None:
        """The store loses an execution, or all of a partition; the ledger has heard everything."""
        execution_id = self.ids[pick % len(self.ids)]
        partition = self.home[execution_id]
        model, mirror = self.models[partition], self.mirrors[partition]
        if how < 10:
            key = keys.execution(partition, execution_id)
            await self._raw("DEL", key)
            model.executions.pop(execution_id, None)  # its definition keeps one user too many: that is not the point
        else:
            found = await self._raw("KEYS", keys.prefix(partition).replace("{", "\\{") + "*")
            await self._raw("DEL", *found)
            await asyncio.sleep(0.002)  # the new streams' ids must not be those of the old ones
            await self.store.make_group(partition)
            model.__init__()
            mirror.restart()
            await self._define(partition)
        await mirror.compare()

    # ---- the end

    async def drain(self) -> None:
        """Without further faults everything RUNNING ends; and once it is forgotten, nothing is left."""
        self.kept, self.visits, self.rendered, self.openings = [], [], [], []
        await self._rounds()
        for ledger in self.ledgers.values():
            if ledger.status in "FX" and len(self.sent) % 3 == 0:
                ledger.next_run()
        await self._rounds()
        await self._sweep()

    async def _rounds(self) -> None:
        for _ in range(ROUNDS_TO_END):
            if await self._round():
                break
        unfinished = {execution_id: ledger for execution_id, ledger in self.ledgers.items() if ledger.status == "R"}
        assert not unfinished, f"not ended: {unfinished}"

    async def _round(self) -> bool:
        if any(x.status == "F" and x.busy for model in self.models.values() for x in model.executions.values()):
            for partition in range(len(self.partitions)):  # too early
                await self._forget(partition, 0, 0)
        for execution_id, ledger in self.ledgers.items():
            x = self.models[self.home[execution_id]].executions.get(execution_id)
            if ledger.status == "R" and (not x or x.status == "O" or x.run < ledger.run):
                await self._reconcile(execution_id)
        for partition in self.models:
            if self._outputs % 2:  # the workers live on, or else they all lose their leases
                await self._report_all(partition)
            await self._gap(1, 0, 0)
            await self._pass_time(partition, [timer for timer in self.models[partition].timers if timer.kind != "X"])
            await self._settle(partition)
            await self.send(Call("claim", partition, ("w", 100, LEASE_MS, HANDLERS)))
            await self._report_all(partition)
        busy = any(
            x.status == "R" or (x.status == "F" and x.busy) for m in self.models.values() for x in m.executions.values()
        )
        return not busy and all(ledger.status != "R" for ledger in self.ledgers.values())

    async def _report_all(self, partition: int) -> None:
        reports = []
        for home, task in self.claimed:
            if home == partition and self.models[partition]._held(task):
                self._outputs += 1
                reports.append(self._report_of(task, f"ok{self._outputs}", (None, 15, 5)[self._outputs % 3]))
        if reports:
            await self.send(Call("report", partition, (tuple(reports),)))

    async def _settle(self, partition: int) -> None:
        """Timers, hints and what they make ready."""
        await self.send(Call("due", partition, (1000, LEASE_MS)))
        await self._read(partition, 1000, 0)
        old = [one for home, *one in self.hints if home == partition and self._is_superseded(one[1])][:2]
        if old:  # delivered once more, now that a later attempt is there
            late = [self._visit(partition, entry_id, [hint], 2) for entry_id, hint in old]
            await self.send(self._advance_call(partition, late)._replace(walks=()))
        pending = dict.fromkeys(entry_id for entry_id, _ in self.models[partition].pending())
        visits = [self._visit(partition, one, self._entry(partition, one), 2) for one in pending]
        while batch := [visit for visit in visits if not visit.over]:
            await self.send(self._advance_call(partition, batch))
        for visit in visits:
            self._render(visit)
        if self.rendered:
            items = tuple(item for call in self.rendered for item in call.args[0])
            hints = tuple(hint for call in self.rendered for hint in call.args[1])
            self.rendered = []
            await self.send(Call("dispatch", partition, (items, hints)))

    async def _sweep(self) -> None:
        await self._gap(1, 0, 0)
        for partition, model in self.models.items():
            await self._pass_time(partition, list(model.timers))
            await self._settle(partition)
            await self.send(Call("claim", partition, ("w", 1000, LEASE_MS, HANDLERS)))
            items = tuple((one, self.ledgers[one].epoch, self.ledgers[one].last) for one in self.mirrors[partition].ids)
            await self.send(Call("forget", partition, (items,), {"definition_ttl_seconds": DEFINITION_TTL_SECONDS}))
            assert not any(model.tasks.values())
            assert not model.results
            assert await self._raw("XLEN", keys.prefix(partition) + "results") == 0
            assert not model.timers
            assert all(x.status == "O" for x in model.executions.values())  # a late reservation, which has a TTL
