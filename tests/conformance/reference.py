"""The reference: one partition of the hot store as plain Python, written from protocol.md.

It says what each function must answer and leave behind. It has no clock (`NOW`, `After` and `GRACE` stand for times
that only the server knows; snapshot.py puts the real ones in when it compares) and keeps no counters that can be
derived: how many nodes are left, failed or under way is counted from the nodes each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from headrace.model.messages import (
    Advanced,
    Change,
    Dispatch,
    Due,
    Hint,
    OpenSlice,
    Report,
    Reservation,
    Task,
    Token,
    Verdict,
)

NOW = -1  # the time of the call that wrote it
GRACE = -2  # the end of the period that leases got after a gap
LONG_AGO = 1_000_000  # scores up to here were put there by the test: these timers are due
RETRY_AHEAD_MS = 5000
WORKER_LOST = "<worker lost>"
LATE = "<execution timeout>"


Answer = list[tuple[int, int]]


class After(NamedTuple):
    """So many ms after the call that wrote it."""

    ms: int


class Timer(NamedTuple):
    kind: str
    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int

    @property
    def member(self) -> str:
        return "|".join(str(part) for part in self)


@dataclass(slots=True)
class Node:
    state: str = "P"
    attempt: int = 0
    retries: int = 0
    lost: int = 0
    cursor: int = 0
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    worker: str = ""
    error: str = ""


@dataclass(slots=True)
class Entry:
    """Of the results stream: the hints of one call. `read`: some orchestrator has it, so it is pending."""

    hints: list[Hint]
    id: str = ""
    read: bool = False


@dataclass(slots=True)
class Happened:
    """An expected event; `id` is learned from the server."""

    execution_id: str
    epoch: str
    run: int
    seq: int
    previous: str
    status: str = ""
    error: str = ""
    changes: list[Change] = field(default_factory=list)
    id: str = ""


@dataclass(slots=True)
class Execution:
    id: str
    epoch: str  # while it is OPENING: its token
    run: int
    status: str = "O"
    definition: str = ""
    mode: str = ""
    size: int = 0
    created: Any = None
    has_deadline: bool = False
    started: Any = None
    finished: Any = None
    error: str = ""
    error_node: str = ""
    seq: int = 0
    last: Happened | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def last_id(self) -> str:
        return self.last.id if self.last else ""

    @property
    def left(self) -> int:
        return self.size - sum(node.state in "CFS" for node in self.nodes.values())

    @property
    def failed(self) -> int:
        return sum(node.state == "F" for node in self.nodes.values())

    @property
    def busy(self) -> int:
        return sum(node.state in "RD" for node in self.nodes.values())

    def node(self, name: str) -> Node:
        """An absent record reads as PENDING."""
        return self.nodes.get(name) or Node()


@dataclass(slots=True)
class Definition:
    users: int = 0
    kept: bool = False  # no TTL


class Partition:
    def __init__(self) -> None:
        self.executions: dict[str, Execution] = {}
        self.tasks: dict[str, list[Task]] = {}
        self.results: list[Entry] = []
        self.events: list[Happened] = []  # of the last call; snapshot.py takes them
        self.control: list[tuple[str, str]] = []  # likewise
        self.timers: dict[Timer, Any] = {}
        self.workers: dict[str, str] = {}
        self.definitions: dict[str, Definition] = {}
        self.gap = False  # `due` was away for longer than a lease
        self.grace = False
        self._writing: dict[str, Happened] = {}
        self._saying: list[Hint] = []

    # ---- opening

    def reserve(self, reservations: Sequence[Reservation], *, definition_ttl_seconds: int) -> list[str]:
        return [self._reserve(one) for one in reservations]

    def _reserve(self, wanted: Reservation) -> str:
        held = self.executions.get(wanted.execution_id)
        if held and held.status == "O" and held.epoch == wanted.token:
            return "reserved"  # a repeated call keeps what was filled since
        if held and held.status == "O":
            if not wanted.again:
                return "exists"
        elif held:
            allowed = held.run < wanted.run or (held.run == wanted.run and wanted.behind)
            if not allowed or held.epoch != wanted.old_epoch or held.last_id != wanted.last_event:
                return "exists"
            if held.status == "F" and held.busy:
                return "busy"
            self._drop(held)
        self.executions[wanted.execution_id] = Execution(wanted.execution_id, wanted.token, wanted.run)
        return "reserved"

    def open(self, slices: Sequence[OpenSlice]) -> list[str]:
        answers = [self._open(one) for one in slices]
        self._written()
        return answers

    def _open(self, part: OpenSlice) -> str:
        opening = part.opening
        x = self.executions.get(part.execution_id)
        if not x or x.epoch != part.token:
            return "gone"
        if x.status != "O":
            return "already"
        if opening and opening.definition not in self.definitions:
            return "no definition"
        x.nodes.update({str(name): Node(*record) for name, *record in part.rows})
        x.counts.update(part.counts)
        x.outputs.update(part.outputs)
        if not opening:
            return "filled"
        x.size = opening.left + sum(node.state in "CFS" for node in x.nodes.values())
        x.status, x.run = "R", opening.run
        x.definition, x.mode, x.created, x.started = opening.definition, opening.mode, opening.created_ms or NOW, NOW
        definition = self.definitions[opening.definition]
        definition.users += 1
        definition.kept = True
        happened = self._event(x)
        happened.status = "R"
        if opening.timeout_ms and not opening.cancelled and opening.left:
            x.has_deadline = True
            self.timers[self._timer("X", x)] = After(opening.timeout_ms)
        if opening.cancelled:
            self._end(x, "X")
        elif not opening.left:
            self._end(x, "F" if opening.failed else "C")
        elif part.roots:
            for item in part.roots:
                self._queue(x, item)
        else:
            self._hint(x, "", Node(), opening.start)
        return "opened"

    # ---- orchestrators

    def dispatch(self, items: Sequence[Dispatch], hints: Sequence[str]) -> int:
        taken = 0
        for item in items:
            x = self._mine(item)
            if not x or x.status != "R":
                continue
            node = x.node(item.node)
            if node.state not in "PT" or item.attempt != node.attempt + 1:
                continue
            if item.parents > 1 and x.counts.get(item.node, 0) != item.parents:
                continue  # a single parent is done: it led here
            taken += 1
            self.timers.pop(self._timer("T", x, item.node, node.attempt), None)
            self._queue(x, item)
        self._written()
        self._acknowledge(hints)
        return taken

    def _queue(self, x: Execution, item: Dispatch) -> None:
        node = x.node(item.node)
        x.nodes[item.node] = node = Node(
            "D" if item.failed else "Q", item.attempt, node.retries, node.lost, node.cursor, NOW
        )
        if item.failed:
            node.finished_ms = NOW
            self._hint(x, item.node, node, item.payload)
        else:
            self._task(x, item.node, node, item.handler, item.payload)
            self._event(x).changes.append(Change(item.node, "Q", item.attempt))

    def advance(self, verdicts: Sequence[Verdict]) -> list[Advanced]:
        replies, over = [], []
        for entry_id, together in groupby(verdicts, lambda verdict: verdict.entry_id):
            all_finished = True
            for verdict in together:
                last_slice, answer = self._advance(verdict)
                # What an earlier call answered is not dispatched yet, so the entry is still needed.
                finished = last_slice and verdict.quiet and not answer
                replies.append(Advanced(finished, answer))
                all_finished = all_finished and finished
            if all_finished:
                over.append(entry_id)
        self._written()
        self._acknowledge(over)
        return replies

    def _advance(self, hint: Verdict) -> tuple[bool, Answer]:
        """(whether nothing more is to be done with this hint, what is answered)"""
        x = self._mine(hint)
        if not x:
            return True, []
        if hint.verdict == "N":
            return False, []
        last_slice = hint.offset + len(hint.names) >= hint.total
        if hint.verdict == "S":
            return (last_slice, self._ready(x, hint)) if x.status == "R" else (True, [])
        node = x.node(hint.node)
        if node.attempt != hint.attempt:
            return True, []
        first = node.state == "D" and x.status in "RF" and hint.verdict != "K" and hint.offset == 0
        if first:
            self._conclude(x, hint, node)
        if x.status != "R" or node.state not in "CF":
            return True, []
        if node.state == "C":
            if node.cursor < hint.offset:
                return False, []  # children before this slice are not counted yet
            for name, parents in hint.names[node.cursor - hint.offset :]:
                if parents > 1:  # of a single parent the cursor says enough
                    x.counts[name] = x.counts.get(name, 0) + 1
            node.cursor = max(node.cursor, hint.offset + len(hint.names))
            return last_slice, self._ready(x, hint)
        names = [name for name, _ in hint.names]
        return last_slice, self._skip(x, hint.node, names)

    def _conclude(self, x: Execution, hint: Verdict, node: Node) -> None:
        running = x.status == "R"
        happened = self._event(x)
        if hint.verdict == "C":
            node.state, node.cursor = "C", 0 if running else hint.total
            x.outputs[hint.node] = hint.body
            happened.changes.append(Change(hint.node, "C", node.attempt, hint.body))
            if running and not x.left:
                self._end(x, "F" if x.failed else "C")
            return
        node.error = hint.body
        if hint.verdict == "T" and running:
            node.state = "T"
            node.lost, node.retries = node.lost + hint.flag, node.retries + (not hint.flag)
            self.timers[self._timer("T", x, hint.node, node.attempt)] = After(hint.delay_ms)
            happened.changes.append(Change(hint.node, "T", node.attempt, hint.body, hint.delay_ms))  # from now
            return
        node.state = "F"
        happened.changes.append(Change(hint.node, "F", node.attempt, hint.body))
        happened.error = happened.error or hint.body
        if not x.error:
            x.error, x.error_node = hint.body, hint.node
        if running and (x.mode == "fail_fast" or not x.left):
            self._end(x, "F")

    def _ready(self, x: Execution, hint: Verdict) -> Answer:
        """What is ready and has a fitting task with it is queued; the rest is answered."""
        ready: Answer = []
        tasks = hint.tasks or [None] * len(hint.names)
        for position, ((name, parents), task) in enumerate(zip(hint.names, tasks, strict=True)):
            done = parents if hint.verdict != "S" and parents == 1 else x.counts.get(name, 0)
            if done == parents and x.node(name).state == "P":
                if task and x.node(name).attempt == 0:
                    self._queue(x, task)
                else:
                    ready.append((position, x.node(name).attempt))
        return ready

    def _skip(self, x: Execution, owner: str, names: Sequence[str]) -> Answer:
        skipped: Answer = []
        for position, name in enumerate(names):
            if x.node(name).state == "P":
                node = x.nodes.setdefault(name, Node())
                node.state, node.worker = "S", owner
                self._event(x).changes.append(Change(name, "S", node.attempt, owner))
            if x.node(name).state == "S" and x.node(name).worker == owner:
                skipped.append((position, 0))
        if names and not x.left:
            self._end(x, "F")
        return skipped

    def due(self, most: int, lease_ms: int) -> tuple[list[Due], bool]:
        if self.gap:
            self.gap, self.grace = False, True
        run_out = sorted(
            ((score, timer) for timer, score in self.timers.items() if isinstance(score, int) and score <= LONG_AGO),
            key=lambda pair: (pair[0], pair[1].member),
        )[:most]
        retries: list[Due] = []
        for _, timer in run_out:
            x = self._mine(timer)
            node = x.node(timer.node) if x else Node()
            fits = x is not None and node.attempt == timer.attempt
            if timer.kind == "T" and x and x.status == "R" and fits and node.state == "T":
                self.timers[timer] = After(RETRY_AHEAD_MS)  # only `dispatch` removes it
                retries.append(Due(x.id, x.epoch, x.run, timer.node, timer.attempt, x.definition))
                continue
            if timer.kind == "L" and self.grace:
                self.timers[timer] = GRACE
                continue
            del self.timers[timer]
            if timer.kind == "L" and x and x.status in "RF" and fits and node.state == "R":
                node.state, node.finished_ms = "D", NOW
                self._hint(x, timer.node, node, WORKER_LOST)
            elif timer.kind == "X" and x and x.status == "R":
                happened = self._event(x)
                happened.error = happened.error or LATE
                x.error = x.error or LATE
                self._end(x, "F")
        self._written()
        return retries, len(run_out) == most

    def cancel(self, execution_id: str, run: int) -> str:
        x = self.executions.get(execution_id)
        if not x:
            return "absent"
        if x.status == "O":
            return "opening"
        if x.run != run or x.status != "R":
            return x.status
        self._event(x)
        self._end(x, "X")
        self._written()
        self.control.append((x.id, x.epoch))
        return "cancelled"

    def forget(self, items: Sequence[tuple[str, str, str]], *, definition_ttl_seconds: int) -> list[int]:
        gone = []
        for position, (execution_id, epoch, last_event) in enumerate(items):
            x = self.executions.get(execution_id)
            if not x or x.status not in "CFX" or x.epoch != epoch or x.last_id != last_event:
                continue
            if x.status == "X" or not x.busy:
                self._drop(x)
                gone.append(position)
        return gone

    # ---- workers

    def claim(self, worker: str, slots: int, lease_ms: int, handlers: Sequence[str]) -> tuple[list[Task], int]:
        taken: list[Task] = []

        def take(handler: str, most: int) -> int:
            queue = self.tasks.get(handler, [])
            got = queue[:most]
            del queue[:most]
            taken.extend(got)
            return len(got)

        hungry = []
        for i, handler in enumerate(handlers):
            share = ceil((slots - len(taken)) / (len(handlers) - i))
            if share and take(handler, share) == share:
                hungry.append(handler)
        for handler in hungry:
            take(handler, slots - len(taken))
        claimed = []
        for task in taken:
            x = self._mine(task)
            node = x.node(task.node) if x else Node()
            if x and x.status == "R" and node.state == "Q" and node.attempt == task.attempt:
                node.state, node.started_ms, node.worker = "R", NOW, worker
                self.timers[self._timer("L", x, task.node, node.attempt)] = After(lease_ms)
                self._event(x).changes.append(Change(task.node, "R", node.attempt, worker))
                claimed.append(task)
        self._written()
        return claimed, len(taken)

    def renew(self, worker: str, about: str, lease_ms: int, tokens: Sequence[Token]) -> list[int]:
        lost = []
        for position, token in enumerate(tokens):
            if self._held(token):
                self.timers[Timer("L", *_token(token))] = After(lease_ms)
            else:
                lost.append(position)
        self.workers[worker] = about
        return lost

    def release(self, tasks: Sequence[Task]) -> int:
        given = 0
        for task in tasks:
            x = self._held(task)
            if not x:
                continue
            given += 1
            del self.timers[Timer("L", *_token(task))]
            node = x.nodes[task.node]
            node.state, node.attempt, node.queued_ms, node.started_ms, node.worker = "Q", task.attempt + 1, NOW, 0, ""
            self._event(x).changes.append(Change(task.node, "Q", node.attempt))
            if x.status == "R":
                self._task(x, task.node, node, task.handler, task.payload)
        self._written()
        return given

    def report(self, reports: Sequence[Report]) -> list[int]:
        stale = []
        for position, report in enumerate(reports):
            x = self._held(report.token)
            if not x:
                stale.append(position)
                continue
            node = x.nodes[report.token.node]
            node.state, node.finished_ms = "D", NOW
            del self.timers[Timer("L", *_token(report.token))]
            if report.children is None:
                self._hint(x, report.token.node, node, report.outcome)
            elif self._leaves_children(report, report.children):
                self._hint(x, report.token.node, node, f"{report.outcome} complete")
        self._written()
        return stale

    def _leaves_children(self, report: Report, children: Sequence[tuple[str, int]]) -> bool:
        """What `advance` would do with the hint; True if it would have answered any."""
        verdict = Verdict(
            "", *_token(report.token), "C", report.outcome, total=len(children), names=children, tasks=report.tasks
        )
        _, answer = self._advance(verdict)
        return bool(answer)

    def reject(self, handler: str, age_ms: int, most: int, outcome: str) -> int:
        """The reference has no clock: an age of 0 is that of every task, any other that of none."""
        rejected = 0
        queue = self.tasks.get(handler, [])
        for task in queue[:most]:
            x = self._mine(task)
            node = x.node(task.node) if x else Node()
            waits = x and x.status == "R" and node.state == "Q" and node.attempt == task.attempt
            if waits and age_ms:
                break
            queue.remove(task)
            if x and waits:
                rejected += 1
                node.state, node.finished_ms = "D", NOW
                self._hint(x, task.node, node, outcome)
        self._written()
        return rejected

    # ---- reading hints

    def read_hints(self, most: int) -> list[tuple[str, Hint]]:
        new = [entry for entry in self.results if not entry.read][:most]
        for entry in new:
            entry.read = True
        return [(entry.id, hint) for entry in new for hint in entry.hints]

    def pending(self) -> list[tuple[str, Hint]]:
        return [(entry.id, hint) for entry in self.results if entry.read for hint in entry.hints]

    # ---- inside

    def _mine(self, item: Any) -> Execution | None:
        x = self.executions.get(item.execution_id)
        return x if x and x.status != "O" and (x.epoch, x.run) == (item.epoch, item.run) else None

    def _held(self, token: Any) -> Execution | None:
        """The execution, if a worker holds this attempt and its outcome would still count."""
        x = self._mine(token)
        if not x or x.status not in "RF":
            return None
        node = x.node(token.node)
        return x if node.state == "R" and node.attempt == token.attempt else None

    def _timer(self, kind: str, x: Execution, name: str = "", attempt: int = 0) -> Timer:
        return Timer(kind, x.id, x.epoch, x.run, name, attempt)

    def _task(self, x: Execution, name: str, node: Node, handler: str, payload: str) -> None:
        self.tasks.setdefault(handler, []).append(Task(x.id, x.epoch, x.run, name, node.attempt, handler, payload))

    def _hint(self, x: Execution, name: str, node: Node, outcome: str) -> None:
        hint = Hint(x.id, x.epoch, x.run, name, node.attempt, x.definition, node.retries, node.lost, outcome)
        self._saying.append(hint)

    def _acknowledge(self, hints: Sequence[str]) -> None:
        self.results = [entry for entry in self.results if entry.id not in hints]

    def _event(self, x: Execution) -> Happened:
        """The one event entry of this call for this execution."""
        if x.id not in self._writing:
            self._writing[x.id] = Happened(x.id, x.epoch, x.run, x.seq + 1, x.last_id)
        return self._writing[x.id]

    def _end(self, x: Execution, status: str) -> None:
        self._event(x).status = x.status = status
        x.finished = NOW
        self.timers.pop(self._timer("X", x), None)

    def _written(self) -> None:
        for happened in self._writing.values():
            x = self.executions[happened.execution_id]
            x.seq, x.last = happened.seq, happened
            self.events.append(happened)
        self._writing = {}
        if self._saying:
            self.results.append(Entry(self._saying))
        self._saying = []

    def _drop(self, x: Execution) -> None:
        del self.executions[x.id]
        definition = self.definitions[x.definition]
        definition.users -= 1
        if definition.users <= 0:
            definition.users, definition.kept = 0, False


def _token(item: Any) -> tuple[str, str, int, str, int]:
    return item.execution_id, item.epoch, item.run, item.node, item.attempt
