"""The lists that the API shows: executions, workflows, dead letters, the audit trail; and the counts for metrics.

Newest first, a page at a time. A cursor is the key of the last row of a page, so page n costs what page 1 costs, and no
list reads more than a bounded number of rows. Payloads (inputs, outputs, definitions) are not in lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, ColumnElement, Select, Table, and_, func, or_, select

from headrace.errors import BadValue
from headrace.record.database import Database
from headrace.record.ids import first_id
from headrace.record.tables import audit, dead_letters, definitions, executions, failed_with, partitions, set_aside

MOST_ITEMS = 1000
MOST_SEARCHED = 50_000  # rows that one page of a search looks at
ID_AHEAD_MS = 60_000  # an id is made before its row: at most so long


@dataclass(frozen=True, slots=True)
class ExecutionItem:
    id: str
    definition_id: str
    workflow: str
    version: int
    status: str
    run: int
    error: str | None
    error_node: str | None
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    nodes: int | None
    done: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a workflow; its text is read by its id, or by name and version."""

    id: str
    name: str
    version: int
    content_hash: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A node that failed for good. OPEN, RETRIED or DROPPED."""

    id: str
    execution_id: str
    run: int
    node: str
    attempt: int
    workflow: str
    cause: str
    error: str
    status: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class AuditLine:
    id: str
    at_ms: int
    actor: str
    action: str
    execution_id: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which executions. `since` is included, `until` is not; `text` is part of the id, the workflow or the error."""

    status: str | None = None
    workflow: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    running: int
    dead_letters: int
    set_aside: int


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """With a `next_cursor` there may be more; a page of a search may then be short, or empty."""

    items: list[Item]
    next_cursor: str | None


class Queries:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def executions(
        self, wanted: Filter | None = None, *, cursor: str = "", limit: int = 50
    ) -> Page[ExecutionItem]:
        wanted = wanted or Filter()
        table = executions.c
        query = select(*EXECUTION).where(*_conditions(wanted)).order_by(table.id.desc())
        if cursor:
            query = query.where(table.id < cursor)
        if not wanted.text:
            return await self._page(query, ExecutionItem, limit)
        return await self._search(query, wanted.text, limit)

    async def workflows(self, *, cursor: str = "", limit: int = 50) -> Page[Version]:
        """Each with its newest version, by name."""
        table = definitions.c
        names = select(table.name, func.max(table.version).label("newest")).where(table.name > cursor)
        newest = names.group_by(table.name).order_by(table.name).limit(bounded(limit) + 1).subquery()
        query = (
            select(*_columns(definitions, Version))
            .join(newest, and_(table.name == newest.c.name, table.version == newest.c.newest))
            .order_by(newest.c.name)
        )
        return await self._page(query, Version, limit, key="name")

    async def versions(self, name: str, *, cursor: str = "", limit: int = 50) -> Page[Version]:
        """Of one workflow, newest first; empty if there is no such workflow."""
        table = definitions.c
        query = select(*_columns(definitions, Version)).where(table.name == name).order_by(table.version.desc())
        if cursor:
            if not cursor.isdecimal():
                raise BadValue("the cursor is not one of this list")
            query = query.where(table.version < int(cursor))
        return await self._page(query, Version, limit, key="version")

    async def dead_letters(
        self, *, status: str | None = "OPEN", workflow: str | None = None, cursor: str = "", limit: int = 50
    ) -> Page[DeadLetter]:
        table = dead_letters.c
        query = select(*_columns(dead_letters, DeadLetter)).order_by(table.id.desc())
        if status is not None:
            query = query.where(table.status == status)
        if workflow is not None:
            query = query.where(table.workflow == workflow)
        if cursor:
            query = query.where(table.id < cursor)
        return await self._page(query, DeadLetter, limit)

    async def dead_letter(self, letter_id: str) -> DeadLetter | None:
        query = select(*_columns(dead_letters, DeadLetter)).where(dead_letters.c.id == letter_id)
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else DeadLetter(*row)

    async def audit(self, *, execution_id: str | None = None, cursor: str = "", limit: int = 50) -> Page[AuditLine]:
        query = select(*_columns(audit, AuditLine)).order_by(audit.c.id.desc())
        if execution_id is not None:
            query = query.where(audit.c.execution_id == execution_id)
        if cursor:
            query = query.where(audit.c.id < cursor)
        return await self._page(query, AuditLine, limit)

    async def counts(self) -> Counts:
        async with self._database.read() as connection:
            running = await connection.scalar(_count(executions, executions.c.status == "RUNNING"))
            letters = await connection.scalar(_count(dead_letters, dead_letters.c.status == "OPEN"))
            aside = await connection.scalar(_count(set_aside))
        return Counts(running or 0, letters or 0, aside or 0)

    async def cursors(self) -> dict[int, str]:
        """Partition -> how far its events are archived."""
        async with self._database.read() as connection:
            found = await connection.execute(select(partitions.c.number, partitions.c.cursor))
            return {row.number: row.cursor for row in found}

    async def _page(self, query: Select[Any], item: type[Item], limit: int, *, key: str = "id") -> Page[Item]:
        most = bounded(limit)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.limit(most + 1))).all()
        last = str(getattr(rows[most - 1], key)) if len(rows) > most else None
        return Page([item(*row) for row in rows[:most]], last)

    async def _search(self, query: Select[Any], text: str, limit: int) -> Page[ExecutionItem]:
        """Among the next so many rows, since no index helps: the cursor then goes on behind all that were looked at."""
        if "\0" in text:  # SQLite would read up to it, PostgreSQL refuse it, and no text has it
            return Page([], None)
        ids = query.with_only_columns(executions.c.id).limit(MOST_SEARCHED).subquery()
        async with self._database.read() as connection:
            count, last = (await connection.execute(select(func.count(), func.min(ids.c.id)))).one()
        if not count:
            return Page([], None)
        fits = or_(*(executions.c[name].icontains(text, autoescape=True) for name in ("id", "workflow", "error")))
        page = await self._page(query.where(executions.c.id >= last, fits), ExecutionItem, limit)
        if page.next_cursor is None and count == MOST_SEARCHED:
            return Page(page.items, last)
        return page


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    table, conditions = executions.c, []
    if wanted.status is not None:
        conditions.append(table.status == wanted.status)
    if wanted.workflow is not None:
        conditions.append(table.workflow == wanted.workflow)
    if wanted.since_ms is not None:
        conditions += [table.id >= first_id(wanted.since_ms - ID_AHEAD_MS), table.created_ms >= wanted.since_ms]
    if wanted.until_ms is not None:
        conditions += [table.id < first_id(wanted.until_ms + ID_AHEAD_MS), table.created_ms < wanted.until_ms]
    return conditions


def _columns(table: Table, item: type[Any]) -> Sequence[Column[Any]]:
    return [table.c[field.name] for field in fields(item)]


EXECUTION = [failed_with if each.name == "error" else each for each in _columns(executions, ExecutionItem)]


def _count(table: Table, *conditions: ColumnElement[bool]) -> Select[Any]:
    return select(func.count()).select_from(table).where(*conditions)


def bounded(limit: int) -> int:
    return min(max(limit, 1), MOST_ITEMS)
