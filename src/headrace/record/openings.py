"""What the hot store is opened from: which executions should be running, and what of them is complete.

The epoch is the fence: whoever wants to open an execution reserves its place in the hot store, then sets the epoch
here, if nobody else did meanwhile, and only then opens.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Update, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.model.state import NodeState
from headrace.record.bulk import Bulk
from headrace.record.completions import ATTEMPTS, STANDS
from headrace.record.database import Database
from headrace.record.tables import attempts, definitions, executions

IDS_TOGETHER = 500
ROWS_TOGETHER = 200
LOST = "worker_lost"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An execution that SQL says is running, how far its events were applied, and when its run began, if it did."""

    execution_id: str
    run: int
    epoch: str
    last_event: str
    is_cancelled: bool
    definition_id: str
    created_ms: int
    started_ms: int
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the record is with an execution, whether it runs or has ended."""

    epoch: str
    last_event: str


@dataclass(slots=True)
class NodeHistory:
    """What SQL knows of a node when its execution is opened; `output` is there if it is complete."""

    state: str = NodeState.PENDING.name
    attempt: int = 0
    retries: int = 0
    lost: int = 0
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    worker: str = ""
    output: str | None = None
    error: str = ""
    owner: str = ""


class Openings:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._take = Bulk(TAKE)

    async def running(self, partition: int, count: int, after: str = "", most: int = 1000) -> list[Wanted]:
        """By id, from behind `after` on. Those that were accepted with more partitions belong to somebody too."""
        table = executions.c
        query = (
            _wanted()
            .where(table.status == "RUNNING", table.partition % count == partition, table.id > after)
            .order_by(table.id)
            .limit(most)
        )
        async with self._database.read() as connection:
            return [_as_wanted(row) for row in await connection.execute(query)]

    async def wanted(self, ids: Sequence[str]) -> list[Wanted]:
        """Of these, those that should be running."""

        def read(connection: Connection) -> list[Wanted]:
            found: list[Wanted] = []
            for some in _slices(ids):
                found += [_as_wanted(row) for row in connection.execute(WANTED, {"ids": some})]
            return found

        return await self._database.reading(read)

    async def standing(self, ids: Sequence[str]) -> dict[str, Standing]:
        found: dict[str, Standing] = {}
        table = executions.c
        async with self._database.read() as connection:
            for some in _slices(ids):
                query = select(table.id, table.epoch, table.last_event).where(table.id.in_(some))
                for row in await connection.execute(query):
                    found[row.id] = Standing(row.epoch, row.last_event)
        return found

    async def definitions(self, ids: Sequence[str]) -> dict[str, str]:
        """Definition id -> its canonical text."""
        found: dict[str, str] = {}
        async with self._database.read() as connection:
            for some in _slices(sorted(set(ids))):
                query = select(definitions.c.id, definitions.c.body).where(definitions.c.id.in_(some))
                found.update((row.id, row.body) for row in await connection.execute(query))
        return found

    async def take(self, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
        """Sets the epochs of those that are still as they were; gives their inputs, by id. Their events begin anew.

        Of a next run it is counted now what is done already: from now on nothing of an earlier one is archived."""
        return await self._database.writing(lambda connection: _take(connection, self._take, changes))

    async def histories(self, wanted: Mapping[str, int]) -> AsyncGenerator[tuple[str, dict[str, NodeHistory]], None]:
        """Of each execution what is known of its nodes, one after the other, so that their outputs need not all be held
        at once; `wanted` says the run of each. Completions of earlier runs stand, unless their nodes were restarted;
        failed attempts of this run count."""
        async with self._database.read() as connection:
            for some in _slices(list(wanted)):
                unknown = set(some)
                async with aclosing(_by_execution(connection, some)) as known:
                    async for execution_id, rows in known:
                        unknown.remove(execution_id)
                        yield execution_id, _history(rows, wanted[execution_id])
                for execution_id in unknown:
                    yield execution_id, {}


def _take(connection: Connection, take: Bulk, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
    taken: dict[str, str] = {}
    for some in _slices(changes):
        before = {one.execution_id: (one.run, one.epoch) for one, _ in some}
        found = connection.execute(TO_TAKE, {"ids": list(before)})
        ours = [row for row in found if (row.run, row.epoch) == before[row.id]]
        unchanged = {row.id: row.input for row in ours}
        rows = [{"x": one.execution_id, "e": epoch, "l": ""} for one, epoch in some if one.execution_id in unchanged]
        if rows:
            take.execute(connection, rows)
        if uncounted := [row.id for row in ours if row.done is None]:
            connection.execute(_counted().where(executions.c.id.in_(uncounted)))
        taken |= unchanged
    return taken


async def _by_execution(
    connection: AsyncConnection, ids: Sequence[str]
) -> AsyncGenerator[tuple[str, list[Row[Any]]], None]:
    """The attempts of each execution that has any, in their order. What is behind them is not read yet."""
    table = attempts.c
    query = (
        select(attempts, STANDS.label("stands"))
        .select_from(ATTEMPTS)
        .where(table.execution_id.in_(ids))
        .order_by(table.execution_id, table.node, table.run, table.attempt)
        .execution_options(yield_per=ROWS_TOGETHER)
    )
    rows: list[Row[Any]] = []
    async for some in (await connection.stream(query)).partitions():
        for execution_id, more in itertools.groupby(some, lambda row: row.execution_id):
            if rows and rows[0].execution_id != execution_id:
                yield rows[0].execution_id, rows
                rows = []
            rows += more
    if rows:
        yield rows[0].execution_id, rows


def _history(rows: Iterable[Row[Any]], run: int) -> dict[str, NodeHistory]:
    nodes: dict[str, NodeHistory] = {}
    for row in rows:
        if row.run == run or row.stands:
            _add(nodes.setdefault(row.node, NodeHistory()), row)
    return nodes


def _add(node: NodeHistory, row: Row[Any]) -> None:
    """The next attempt of a node. One that was queued or running when the store was lost never ended: another will."""
    state, error = row.state, row.error or ""
    if node.output is not None:
        return
    node.attempt = row.attempt
    node.state = state if state in ("COMPLETED", "FAILED", "SKIPPED") else NodeState.PENDING.name
    node.error, node.owner = error, row.reason or ""
    node.output = row.output if state == "COMPLETED" else None
    node.worker = row.worker or ""
    node.queued_ms = row.queued_ms or 0
    node.started_ms = row.started_ms or 0
    node.finished_ms = row.finished_ms or 0
    if state == "RETRYING":
        lost = _code(error) == LOST
        node.lost, node.retries = node.lost + lost, node.retries + (not lost)


def _code(failure: str) -> str:
    try:
        return str(msgspec.json.decode(failure)["code"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""


def _counted() -> Update:
    table = attempts.c
    is_now = table.run == executions.c.run
    count = select(func.count()).select_from(ATTEMPTS).where(table.execution_id == executions.c.id)
    return update(executions).values(
        done=count.where(STANDS | ((table.state == "SKIPPED") & is_now)).correlate(executions).scalar_subquery(),
        failed=count.where(is_now, table.state == "FAILED").correlate(executions).scalar_subquery(),
    )


def _wanted() -> Select[Any]:
    table = executions.c
    return select(
        table.id, table.run, table.epoch, table.last_event, table.cancelled_run, table.definition_id,
        table.created_ms, table.started_ms, table.traceparent,
    )  # fmt: skip


# Built once: every batch that is opened needs them.
WANTED = _wanted().where(executions.c.status == "RUNNING", executions.c.id.in_(bindparam("ids", expanding=True)))
TO_TAKE = (
    select(executions.c.id, executions.c.run, executions.c.epoch, executions.c.input, executions.c.done)
    .where(executions.c.status == "RUNNING", executions.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(executions.c.id)  # always the same order of locks
    .with_for_update()
)
TAKE = (
    update(executions).where(executions.c.id == bindparam("x")).values(epoch=bindparam("e"), last_event=bindparam("l"))
)


def _as_wanted(row: Row[Any]) -> Wanted:
    return Wanted(
        row.id,
        row.run,
        row.epoch,
        row.last_event,
        row.cancelled_run == row.run,
        row.definition_id,
        row.created_ms,
        row.started_ms or 0,
        row.traceparent,
    )


def _slices(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + IDS_TOGETHER] for start in range(0, len(items), IDS_TOGETHER)]
