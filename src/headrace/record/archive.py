"""The outbox of the hot store, written down: events become rows, each exactly once and in order.

An event is applied only if its epoch is the one that SQL holds and its predecessor is the last one applied; all others
are old, or from a store that went back in time, and are passed over. The rows, the executions' new last events and the
cursor are one transaction: whoever delivers the events, and however often, the record is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    String,
    any_,
    bindparam,
    exc,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.dml import UpdateBase
from uuid_utils import uuid7

from headrace.errors import BadValue
from headrace.model.messages import Change, Event, Failure
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState, NodeState
from headrace.record.bulk import Bulk
from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.tables import attempts, dead_letters, executions, partitions, set_aside

KEY = ("execution_id", "node", "run", "attempt")

Entry = tuple[str, Event]
Row = dict[str, Any]  # by column: what is known of an attempt


@dataclass(slots=True)
class _Held:
    """An execution as SQL has it, and as this batch leaves it."""

    run: int
    epoch: str
    last: str
    workflow: str
    status: str
    done: int | None
    failed: int | None
    has_error: bool
    changed: bool = False
    news: dict[str, Any] = field(default_factory=dict)

    def count(self, done: int, failed: int) -> None:
        if self.done is not None and self.failed is not None:  # what is unknown stays so until it is opened again
            self.done += done
            self.failed += failed


class Ended(NamedTuple):
    """An execution whose end is in the record now: the hot store may forget it."""

    execution_id: str
    epoch: str
    last_event: str


@dataclass(slots=True)
class Applied:
    applied: int = 0
    passed_over: int = 0
    set_aside: int = 0
    ended: list[Ended] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # those that were applied

    def __iadd__(self, other: Applied) -> Applied:
        self.applied += other.applied
        self.passed_over += other.passed_over
        self.set_aside += other.set_aside
        self.ended += other.ended
        self.events += other.events
        return self


class Archive:
    def __init__(self, database: Database, *, letters: str = "all") -> None:
        """`letters`: which final failures become dead letters, as DLQ_POLICY says."""
        self._database = database
        self._letters = letters
        self._among = HELD.where(_is_among(executions.c.id, is_sqlite=database.is_sqlite))
        self._attempts: dict[tuple[str, ...], Bulk] = {}
        self._executions: dict[tuple[str, ...], Bulk] = {}
        cursors = database.insert(partitions)
        newer = {"cursor": cursors.excluded.cursor}
        self._cursors = Bulk(cursors.on_conflict_do_update(index_elements=["number"], set_=newer))

    async def cursor(self, partition: int) -> str:
        found = await self._database.reading(lambda from_: from_.execute(CURSOR, {"p": partition}).scalar_one_or_none())
        return str(found or "0-0")

    async def apply(self, partition: int, count: int, entries: Sequence[Entry]) -> Applied:
        """A batch; if an event in it is refused, by halves, and what is refused alone is set aside."""
        done = Applied()
        await self._apply_halves(partition, entries, done, (count, entries[-1][0]))
        return done

    async def _apply_halves(
        self, partition: int, entries: Sequence[Entry], done: Applied, cursor: tuple[int, str] | None
    ) -> None:
        """Only the last piece moves the cursor: an id may have events on both sides of a cut."""
        try:
            done += await self._apply(partition, entries, cursor)
        except (BadValue, exc.IntegrityError, ValueError) as error:
            if len(entries) == 1:
                done += await self._apply(partition, entries, cursor, refused=str(error))
                return
            half = len(entries) // 2
            await self._apply_halves(partition, entries[:half], done, None)
            await self._apply_halves(partition, entries[half:], done, cursor)

    async def _apply(
        self,
        partition: int,
        entries: Sequence[Entry],
        cursor: tuple[int, str] | None,
        *,
        refused: str | None = None,
    ) -> Applied:
        """`refused`: the one entry's rows cannot be written. It is set aside, and its execution goes on behind it."""
        return await self._database.writing(lambda to: self._write_down(to, partition, entries, cursor, refused))

    def _write_down(
        self,
        connection: Connection,
        partition: int,
        entries: Sequence[Entry],
        cursor: tuple[int, str] | None,
        refused: str | None,
    ) -> Applied:
        done = Applied()
        rows: dict[tuple[str, str, int, int], Row] = {}
        letters: list[dict[str, Any]] = []
        if not self._database.is_sqlite:
            connection.exec_driver_sql(BY_KEY)
        held = self._held(connection, {event.execution_id for _, event in entries})
        for entry_id, event in entries:
            x = held.get(event.execution_id)
            if x is None or event.epoch != x.epoch or event.previous != x.last:
                done.passed_over += 1
                continue
            done.applied += 1
            done.events.append(event)
            if refused is None:
                for letter in _collect(rows, event, x):
                    if self._is_kept(letter):
                        letters.append(letter)
                _move(x, entry_id, event)
            else:
                done.set_aside += 1
                _put_aside(connection, partition, entry_id, event, refused)
                _move(x, entry_id, _bare(event))
            if x.status in TERMINAL_NAMES:
                done.ended.append(Ended(event.execution_id, x.epoch, entry_id))
        self._write(connection, held, rows.values(), letters)
        if cursor is not None:
            self._advance_cursor(connection, partition, *cursor)
        return done

    def _is_kept(self, letter: dict[str, Any]) -> bool:
        return self._letters == "all" or not _is_retryable(letter["error"])

    def _held(self, connection: Connection, ids: Iterable[str]) -> dict[str, _Held]:
        wanted = list(ids)
        among = msgspec.json.encode(wanted).decode() if self._database.is_sqlite else wanted
        return {name: _Held(*values) for name, *values in connection.execute(self._among, {"ids": among}).all()}

    def _write(
        self,
        connection: Connection,
        held: Mapping[str, _Held],
        rows: Iterable[Row],
        letters: Sequence[dict[str, Any]],
    ) -> None:
        """Rows of the same columns are written together: a column without a value costs more than one that has one."""
        for columns, alike in _by_columns(rows).items():
            if columns not in self._attempts:
                self._attempts[columns] = Bulk(_upsert(self._database.insert(attempts), columns), columns)
            self._attempts[columns].execute(connection, alike)
        if letters:
            connection.execute(self._database.insert(dead_letters).on_conflict_do_nothing(), letters)
        changed = [
            {"x": name, "last_event": x.last, "status": x.status, "done": x.done, "failed": x.failed, **x.news}
            for name, x in held.items()
            if x.changed
        ]
        for columns, alike in _by_columns(changed).items():
            if columns not in self._executions:
                self._executions[columns] = Bulk(_update(columns[1:]))
            self._executions[columns].execute(connection, alike)

    def _advance_cursor(self, connection: Connection, partition: int, count: int, cursor: str) -> None:
        self._cursors.execute(connection, [{"number": partition, "count": count, "cursor": cursor}])


