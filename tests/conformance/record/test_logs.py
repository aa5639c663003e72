"""What handlers logged: kept once per attempt, for executions that are there."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, text

from headrace.record.database import Database
from headrace.record.logs import Logged, Logs
from headrace.record.retention import Retention
from headrace.record.tables import executions, logs
from tests.conformance.record.rows import put, row, rows, started
from tests.roles import until


async def test_the_last_lines_of_an_attempt_count(database: Database) -> None:
    execution_id = await started(database)
    written = Logs(database)
    await written.write([Logged(execution_id, 1, "a", 1, "[1]"), Logged(execution_id, 1, "a", 2, "[2]")])
    await written.write([Logged(execution_id, 1, "a", 2, "[3]"), Logged(execution_id, 1, "a", 2, "[4]")])
    assert await written.of_node(execution_id, "a") == {(1, 1): [1], (1, 2): [4]}


async def test_lines_of_an_execution_that_is_not_there_are_dropped_and_the_others_kept(database: Database) -> None:
    execution_id = await started(database)
    await Logs(database).write([Logged("nobody", 1, "a", 1, "[]"), Logged(execution_id, 1, "a", 1, "[]")])
    assert [each["execution_id"] for each in await rows(database, logs)] == [execution_id]


async def test_they_go_with_their_execution(database: Database) -> None:
    pattern = await row(database, executions, id=await started(database))
    old = pattern | {"id": "00000000-0000-7000-8000-000000000000", "status": "COMPLETED", "finished_ms": 1}
    await put(database, executions, old)
    await Logs(database).write([Logged(each["id"], 1, "a", 1, "[]") for each in (old, pattern)])
    assert await Retention(database).delete_ended(2) == 1
    assert [each["execution_id"] for each in await rows(database, logs)] == [pattern["id"]]


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_an_execution_that_is_being_deleted_takes_no_other_lines_with_it(database: Database) -> None:
    going, staying = await started(database), await started(database)
    async with database.write() as connection:
        await connection.execute(delete(executions).where(executions.c.id == going))
        writing = asyncio.create_task(
            Logs(database).write([Logged(each, 1, "a", 1, "[]") for each in (going, staying)])
        )
        await until(lambda: _somebody_waits(database), "the lines to wait for the deletion")
    await writing
    assert [each["execution_id"] for each in await rows(database, logs)] == [staying]


async def _somebody_waits(database: Database) -> bool:
    async with database.read() as connection:
        return bool(await connection.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")))
