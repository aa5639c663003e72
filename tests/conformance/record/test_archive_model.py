"""The archive against a small model, over generated histories.

A hot store writes chains of events for several executions, is reopened under new epochs, retried into new runs. What it
wrote is delivered in pieces: again, out of order, with gaps, by two archivers at once. After each delivery the tables
say what the model says, which knows one rule: an event counts if it has the epoch and follows the last one.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from sqlalchemy import select

from headrace.model.messages import Change, Event
from headrace.record.acceptance import Acceptance
from headrace.record.archive import Archive, Entry
from headrace.record.database import Database
from headrace.record.tables import attempts, dead_letters, executions
from tests.conformance.record.chains import failure
from tests.conformance.record.rows import opened, started

EXECUTIONS = 3
STATES = {
    "Q": "QUEUED", "R": "RUNNING", "T": "RETRYING", "C": "COMPLETED", "F": "FAILED", "S": "SKIPPED",
}  # fmt: skip
STATUSES = {"R": "RUNNING", "C": "COMPLETED", "F": "FAILED", "X": "CANCELLED"}
SETTINGS = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
_partitions = itertools.count(1)


@dataclass
class Known:
    """An execution in the model, as the record should have it."""

    epoch: str
    run: int = 1
    last: str = ""
    status: str = "RUNNING"
    error: str | None = None
    error_node: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    done: int | None = 0
    failed: int | None = 0
    attempts: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    letters: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)

    def apply(self, entry_id: str, event: Event) -> None:
        if event.epoch != self.epoch or event.previous != self.last:
            return
        self.last = entry_id
        for change in event.changes:
            self._change(event, change)
        if event.run != self.run:
            return
        self._progress(event)
        if not event.status:
            return
        self.status = STATUSES[event.status]
        if event.status == "R":
            self.started_ms = self.started_ms or event.at_ms
        else:
            self.finished_ms = event.at_ms

    def _progress(self, event: Event) -> None:
        assert self.done is not None and self.failed is not None
        states = [change.state for change in event.changes]
        self.done += states.count("C") + states.count("S")
        self.failed += states.count("F")
        node = next((change.node for change in event.changes if change.state == "F"), None)
        if event.error and (node is None or self.error is None):
            self.error, self.error_node = event.error, node

    def count(self) -> None:
        """What stands when it is opened; of this run there is nothing yet."""
        if self.done is None:
            self.done, self.failed = [each["state"] for each in self.attempts.values()].count("COMPLETED"), 0

    def _change(self, event: Event, change: Change) -> None:
        known = self.attempts.setdefault((change.node, event.run, change.attempt), {})
        known["state"] = STATES[change.state]
        known["queued_ms" if change.state == "Q" else "started_ms" if change.state == "R" else "finished_ms"] = (
            event.at_ms
        )
        detail = {"R": "worker", "C": "output", "T": "error", "F": "error", "S": "reason"}.get(change.state)
        if detail:
            known[detail] = change.detail
        if change.state == "T":
            known["due_ms"] = change.due_ms
        if change.state == "F":
            status = "OPEN" if event.run == self.run else "RETRIED"
            self.letters.setdefault((event.run, change.node), (change.attempt, status))


@dataclass
class Source:
    """An execution in the hot store: what it writes next."""

    epoch: str
    run: int = 1
    last: str = ""


class Deliveries(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        super().__init__()
        self._run = runner.run
        self._database = database
        self._archive = Archive(database)
        self._partition = next(_partitions)
        self._stream: list[Entry] = []
        self._numbers = itertools.count(1)

    @initialize()
    def begin(self) -> None:
        self._ids = [self._run(started(self._database)) for _ in range(EXECUTIONS)]
        for each in self._ids:
            self._run(opened(self._database, each, "e0"))
        self._known = {each: Known("e0") for each in self._ids}
        self._sources = {each: Source("e0") for each in self._ids}

    @rule(
        whose=st.sets(st.integers(0, EXECUTIONS - 1), min_size=1),
        changes=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("QRTCFS"), st.integers(1, 2)), max_size=3),
        status=st.sampled_from(["", "", "", "R", "C", "F", "X"]),
    )
    def write(self, whose: set[int], changes: list[tuple[str, str, int]], status: str) -> None:
        """One entry of the outbox, with an event of each of these."""
        number = next(self._numbers)
        for each in sorted(whose):
            source = self._sources[self._ids[each]]
            made = [Change(node, state, attempt, _detail(state, number), number) for node, state, attempt in changes]
            fails = status == "F" or any(state == "F" for _, state, _ in changes)
            error = failure("fatal", f"event {number}") if fails else ""
            event = Event(self._ids[each], source.epoch, source.run, 0, source.last, number, status, error, made)
            source.last = f"{number}-0"
            self._stream.append((source.last, event))

    @rule(whose=st.integers(0, EXECUTIONS - 1))
    def open_again(self, whose: int) -> None:
        """A next run, or a rebuild: what was written under the old epoch and is not archived never counts."""
        known, source = self._known[self._ids[whose]], self._sources[self._ids[whose]]
        if known.status != "RUNNING":
            return
        epoch = f"e{next(self._numbers)}"
        self._run(opened(self._database, self._ids[whose], epoch))
        known.epoch, known.last = epoch, ""
        known.count()
        source.epoch, source.last, source.run = epoch, "", known.run

    @rule(whose=st.integers(0, EXECUTIONS - 1))
    def retry(self, whose: int) -> None:
        known = self._known[self._ids[whose]]
        now = self._run(Acceptance(self._database).retry(self._ids[whose], "ann"))
        assert now is not None
        assert now.done == (known.status in ("FAILED", "CANCELLED"))
        if now.done:
            known.run, known.status = known.run + 1, "RUNNING"
            known.error = known.error_node = known.started_ms = known.finished_ms = known.done = known.failed = None
            known.letters = {key: (attempt, "RETRIED") for key, (attempt, _) in known.letters.items()}

    @rule(whose=st.integers(0, EXECUTIONS - 1))
    def fail_and_retry(self, whose: int) -> None:
        """The hot store does not hear of it at once: it still tells of the run that failed."""
        self.write({whose}, [("a", "F", 1)], "F")
        self.deliver_from_the_cursor()
        self.retry(whose)

    @precondition(lambda self: self._stream)
    @rule()
    def deliver_from_the_cursor(self) -> None:
        after = _number(self._run(self._archive.cursor(self._partition)))
        self._deliver([entry for entry in self._stream if _number(entry[0]) > after])

    @precondition(lambda self: self._stream)
    @rule(data=st.data())
    def deliver_anything(self, data: st.DataObject) -> None:
        self._deliver(data.draw(_pieces(self._stream)))

    @precondition(lambda self: self._stream)
    @rule(data=st.data())
    def deliver_two_at_once(self, data: st.DataObject) -> None:
        """As if one had come after the other, in either order."""
        pieces = [data.draw(_pieces(self._stream)), data.draw(_pieces(self._stream))]

        async def both() -> None:
            await asyncio.gather(*(self._archive.apply(self._partition, 1, each) for each in pieces if each))

        self._run(both())
        orders = [self._after(pieces), self._after(pieces[::-1])]
        found = self._run(self._found())
        assert found in [_shown(known) for known in orders]
        self._known = next(known for known in orders if _shown(known) == found)
        cursor = self._run(self._archive.cursor(self._partition))
        assert cursor in {"0-0", *(entry_id for entry_id, _ in self._stream)}

    def _deliver(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        before = {name: known.last for name, known in self._known.items()}
        self._known = self._after([entries])
        done = self._run(self._archive.apply(self._partition, 1, entries))
        assert done.applied + done.passed_over == len(entries)
        assert (done.applied > 0) == any(known.last != before[name] for name, known in self._known.items())
        for one in done.ended:
            assert one.epoch == self._known[one.execution_id].epoch
        assert self._run(self._found()) == _shown(self._known)
        assert self._run(self._archive.cursor(self._partition)) == entries[-1][0]

    def _after(self, pieces: Sequence[Sequence[Entry]]) -> dict[str, Known]:
        known = copy.deepcopy(self._known)
        for entry_id, event in itertools.chain.from_iterable(pieces):
            known[event.execution_id].apply(entry_id, event)
        return known

    async def _found(self) -> dict[str, Any]:
        """What the tables say, in the shape of `_shown`."""
        found: dict[str, Any] = {each: {"attempts": {}, "letters": {}} for each in self._ids}
        async with self._database.read() as connection:
            for one in await connection.execute(select(executions).where(executions.c.id.in_(self._ids))):
                found[one.id]["execution"] = [getattr(one, name) for name in NAMES]
            of = attempts.c.execution_id.in_(self._ids)
            for one in await connection.execute(select(attempts).where(of)):
                values = {name: getattr(one, name) for name in VALUES}
                known = {name: value for name, value in values.items() if value is not None}
                found[one.execution_id]["attempts"][one.node, one.run, one.attempt] = known
            of = dead_letters.c.execution_id.in_(self._ids)
            for one in await connection.execute(select(dead_letters).where(of)):
                found[one.execution_id]["letters"][one.run, one.node] = (one.attempt, one.status)
        return found


NAMES = (
    "epoch", "run", "last_event", "status", "error", "error_node", "started_ms", "finished_ms", "done", "failed",
)  # fmt: skip
VALUES = ("state", "worker", "queued_ms", "started_ms", "finished_ms", "due_ms", "output", "error", "reason")


def _shown(known: dict[str, Known]) -> dict[str, Any]:
    return {
        name: {
            "execution": [
                one.epoch, one.run, one.last, one.status, one.error, one.error_node, one.started_ms, one.finished_ms,
                one.done, one.failed,
            ],
            "attempts": one.attempts,
            "letters": one.letters,
        }
        for name, one in known.items()
    }  # fmt: skip


def _detail(state: str, number: int) -> str:
    if state in "TF":
        return failure("error", f"event {number}")
    return f"event {number}"


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _pieces(stream: Sequence[Entry]) -> st.SearchStrategy[list[Entry]]:
    """A stretch of it; or anything, in any order, some of it twice."""
    position = st.integers(0, len(stream))
    stretch = st.tuples(position, position).map(lambda ends: list(stream[min(ends) : max(ends)]))
    return stretch | st.lists(st.sampled_from(list(stream)), max_size=12)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:
        yield made


def test_the_tables_say_what_the_model_says(runner: asyncio.Runner, database_url: str) -> None:
    database = Database(database_url)
    try:
        run_state_machine_as_test(lambda: Deliveries(runner, database), settings=SETTINGS)
    finally:
        runner.run(database.aclose())