def _is_among(column: Column[str], *, is_sqlite: bool) -> ColumnElement[bool]:
    """`ids` is one parameter, however many they are: the statement stays the same. SQLite takes it as JSON."""
    if is_sqlite:
        each = func.json_each(bindparam("ids", type_=String())).table_valued("value")
        return column.in_(select(each.c.value))
    return column == any_(bindparam("ids", type_=ARRAY(String())))


def _by_columns(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    found = defaultdict[tuple[str, ...], list[Row]](list)
    for row in rows:
        found[tuple(row)].append(row)
    return found


def _upsert(statement: Any, columns: Sequence[str]) -> UpdateBase:
    """An attempt as far as it is known now: what is new replaces what is known."""
    newer = {name: statement.excluded[name] for name in columns if name not in KEY}
    upsert: UpdateBase = statement.on_conflict_do_update(index_elements=KEY, set_=newer)
    return upsert


def _update(columns: Sequence[str]) -> UpdateBase:
    """What is new replaces what is known of an execution, except the start: one that is opened again after a loss began
    when it began. The next run has a start of its own."""
    newer: dict[str, Any] = {name: bindparam(name, type_=executions.c[name].type) for name in columns}
    if "started_ms" in newer:
        newer["started_ms"] = func.coalesce(executions.c.started_ms, newer["started_ms"])
    return update(executions).where(executions.c.id == bindparam("x")).values(newer)


TERMINAL_NAMES = frozenset(state.name for state in TERMINAL_EXECUTIONS)
KNOWN_STATES = frozenset(ExecutionState)
UNREADABLE = msgspec.json.encode(Failure("error", "The error could not be stored: see the events set aside.")).decode()
EXECUTION_NAMES = {state.value: state.name for state in ExecutionState}
RUNNING = ExecutionState.RUNNING.value
DONE = frozenset((NodeState.COMPLETED.value, NodeState.SKIPPED.value))
FAILED, RETRYING = NodeState.FAILED.value, NodeState.RETRYING.value
COLUMNS = {
    NodeState.QUEUED: ("queued_ms", ""),
    NodeState.RUNNING: ("started_ms", "worker"),
    NodeState.COMPLETED: ("finished_ms", "output"),
    NodeState.RETRYING: ("finished_ms", "error"),
    NodeState.FAILED: ("finished_ms", "error"),
    NodeState.SKIPPED: ("finished_ms", "reason"),
}
# By the state as events have it: its name, and where its time and its detail belong.
WRITTEN = {state.value: (state.name, *COLUMNS.get(state, ("", ""))) for state in NodeState}


# To PostgreSQL: all rows of this transaction are found by their keys. A plan that reads whole tables, made while they
# were small, would be kept while they grow.
BY_KEY = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("seqscan", "hashjoin", "mergejoin")
)

