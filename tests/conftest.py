"""What all tests share: real servers per test process, and stores on them that are empty at the start of each test.

What takes `kind`, or depends on it, runs on SQLite and on PostgreSQL. PostgreSQL is started once; emptying its tables
takes a tenth of the time that a new database takes.
"""

from __future__ import annotations

import gc
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.hot.store import HotStore
from headrace.record.database import Database
from headrace.record.tables import metadata
from tests.databases import Postgres, migrate


def pytest_configure() -> None:
    """Whoever starts pytest in the background has SIGINT ignored, and all that tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again and again."""
    gc.freeze()


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@pytest.fixture(params=[1, 3], ids=["1 partition", "3 partitions"])
def partitions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def store(valkey_url: str, partitions: int) -> AsyncIterator[HotStore]:
    made = HotStore(valkey_url, partitions=partitions)
    await made._link.call("FLUSHALL")
    await made.prepare()
    for partition in range(partitions):
        await made.settle(partition, await made.unsettled(partition))
    yield made
    await made.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    name = postgres.create()
    migrate(postgres.url(name))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "template.db"
    migrate(f"sqlite:///{path}")
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
    """A database that is migrated and empty."""
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
