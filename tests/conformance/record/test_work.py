"""Transactions that are given as a function: all of it or nothing, also if nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import Connection, insert, select

from headrace.record.bulk import Bulk
from headrace.record.database import Database
from headrace.record.tables import partitions
from tests.conformance.record.rows import rows

ROW = {"number": 1, "count": 1, "cursor": "1-0"}


async def test_an_error_leaves_nothing(database: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execute(insert(partitions), [ROW])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.writing(work)
    assert await rows(database, partitions) == []


async def test_it_gives_what_the_function_gives(database: Database) -> None:
    await database.writing(lambda connection: connection.execute(insert(partitions), [ROW]))
    assert await database.reading(lambda connection: connection.scalar(select(partitions.c.cursor))) == "1-0"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_whoever_is_cancelled_leaves_no_lock_behind(database: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(connection: Connection) -> None:
        connection.execute(insert(partitions), [ROW])
        begun.set()
        go_on.wait(30)

    task = asyncio.create_task(database.writing(work))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await database.writing(lambda connection: connection.execute(insert(partitions), [{**ROW, "number": 2}]))
    assert [each["number"] for each in await rows(database, partitions)] == [1, 2]


async def test_rows_in_bulk_are_taken_by_name(database: Database) -> None:
    statement = database.insert(partitions)
    newer = {"cursor": statement.excluded.cursor}
    upsert = Bulk(statement.on_conflict_do_update(index_elements=["number"], set_=newer))
    other = {"cursor": "2-0", "number": 2, "count": 1}
    for some in ([ROW, other], [{**other, "cursor": "3-0"}]):
        await database.writing(lambda connection, some=some: upsert.execute(connection, some))  # type: ignore[misc]
    assert [each["cursor"] for each in await rows(database, partitions)] == ["1-0", "3-0"]
