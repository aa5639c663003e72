"""What operators keep in the record: the handlers that workers have offered, and what became of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, insert, select, update

from headrace.record.acceptance import audit_line
from headrace.record.database import Database
from headrace.record.tables import audit, dead_letters, handlers


@dataclass(frozen=True, slots=True)
class Handler:
    name: str
    config_schema: str | None
    seen_ms: int


class Handlers:
    """Once offered by a worker, a handler stays known, so that definitions can be validated while no worker runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remember(self, schemas: Mapping[str, str | None], seen_ms: int) -> None:
        """Handler -> the JSON Schema of its config. The one that was seen last counts."""
        if not schemas:
            return
        rows = [{"name": name, "config_schema": schemas[name], "seen_ms": seen_ms} for name in sorted(schemas)]
        statement = self._database.insert(handlers)
        newer = statement.excluded
        upsert = statement.on_conflict_do_update(
            index_elements=["name"],
            set_={"config_schema": newer.config_schema, "seen_ms": newer.seen_ms},
            where=newer.seen_ms >= handlers.c.seen_ms,
        )
        async with self._database.write() as connection:
            await connection.execute(upsert, rows)

    async def all(self) -> list[Handler]:
        async with self._database.read() as connection:
            return [Handler(*row) for row in await connection.execute(select(handlers).order_by(handlers.c.name))]


class DeadLetters:
    """An OPEN letter is settled once: RETRIED, which also any retry of its execution does, or DROPPED."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle(self, letter_id: str, status: Literal["RETRIED", "DROPPED"], actor: str) -> bool:
        """False: there is no such letter, or it was settled before."""
        return await self._settle(dead_letters.c.id == letter_id, status, actor) == 1

    async def settle_all(self, execution_id: str, status: Literal["RETRIED", "DROPPED"], actor: str) -> int:
        """Those of one execution; how many were open."""
        return await self._settle(dead_letters.c.execution_id == execution_id, status, actor)

    async def _settle(self, which: ColumnElement[bool], status: str, actor: str) -> int:
        table = dead_letters.c
        change = update(dead_letters).where(which, table.status == "OPEN").values(status=status)
        action = {"RETRIED": "retry_letter", "DROPPED": "drop_letter"}[status]
        async with self._database.write() as connection:
            settled = (await connection.execute(change.returning(table.id, table.execution_id))).all()
            if settled:
                lines = [audit_line(actor, action, row.execution_id, row.id) for row in settled]
                await connection.execute(insert(audit), lines)
        return len(settled)
