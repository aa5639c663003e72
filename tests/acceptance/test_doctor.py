"""`headrace doctor` and `headrace migrate` as an operator calls them, on real servers in good and bad shape."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.hot.wire import Address, Link
from headrace.record.migrations import newest
from tests import forks
from tests.databases import Postgres

GOOD = {"home", "file limit", "handlers", "Valkey", "SQL"}


def headrace(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ended = forks.headrace(*arguments, cwd=cwd, environment={**os.environ, **environment})
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def levels(cwd: Path, code: int, **environment: str) -> dict[str, str]:
    """Check -> ok, warning or problem; every one that is not ok says what to do."""
    told = headrace("doctor", "--json", cwd=cwd, **environment)
    assert (told.returncode, told.stderr) == (code, "")
    document = json.loads(told.stdout)
    assert document["ok"] is (code == 0)
    assert all(bool(each["do"]) is (each["level"] != "ok") for each in document["checks"])
    return {each["check"]: each["level"] for each in document["checks"]}


@pytest.fixture
def database_url(postgres: Postgres) -> str:
    return postgres.url(postgres.create())


def command(url: str, *words: str) -> Any:
    async def call() -> Any:
        link = Link(Address.parse(url), 10)
        try:
            return await link.call(*words)
        finally:
            await link.aclose()

    with asyncio.Runner() as runner:
        return runner.run(call())


# doctor


def test_nothing_configured_is_fine_and_leaves_nothing_running(tmp_path: Path) -> None:
    told = headrace("doctor", cwd=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert "embedded: it starts and answers" in told.stdout
    assert told.stdout.endswith("\nEverything is fine.\n")
    assert not (tmp_path / ".headrace" / "headrace.db").exists()
    assert [path.name for path in (tmp_path / ".headrace" / "run").iterdir()] == ["lock"]


def test_servers_in_good_shape_are_ok(tmp_path: Path, database_url: str) -> None:
    assert headrace("migrate", cwd=tmp_path, DATABASE_URL=database_url).returncode == 0
    with EmbeddedValkey(tmp_path / "valkey") as valkey:
        found = levels(tmp_path, 0, REDIS_URL=valkey.url, DATABASE_URL=database_url)
    others = {"Valkey eviction", "Valkey persistence", "Valkey latency", "SQL latency", "SQL schema", "clocks"}
    assert found.keys() == GOOD | others
    assert {name for name, level in found.items() if level != "ok"} <= {"Valkey latency", "SQL latency"}


def test_what_is_wrong_with_a_server_is_found(tmp_path: Path, database_url: str) -> None:
    with EmbeddedValkey(tmp_path / "valkey") as valkey:
        command(valkey.url, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        command(valkey.url, "CONFIG", "SET", "appendonly", "no")
        command(valkey.url, "SET", "much", "x" * 20_000_000)
        command(valkey.url, "CONFIG", "SET", "maxmemory", "24mb")
        found = levels(tmp_path, 1, REDIS_URL=valkey.url, DATABASE_URL=database_url)
        assert found["Valkey"] == found["SQL"] == "ok"
        assert found["Valkey eviction"] == found["SQL schema"] == "problem"
        assert found["Valkey persistence"] == found["Valkey memory"] == "warning"
        told = headrace("doctor", cwd=tmp_path, REDIS_URL=valkey.url, DATABASE_URL=database_url).stdout
    assert "CONFIG SET maxmemory-policy noeviction" in told
    assert "Run `headrace migrate`." in told
    assert re.search(r"\n2 problems, \d+ warnings\.\n$", told)


def test_what_is_away_or_unusable_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')\n")
    bad = {"WORKER_HANDLERS": "broken", "REDIS_URL": "redis://127.0.0.1:1", "HEADRACE_HOME": "/proc/nothing"}
    for url in ("postgresql://127.0.0.1:1/x", "mysql://h/x", "nonsense", "postgresql://h:port/x"):
        found = levels(tmp_path, 1, DATABASE_URL=url, **bad)
        assert {name for name, level in found.items() if level == "problem"} == {"home", "handlers", "Valkey", "SQL"}


def test_a_schema_of_a_newer_version_is_a_problem(tmp_path: Path) -> None:
    assert headrace("migrate", cwd=tmp_path).returncode == 0
    assert levels(tmp_path, 0)["SQL schema"] == "ok"
    _set_revision(tmp_path, "9999")
    assert levels(tmp_path, 1)["SQL schema"] == "problem"


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    secrets = {
        "REDIS_URL": "redis://:the-valkey-word@127.0.0.1:1", "DATABASE_URL": "postgresql://u:the-sql-word@127.0.0.1:1/x",
        "HEADRACE_API_KEY": "the-api-key-of-mine", "API_KEYS": "ci:run:the-fixed-key-of-ci",
        "HEADRACE_SECRET_TOKEN": "the-token-of-mine", "OPENAI_API_KEY": "the-openai-key",
        "LLM_OWN_BASE_URL": "http://127.0.0.1/v1", "LLM_OWN_API_KEY": "the-own-key", "WORKER_CONCURRENCY": "7",
    }  # fmt: skip
    plain = headrace("doctor", cwd=tmp_path, **secrets).stdout
    document = headrace("doctor", "--json", cwd=tmp_path, **secrets).stdout
    for text in (plain, document):
        assert not re.search("-word|the-", text)
    assert "* WORKER_CONCURRENCY = 7" in plain.splitlines()
    assert "  WORKER_LEASE_SECONDS = 15.0" in plain.splitlines()
    assert "* HEADRACE_SECRET_TOKEN = **********" in plain.splitlines()
    shown = json.loads(document)["settings"]
    assert (shown["WORKER_CONCURRENCY"], shown["LLM_OWN_BASE_URL"]) == (7, "http://127.0.0.1/v1")
    assert {name for name in secrets if shown[name] == "*" * 10} == secrets.keys() - {
        "LLM_OWN_BASE_URL",
        "WORKER_CONCURRENCY",
    }


# migrate


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_migrate_says_from_where_to_where_and_check_only_looks(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = {"DATABASE_URL": request.getfixturevalue("database_url")} if kind == "PostgreSQL" else {}
    behind = headrace("migrate", "--check", cwd=tmp_path, **url)
    assert behind.returncode == 1 and "headrace migrate" in behind.stderr
    assert not (tmp_path / ".headrace").exists()
    first = headrace("migrate", cwd=tmp_path, **url)
    assert (first.returncode, first.stdout) == (
        0,
        f"The schema went from nothing (an empty database) to revision {newest()}.\n",
    )
    for arguments in (("migrate",), ("migrate", "--check")):
        again = headrace(*arguments, cwd=tmp_path, **url)
        assert (again.returncode, again.stdout) == (0, f"The schema is up to date: revision {newest()}.\n")


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_several_may_migrate_at_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = {"DATABASE_URL": request.getfixturevalue("database_url")} if kind == "PostgreSQL" else {}
    with ThreadPoolExecutor(4) as starts:
        all_of_them = list(starts.map(lambda _: headrace("migrate", cwd=tmp_path, **url), range(4)))
    assert [(each.returncode, each.stderr) for each in all_of_them] == [(0, "")] * 4
    assert headrace("migrate", "--check", cwd=tmp_path, **url).returncode == 0


def test_migrate_says_what_keeps_it_from_working(tmp_path: Path) -> None:
    for url, code in (
        ("postgresql://127.0.0.1:1/x", 3),
        ("sqlite:////proc/nothing/x.db", 3),
        ("mysql://a:hidden@h/x", 2),
    ):
        told = headrace("migrate", cwd=tmp_path, DATABASE_URL=url)
        assert (told.returncode, told.stdout) == (code, "")
        assert told.stderr.startswith("headrace: ") and "DATABASE_URL" in told.stderr and "hidden" not in told.stderr
    assert headrace("migrate", cwd=tmp_path).returncode == 0
    _set_revision(tmp_path, "9999")
    for arguments in (("migrate",), ("migrate", "--check")):
        told = headrace(*arguments, cwd=tmp_path)
        assert told.returncode == 1 and "upgrade Headrace" in told.stderr
    assert headrace("keys", "list", cwd=tmp_path).returncode == 1


def _set_revision(folder: Path, revision: str) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / ".headrace" / "headrace.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.commit()
