"""Short ways to fill the record and to look into it."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from sqlalchemy import Table, select
from uuid_utils import uuid7

from headrace.model.definition import Definition, Node
from headrace.record.acceptance import Acceptance, Accepted, Idempotency, Submission
from headrace.record.database import Database
from headrace.record.openings import NodeHistory, Openings, Wanted


def definition(name: str = "w", content: int = 0) -> Definition:
    return Definition(name, (Node("a", "echo", config={"content": content}),))


def submission(
    of: Definition | None = None, *, input_text: str | None = "{}", key: Idempotency | None = None, actor: str = "ann"
) -> Submission:
    return Submission(str(uuid7()), 0, of or definition(), actor, input_text, key)


async def started(database: Database, of: Definition | None = None) -> str:
    """An execution that should be running: its id."""
    (accepted,) = await Acceptance(database).submit([submission(of)])
    assert isinstance(accepted, Accepted)
    return accepted.execution_id


async def opened(database: Database, execution_id: str, epoch: str) -> Wanted:
    """As the hot store's opener does it: the epoch is ours now."""
    openings = Openings(database)
    (wanted,) = await openings.wanted([execution_id])
    assert execution_id in await openings.take([(wanted, epoch)])
    return wanted


async def history(database: Database, execution_id: str, run: int) -> dict[str, NodeHistory]:
    """What an execution would be opened with."""
    async with aclosing(Openings(database).histories({execution_id: run})) as histories:
        ((_, nodes),) = [each async for each in histories]
        return nodes


async def rows(database: Database, table: Table, **equal: Any) -> list[dict[str, Any]]:
    query = select(table).where(*(table.c[name] == value for name, value in equal.items()))
    async with database.read() as connection:
        found = await connection.execute(query.order_by(*table.primary_key))
        return [dict(row._mapping) for row in found]


async def row(database: Database, table: Table, **equal: Any) -> dict[str, Any]:
    (found,) = await rows(database, table, **equal)
    return found


async def put(database: Database, table: Table, *values: dict[str, Any]) -> None:
    async with database.write() as connection:
        await connection.execute(table.insert(), list(values))
