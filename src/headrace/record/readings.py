"""Executions as they were written down: one of them, its attempts, its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from sqlalchemy import Row, func, select

from headrace.record.database import Database
from headrace.record.tables import attempts, definitions, executions

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


class Begun(msgspec.Struct, frozen=True):
    """Of an execution's last run: where it comes from, when it began, and its error, if it has ended with one."""

    execution_id: str
    workflow: str
    traceparent: str | None
    error: str | None
    begun_ms: int | None


ATTEMPT = [attempts.c[name] for name in Attempt.__struct_fields__]


class Readings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def execution(self, execution_id: str) -> Stored | None:
        table = executions.c
        query = (
            select(
                table.id, table.definition_id, definitions.c.body, table.workflow, table.version, table.status,
                table.run, table.epoch, table.last_event, table.input, table.error, table.error_node,
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
        table = definitions.c
        query = select(table.body).where(table.name == name)
        query = query.where(table.version == version) if version else query.order_by(table.version.desc()).limit(1)
        async with self._database.read() as connection:
            body: str | None = (await connection.execute(query)).scalar_one_or_none()
            return body

    async def latest_attempts(self, execution_id: str, run: int) -> dict[str, Attempt]:
        """Of each node the last attempt in this run, or its completion in an earlier one."""
        table = attempts.c
        query = (
            select(*ATTEMPT)
            .where(table.execution_id == execution_id)
            .where((table.run == run) | (table.state == "COMPLETED"))
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

    async def outputs(self, execution_id: str, nodes: Sequence[str]) -> dict[str, str]:
        """Of those that are complete."""
        found: dict[str, str] = {}
        table = attempts.c
        async with self._database.read() as connection:
            for start in range(0, len(nodes), NAMES_TOGETHER):
                query = select(table.node, table.output).where(
                    table.execution_id == execution_id,
                    table.state == "COMPLETED",
                    table.node.in_(nodes[start : start + NAMES_TOGETHER]),
                )
                found.update((row.node, row.output) for row in await connection.execute(query))
        return found

    async def begun(self, ids: Sequence[str]) -> list[Begun]:
        """The first of its nodes was queued then; None where none ever was."""
        table = executions.c
        query = (
            select(table.id, table.workflow, table.traceparent, table.error, func.min(attempts.c.queued_ms))
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


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(*cast("Any", row))
