"""What is deleted, and when: executions some days after their end, idempotency keys after a day.

A call deletes one bounded batch, in one transaction, and says how much that was: call again until it is nothing. An
execution goes with everything that belongs to it, or not at all: a retry never finds half of one.
"""

from __future__ import annotations

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.ids import first_id
from headrace.record.tables import attempts, audit, executions, idempotency_keys, set_aside

KEYS_KEPT_MS = 24 * 3600 * 1000
EXECUTIONS_TOGETHER = 200
ATTEMPTS_TOGETHER = 10_000
KEYS_TOGETHER = 1000


class Retention:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_ended(self, before_ms: int) -> int:
        """Executions that ended before this time, though none whose idempotency key may still be in use."""
        before_ms = min(before_ms, now_ms() - KEYS_KEPT_MS)
        async with self._database.write() as connection:
            for status in ("COMPLETED", "FAILED", "CANCELLED"):
                ids = await _ended(connection, status, before_ms)
                if ids:
                    await connection.execute(delete(audit).where(audit.c.execution_id.in_(ids)))
                    await connection.execute(delete(executions).where(executions.c.id.in_(ids)))  # attempts and letters
                    return len(ids)
        return 0

    async def delete_keys(self) -> int:
        """Idempotency keys that are a day old. Call this before `delete_ended`."""
        table = idempotency_keys.c
        old = (
            select(table.owner, table.key)
            .where(table.created_ms < now_ms() - KEYS_KEPT_MS)
            .order_by(table.created_ms)
            .limit(KEYS_TOGETHER)
        )
        async with self._database.write() as connection:
            done = await connection.execute(delete(idempotency_keys).where(tuple_(table.owner, table.key).in_(old)))
            return done.rowcount

    async def delete_set_aside(self, before_ms: int) -> int:
        async with self._database.write() as connection:
            done = await connection.execute(delete(set_aside).where(set_aside.c.id < first_id(before_ms)))
            return done.rowcount


async def _ended(connection: AsyncConnection, status: str, before_ms: int) -> list[str]:
    """The oldest of them, as many as have a bounded number of attempts; at least one. What ended before a time was made
    before it, so the index by status and id leads there. Those that somebody else is changing now are passed over."""
    table = executions.c
    query = (
        select(table.id)
        .where(table.status == status, table.id < first_id(before_ms), table.finished_ms < before_ms)
        .order_by(table.id)
        .limit(EXECUTIONS_TOGETHER)
        .with_for_update(skip_locked=True)
    )
    ids = list((await connection.execute(query)).scalars())
    of = attempts.c.execution_id
    count = func.count().label("attempts")
    counted = await connection.execute(select(of, count).where(of.in_(ids)).group_by(of))
    sizes = {row.execution_id: row.attempts for row in counted}
    total = 0
    for position, execution_id in enumerate(ids):
        total += sizes.get(execution_id, 0)
        if total > ATTEMPTS_TOGETHER and position:
            return ids[:position]
    return ids
