"""Roles refuse to start on a record that they would harm or cannot find, and say what to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headrace.hot.store import HotStore
from headrace.record import layout
from headrace.record.database import Database
from tests import forks


def start(role: str, valkey_url: str, database_url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    stores = {"REDIS_URL": valkey_url, "DATABASE_URL": database_url, "API_PORT": "0"}
    return forks.headrace(role, cwd=Path.cwd(), environment={**os.environ, **stores, **environment})


@pytest.fixture(autouse=True)
async def unused(valkey_url: str) -> None:
    """A server that was used with another number of partitions would be what is refused."""
    store = HotStore(valkey_url)
    await store._link.call("FLUSHALL")
    await store.aclose()


@pytest.mark.parametrize("role", ["api", "orchestrator"])
async def test_another_number_of_partitions(role: str, valkey_url: str, database: Database, database_url: str) -> None:
    await layout.agree(database, 3)
    ended = start(role, valkey_url, database_url, REDIS_PARTITIONS="2")
    assert ended.returncode == 2
    assert "REDIS_PARTITIONS is 2, and the record was made with 3: set REDIS_PARTITIONS=3" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql//u:hidden@h/db", "cannot be read"),
        ("postgresql://u:hidden@h:port/db", "cannot be read"),
        ("mysql://u:hidden@h/db", "names mysql, which is not supported"),
        ("postgresql+psycopg2://u:hidden@h/db", "names postgresql+psycopg2, which is not supported"),
    ],
)
def test_an_address_that_cannot_be_used(url: str, says: str, valkey_url: str, tmp_path: Path) -> None:
    ended = start("orchestrator", valkey_url, url, HEADRACE_HOME=str(tmp_path))
    assert ended.returncode == 2
    assert f"DATABASE_URL {says}: write postgresql://" in ended.stderr
    assert "hidden" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
