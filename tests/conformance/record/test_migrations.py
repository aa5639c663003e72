"""The schema's history: from nothing and from each earlier revision to exactly the tables that the code names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from headrace.errors import RecordUnavailable
from headrace.record import migrations
from headrace.record.database import Database
from headrace.record.queries import Queries
from headrace.record.tables import metadata

REVISIONS = [script.revision for script in ScriptDirectory.from_config(migrations.configuration()).walk_revisions()]


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    made = Database(empty_url)
    yield made
    await made.aclose()


@pytest.mark.parametrize("earlier", REVISIONS)
async def test_every_revision_leads_to_the_tables(empty: Database, earlier: str) -> None:
    assert await migrations.current(empty) is None
    await migrations.upgrade(empty, earlier)
    assert await migrations.current(empty) == earlier
    await migrations.upgrade(empty)
    assert await migrations.current(empty) == migrations.newest() == REVISIONS[0]
    assert list(migrations.revisions()) == REVISIONS[::-1]
    assert await _read(empty, _differences) == []


async def test_a_migrated_schema_is_the_one_that_the_tables_make(empty: Database, database: Database) -> None:
    """Also where Alembic does not look: primary keys and their order, what a foreign key does on delete."""
    async with empty.write() as connection:
        await connection.run_sync(metadata.create_all)
    assert await _read(empty, _shape) == await _read(database, _shape)


async def test_progress_is_counted_of_what_is_there(empty: Database) -> None:
    await migrations.upgrade(empty, "0003")
    nodes = '{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}'
    made = {
        "definitions": [f"'d', 'w', 1, 'h', '{{\"nodes\": [{nodes}]}}', 0"],
        "executions": [
            f"'{status}', 'd', 'w', 1, 0, '{status}', {run}, '', '', 0, NULL, NULL, NULL, 0, NULL, NULL, NULL"
            for status, run in (("PENDING", 0), ("RUNNING", 1), ("FAILED", 2), ("CANCELLED", 1), ("COMPLETED", 1))
        ],
        "attempts": [
            f"'{execution}', '{node}', {run}, 1, '{state}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
            for execution, node, run, state in (
                ("RUNNING", "a", 1, "COMPLETED"), ("RUNNING", "b", 1, "RUNNING"),
                ("FAILED", "a", 1, "COMPLETED"), ("FAILED", "b", 1, "FAILED"), ("FAILED", "c", 1, "SKIPPED"),
                ("FAILED", "b", 2, "COMPLETED"), ("FAILED", "c", 2, "FAILED"), ("FAILED", "d", 2, "SKIPPED"),
                ("CANCELLED", "a", 1, "FAILED"), ("CANCELLED", "b", 1, "QUEUED"),
            )
        ],
    }  # fmt: skip
    async with empty.write() as connection:
        for table, rows in made.items():
            for values in rows:
                await connection.exec_driver_sql(f"INSERT INTO {table} VALUES ({values})")
    await migrations.upgrade(empty)
    page = await Queries(empty).executions()
    assert {each.id: (each.done, each.nodes, each.failed) for each in page.items} == {
        "PENDING": (0, 4, 0), "RUNNING": (1, 4, 0), "FAILED": (3, 4, 1), "CANCELLED": (0, 4, 1), "COMPLETED": (4, 4, 0),
    }  # fmt: skip


async def test_many_may_upgrade_at_once(empty_url: str) -> None:
    databases = [Database(empty_url) for _ in range(3)]
    await asyncio.gather(*(migrations.upgrade(each) for each in databases))
    assert [await migrations.current(each) for each in databases] == [migrations.newest()] * 3
    assert await _read(databases[0], _differences) == []
    for each in databases:
        await each.aclose()


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_a_migration_may_take_longer_than_any_other_answer(empty_url: str) -> None:
    """Here it waits for another one that takes its time."""
    impatient, other = Database(empty_url, answer_seconds=0.3), Database(empty_url)
    async with other.write() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": migrations.LOCK})
        upgrading = asyncio.create_task(migrations.upgrade(impatient))
        await asyncio.wait((upgrading,), timeout=1)
        assert not upgrading.done()
    await upgrading
    assert await migrations.current(other) == migrations.newest()
    await impatient.aclose()
    await other.aclose()


async def test_what_stops_half_way_leaves_nothing(empty: Database) -> None:
    async with empty.write() as connection:
        await connection.execute(text("CREATE TABLE set_aside (id integer)"))  # the last table is in the way
    with pytest.raises(Exception, match="set_aside"):
        await migrations.upgrade(empty)
    assert await migrations.current(empty) is None
    async with empty.write() as connection:
        await connection.execute(text("DROP TABLE set_aside"))
    await migrations.upgrade(empty)
    assert await _read(empty, _differences) == []


async def test_without_its_tables_the_record_is_away(empty: Database) -> None:
    with pytest.raises(RecordUnavailable, match="executions"):
        await Queries(empty).executions()
    await migrations.upgrade(empty)
    assert (await Queries(empty).executions()).items == []


async def _read(database: Database, look: Any) -> Any:
    async with database.read() as connection:
        return await connection.run_sync(look)


def _differences(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))


def _shape(connection: Connection) -> dict[str, Any]:
    found = inspect(connection)
    return {
        name: {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
            "primary key": found.get_pk_constraint(name),
            "foreign keys": found.get_foreign_keys(name),
            "unique": sorted(found.get_unique_constraints(name), key=lambda each: str(each["name"])),
            "indexes": sorted(found.get_indexes(name), key=lambda each: str(each["name"])),
        }
        for name in metadata.tables
    }