# Statements that every batch needs are built once: to build one takes as long as to execute it.
CURSOR = select(partitions.c.cursor).where(partitions.c.number == bindparam("p"))
HELD = (
    select(
        executions.c.id, executions.c.run, executions.c.epoch, executions.c.last_event, executions.c.workflow,
        executions.c.status, executions.c.done, executions.c.failed, executions.c.error.is_not(None).label("has_error"),
    )
    .order_by(executions.c.id)  # always the same order of locks
    .with_for_update()
)  # fmt: skip


def _move(x: _Held, entry_id: str, event: Event) -> None:
    """The execution behind this event. What an earlier run still says does not end the later one."""
    x.last, x.changed = entry_id, True
    if event.run != x.run:
        return
    if event.error:
        _fail(x, event)
    if not event.status:
        return
    if event.status not in EXECUTION_NAMES:
        raise ValueError(f"{event.status!r} is not a state of an execution")
    x.status = EXECUTION_NAMES[event.status]
    if event.status == RUNNING:
        x.news.setdefault("started_ms", event.at_ms)
    else:
        x.news["finished_ms"] = event.at_ms


def _fail(x: _Held, event: Event) -> None:
    """Of several nodes that fail, the first one counts; an error without a node is the reason of the end."""
    node = next((change.node for change in event.changes if change.state == FAILED), None)
    if node is None or not x.has_error:
        x.news["error"], x.news["error_node"], x.has_error = event.error, node, True


def _bare(event: Event) -> Event:
    """What can surely be written of an event that was refused: the execution's new state."""
    return msgspec.structs.replace(
        event,
        changes=(),
        status=event.status if event.status in KNOWN_STATES else "",
        error=UNREADABLE if event.error else "",
    )


def _collect(rows: dict[tuple[str, str, int, int], Row], event: Event, x: _Held) -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = []
    execution_id, run, at_ms = event.execution_id, event.run, event.at_ms
    done = 0
    for change in event.changes:
        state = change.state
        if state not in WRITTEN:
            raise ValueError(f"{state!r} is not a state of a node")
        node, attempt = change.node, change.attempt
        row = rows.get((execution_id, node, run, attempt))
        if row is None:
            row = {"execution_id": execution_id, "node": node, "run": run, "attempt": attempt}
            rows[execution_id, node, run, attempt] = row
        row["state"], when, detail = WRITTEN[state]
        if when:
            row[when] = at_ms
        if detail:
            row[detail] = change.detail
        if state in DONE:
            done += 1
        elif state == RETRYING:
            row["due_ms"] = change.due_ms
        elif state == FAILED:
            letters.append(_letter(event, change, x))
    if run == x.run:
        x.count(done, len(letters))
    return letters


def _letter(event: Event, change: Change, x: _Held) -> dict[str, Any]:
    """Of an earlier run it is settled already: the later one tries the node again."""
    return {
        "id": str(uuid7()),
        "execution_id": event.execution_id,
        "run": event.run,
        "node": change.node,
        "attempt": change.attempt,
        "workflow": x.workflow,
        "cause": _cause(change.detail),
        "error": change.detail,
        "status": "OPEN" if event.run == x.run else "RETRIED",
        "created_ms": event.at_ms,
    }


def _is_retryable(failure: str) -> bool:
    """Whether it might have succeeded later: its retries were used up."""
    try:
        return bool(msgspec.json.decode(failure).get("retryable", False))
    except (msgspec.MsgspecError, AttributeError):
        return False


def _cause(failure: str) -> str:
    try:
        return str(msgspec.json.decode(failure)["code"])[:32]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return "error"


def _put_aside(connection: Connection, partition: int, entry_id: str, event: Event, reason: str) -> None:
    row = {
        "id": str(uuid7()),
        "partition": partition,
        "entry": entry_id,
        "reason": reason[:1000],
        "body": ascii(event)[:100_000],
        "at_ms": now_ms(),
    }
    connection.execute(insert(set_aside), [row])
