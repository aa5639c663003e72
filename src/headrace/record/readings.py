"""Executions as they were written down: one of them, its attempts, its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    exists,
    func,
    literal,
    select,
    tuple_,
)

from headrace.errors import BadValue
from headrace.record.completions import ATTEMPTS, STANDS
from headrace.record.database import Database
from headrace.record.queries import Page, bounded
from headrace.record.tables import attempts, definitions, executions, failed_with

NAMES_TOGETHER = 500
ROWS_TOGETHER = 1000
MOST_ATTEMPTS = 1000


class Stored(msgspec.Struct, frozen=True):
    execution_id: str
    definition_id: str
    definition: str
    workflow: str
    version: int | None
    status: str
    run: int
    epoch: str
    last_event: str
    input_text: str | None
    error: str | None
    error_node: str | None
    created_ms: int
    started_ms: int | None
    finished_ms: int | None


class Attempt(msgspec.Struct, frozen=True):
    run: int
    node: str
    attempt: int
    state: str
    worker: str | None
    queued_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    due_ms: int | None
    error: str | None
    reason: str | None


class ListedAttempt(Attempt, frozen=True):
    """`is_followed`: there is a later one of the same node."""

    is_followed: bool


class Begun(msgspec.Struct, frozen=True):
    """Of an execution's last run: where it comes from, when it began, and its error, if it has ended with one."""

    execution_id: str
    workflow: str
    traceparent: str | None
    error: str | None
    begun_ms: int | None


# Built once: with every start by name one of them is asked for.
_VERSIONS = select(definitions.c.body).where(definitions.c.name == bindparam("n"))
THAT_VERSION = _VERSIONS.where(definitions.c.version == bindparam("v"))
NEWEST_VERSION = _VERSIONS.order_by(definitions.c.version.desc()).limit(1)

ATTEMPT = [attempts.c[name] for name in Attempt.__struct_fields__]
QUEUED_MS = func.coalesce(attempts.c.queued_ms, attempts.c.started_ms, attempts.c.finished_ms, 0)

_later = attempts.alias()
_follows = exists().where(
    _later.c.execution_id == attempts.c.execution_id,
    _later.c.node == attempts.c.node,
    tuple_(_later.c.run, _later.c.attempt) > tuple_(attempts.c.run, attempts.c.attempt),
)
IS_FOLLOWED = _follows.correlate(attempts).label("is_followed")


class Readings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def execution(self, execution_id: str) -> Stored | None:
        table = executions.c
        query = (
            select(
                table.id, table.definition_id, definitions.c.body, table.workflow, table.version, table.status,
                table.run, table.epoch, table.last_event, table.input, failed_with, table.error_node,
                table.created_ms, table.started_ms, table.finished_ms,
            )
            .join(definitions, definitions.c.id == table.definition_id)
            .where(table.id == execution_id)
        )  # fmt: skip
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else Stored(*cast("Any", row))

    async def definition(self, name: str, version: int | None) -> str | None:
        """The newest one, if no version is given."""

        def read(connection: Connection) -> str | None:
            query = THAT_VERSION if version else NEWEST_VERSION
            body: str | None = connection.execute(query, {"n": name, "v": version}).scalar_one_or_none()
            return body

        return await self._database.reading(read)

    async def latest_attempts(self, execution_id: str, run: int) -> dict[str, Attempt]:
        """Of each node the last attempt in this run, or its completion in an earlier one, if that stands."""
        table = attempts.c
        query = (
            select(*ATTEMPT)
            .select_from(ATTEMPTS)
            .where(table.execution_id == execution_id)
            .where((table.run == run) | STANDS)
            .order_by(table.run, table.attempt)
            .execution_options(yield_per=ROWS_TOGETHER)
        )
        latest: dict[str, Attempt] = {}
        async with self._database.read() as connection:
            async for rows in (
                await connection.stream(query)
            ).partitions():  # earlier attempts are not all held at once
                latest.update((row.node, _attempt(row)) for row in rows)
        return latest

    async def attempts_of(self, execution_id: str, node: str) -> list[Attempt]:
        """In the order in which they were made; of very many, the last ones."""
        table = attempts.c
        query = (
            select(*ATTEMPT)
            .where(table.execution_id == execution_id, table.node == node)
            .order_by(table.run.desc(), table.attempt.desc())
            .limit(MOST_ATTEMPTS)
        )
        async with self._database.read() as connection:
            return [_attempt(row) for row in await connection.execute(query)][::-1]

    async def attempts(self, execution_id: str, *, cursor: str = "", limit: int = 50) -> Page[ListedAttempt]:
        """Of all nodes, by the time when they were queued; what never was, by the time of its end.

        The page is made of keys alone: to reach what stands behind an output, SQLite reads through it."""
        most = bounded(limit)
        order = [QUEUED_MS, attempts.c.node, attempts.c.run, attempts.c.attempt]
        keys = select(*order[1:], QUEUED_MS.label("at_ms")).where(attempts.c.execution_id == execution_id)
        if cursor:
            keys = keys.where(tuple_(*order) > _position(cursor))
        page = keys.order_by(*order).limit(most + 1).subquery()
        query = (
            select(*ATTEMPT, IS_FOLLOWED, page.c.at_ms)
            .join(page, and_(*(attempts.c[name] == page.c[name] for name in ("node", "run", "attempt"))))
            .where(attempts.c.execution_id == execution_id)
            .order_by(page.c.at_ms, *order[1:])
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        found = [ListedAttempt(*cast("Any", row[:-1])) for row in rows[:most]]
        if len(rows) <= most:
            return Page(found, None)
        last = rows[most - 1]
        return Page(found, f"{last.at_ms}-{last.run}-{last.attempt}-{last.node}")

    async def outputs(self, execution_id: str, nodes: Sequence[str]) -> dict[str, str]:
        """Of those whose completion stands."""
        found: dict[str, str] = {}
        table = attempts.c
        async with self._database.read() as connection:
            for start in range(0, len(nodes), NAMES_TOGETHER):
                some = table.node.in_(nodes[start : start + NAMES_TOGETHER])
                query = select(table.node, table.output).select_from(ATTEMPTS)
                query = query.where(table.execution_id == execution_id, some, STANDS)
                found.update((row.node, row.output) for row in await connection.execute(query))
        return found

    async def begun(self, ids: Sequence[str]) -> list[Begun]:
        """The first of its nodes was queued then; None where none ever was."""
        table = executions.c
        query = (
            select(table.id, table.workflow, table.traceparent, failed_with, func.min(attempts.c.queued_ms))
            .outerjoin(attempts, (attempts.c.execution_id == table.id) & (attempts.c.run == table.run))
            .where(table.id.in_(ids))
            .group_by(table.id)
        )
        async with self._database.read() as connection:
            return [Begun(*cast("Any", row)) for row in await connection.execute(query)]

    async def ping(self) -> None:
        """Raises RecordUnavailable if SQL does not answer."""
        async with self._database.read() as connection:
            await connection.execute(select(1))


def _position(cursor: str) -> ColumnElement[Any]:
    try:
        at_ms, run, attempt, node = cursor.split("-")
        return tuple_(literal(int(at_ms), BigInteger), node, int(run), int(attempt))
    except ValueError:
        raise BadValue("the cursor is not one of this list") from None


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(*cast("Any", row))
