"""What handlers logged, kept with their attempts. It is for people to read; nothing depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import select

from headrace.record.database import Database
from headrace.record.tables import executions, logs


class Logged(msgspec.Struct, frozen=True):
    execution_id: str
    run: int
    node: str
    attempt: int
    lines: str  # a JSON list


class Logs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, logged: Sequence[Logged]) -> None:
        """Those of executions that are here; told twice, the last one counts."""
        rows = {(each.execution_id, each.run, each.node, each.attempt): msgspec.structs.asdict(each) for each in logged}
        async with self._database.write() as connection:
            ids = {each.execution_id for each in logged}
            query = select(executions.c.id).where(executions.c.id.in_(ids)).order_by(executions.c.id)
            locked = query.with_for_update(read=True, key_share=True)  # retention must not delete one meanwhile
            known = set((await connection.execute(locked)).scalars())
            here = [row for key, row in rows.items() if key[0] in known]
            if here:
                statement = self._database.insert(logs)
                upsert = statement.on_conflict_do_update(
                    index_elements=["execution_id", "run", "node", "attempt"], set_={"lines": statement.excluded.lines}
                )
                await connection.execute(upsert, here)

    async def of_node(self, execution_id: str, node: str) -> dict[tuple[int, int], list[Any]]:
        """(run, attempt) -> lines"""
        query = select(logs.c.run, logs.c.attempt, logs.c.lines).where(
            logs.c.execution_id == execution_id, logs.c.node == node
        )
        async with self._database.read() as connection:
            return {(row.run, row.attempt): msgspec.json.decode(row.lines) for row in await connection.execute(query)}
