"""The database goes away and comes back: every call says so, none hangs, and each works again afterwards."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from headrace.errors import RecordUnavailable
from headrace.model.messages import Change
from headrace.record import migrations
from headrace.record.acceptance import Acceptance
from headrace.record.admin import DeadLetters, Handlers
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.keys import Keys
from headrace.record.openings import Openings
from headrace.record.queries import Queries
from headrace.record.readings import Readings
from headrace.record.retention import Retention
from tests.conformance.record.chains import Chain
from tests.conformance.record.rows import history, opened, started, submission
from tests.databases import Postgres

SHORT_SECONDS = {"sqlite": 0.1, "postgresql": 1.0}
LOCKED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""

Call = Callable[[], Awaitable[Any]]


@pytest.fixture
async def impatient(kind: str, database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url, answer_seconds=SHORT_SECONDS[kind])
    yield made
    await made.aclose()


async def writes(database: Database) -> list[Call]:
    execution_id = await started(database)
    wanted = await opened(database, execution_id, "e1")
    entry = Chain(database, execution_id, "e1").next(Change("a", "Q", 1))
    acceptance = Acceptance(database)
    return [
        lambda: acceptance.submit([submission()]),
        lambda: acceptance.trigger(execution_id, "{}", "ann"),
        lambda: acceptance.retry(execution_id, "ann"),
        lambda: acceptance.cancel(execution_id, "ann"),
        lambda: Archive(database).apply(0, 1, [entry]),
        lambda: Openings(database).take([(wanted, "e2")]),
        lambda: Keys(database).create("a", ["read"], "ann"),
        lambda: Handlers(database).remember({"a": "{}"}, 1),
        lambda: DeadLetters(database).settle("a", "DROPPED", "ann"),
        lambda: Retention(database).delete_ended(1),
        lambda: migrations.upgrade(database),
    ]


def reads(database: Database) -> list[Call]:
    queries = Queries(database)
    return [
        queries.executions,
        queries.workflows,
        queries.dead_letters,
        queries.audit,
        queries.counts,
        lambda: Readings(database).execution("a"),
        lambda: Archive(database).cursor(0),
        lambda: Openings(database).running(0, 1),
        lambda: history(database, "a", 1),
        lambda: Keys(database).find("a"),
        lambda: migrations.current(database),
    ]


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_with_postgresql_stopped_every_call_says_so_and_works_again(
    postgres: Postgres, database: Database
) -> None:
    calls = await writes(database) + reads(database)
    await asyncio.gather(*(call() for call in reads(database)))  # several connections in the pool
    try:
        postgres.stop()
        for call in calls:
            with pytest.raises(RecordUnavailable, match="cannot be used now"):
                await call()
    finally:
        postgres.start()
    for call in calls:
        await call()


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_connections_that_postgresql_closed_fail_no_call(postgres: Postgres, database: Database) -> None:
    calls = await writes(database)
    await asyncio.gather(*(call() for call in reads(database)))  # several connections in the pool
    postgres.stop()
    postgres.start()
    for call in calls:
        await call()
    await asyncio.gather(*(call() for call in reads(database)))


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_postgresql_stops_in_the_middle_of_a_transaction(postgres: Postgres, database: Database) -> None:
    async def stopped_inside() -> None:
        async with database.write() as connection:
            await connection.execute(text("DELETE FROM partitions"))
            postgres.stop()
            await connection.execute(text("DELETE FROM partitions"))

    try:
        with pytest.raises(RecordUnavailable):
            await stopped_inside()
    finally:
        postgres.start()
    for call in await writes(database):
        await call()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_with_sqlite_locked_by_another_process_every_write_says_so(
    impatient: Database, database_url: str
) -> None:
    calls = await writes(impatient)
    path = make_url(database_url).database or ""
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", LOCKED, path, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    try:
        assert await other.stdout.readline() == b"locked\n"
        for call in calls:
            with pytest.raises(RecordUnavailable, match="locked"):
                await call()
        for call in reads(impatient):  # in WAL mode nobody waits to read
            await call()
    finally:
        await other.communicate(b"")  # its end is the end of its transaction
    for call in calls:
        await call()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_sqlite_file_that_cannot_be_opened_is_away(tmp_path: Path, kind: str) -> None:
    database = Database(f"{kind}:///{tmp_path}/missing/record.db")
    for call in reads(database):
        with pytest.raises(RecordUnavailable, match="unable to open"):
            await call()
    await database.aclose()
    while any(
        "_connection_worker_thread" in each.name for each in threading.enumerate()
    ):  # of the driver: they end soon
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_a_row_that_stays_locked_is_not_waited_for_for_ever(impatient: Database, database_url: str) -> None:
    execution_id = await started(impatient)
    other = Database(database_url)
    async with other.write() as connection:
        await connection.execute(text("SELECT * FROM executions FOR UPDATE"))
        with pytest.raises(RecordUnavailable):
            await Acceptance(impatient).cancel(execution_id, "ann")
        assert len((await Queries(impatient).executions()).items) == 1
    now = await Acceptance(impatient).cancel(execution_id, "ann")
    assert now is not None and now.done
    await other.aclose()


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_a_database_that_is_not_there_is_away(postgres: Postgres, kind: str) -> None:
    database = Database(postgres.url("nobody"))
    with pytest.raises(RecordUnavailable, match="nobody"):
        await Queries(database).counts()
    await database.aclose()


async def test_a_cancelled_transaction_leaves_nothing_behind(database: Database) -> None:
    """No lock, no half-written row, no broken connection in the pool."""
    reached = asyncio.Event()

    async def hang() -> None:
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO partitions VALUES (7, 1, '0-0')"))
            reached.set()
            await asyncio.Event().wait()

    for _ in range(20):
        reached.clear()
        task = asyncio.create_task(hang())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await Archive(database).cursor(7) == "0-0"
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM partitions")) == 0
    for call in await writes(database):
        await call()
