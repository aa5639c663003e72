"""Each test runs on SQLite and on PostgreSQL, on a database that is migrated and empty.

PostgreSQL is started once. Emptying its tables takes a tenth of the time that a new database takes.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.record import migrations
from headrace.record.database import Database
from headrace.record.tables import metadata
from tests.databases import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    name = postgres.create()
    _migrate(postgres.url(name))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.url(postgres.create())


@pytest.fixture
def database_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "record.db")
        return f"sqlite:///{tmp_path}/record.db"
    postgres: Postgres = request.getfixturevalue("postgres")
    name: str = request.getfixturevalue("migrated_postgres")
    tables = ", ".join(f'"{table}"' for table in metadata.tables)
    postgres.execute("SET lock_timeout = '10s'", f"TRUNCATE {tables}", database=name)
    return postgres.url(name)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.aclose()


def _migrate(url: str) -> None:
    async def run() -> None:
        database = Database(url)
        await migrations.upgrade(database)
        await database.aclose()

    with asyncio.Runner() as runner:
        runner.run(run())
