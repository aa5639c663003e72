"""Over how many partitions the executions are spread. The first role on an empty record says it; all others must agree,
because the partition is part of where an execution lives in the hot store."""

from __future__ import annotations

from sqlalchemy import select

from headrace.errors import RecordUnsupported
from headrace.record.database import Database
from headrace.record.tables import partitions


async def agree(database: Database, count: int) -> None:
    """RecordUnsupported: the record was made with another number. Of those who come first at once, one is first."""
    first = {"number": 0, "count": count, "cursor": "0-0"}
    async with database.write() as connection:
        await connection.execute(database.insert(partitions).values(first).on_conflict_do_nothing())
        known = set((await connection.execute(select(partitions.c.count))).scalars())
        if known != {count}:
            before = max(known - {count})
            raise RecordUnsupported(
                f"REDIS_PARTITIONS is {count}, and the record was made with {before}: set REDIS_PARTITIONS={before} "
                'for every role. To change it, follow "Partitions" in docs/operations.md.'
            )
