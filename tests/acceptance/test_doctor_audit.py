"""`headrace doctor --audit` as an operator calls it: straight on the stores, with no server in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from uuid_utils import uuid7

from headrace.embedded import EmbeddedValkey
from headrace.record.acceptance import Acceptance, Submission
from headrace.record.database import Database
from headrace.record.tables import audit, executions
from tests.acceptance.test_doctor import headrace
from tests.roles import definition, node


@pytest.fixture
def kind() -> str:
    return "sqlite"


def audited(folder: Path, code: int, **environment: str) -> list[dict[str, Any]]:
    told = headrace("doctor", "--audit", "--json", cwd=folder, **environment)
    assert (told.returncode, told.stderr) == (code, "")
    checks: list[dict[str, Any]] = json.loads(told.stdout)["checks"]
    return [each for each in checks if each["check"] == "audit"]


async def accept_long_ago(database: Database) -> str:
    execution_id = str(uuid7())
    made = definition(node("a"), node("b", "a"))
    await Acceptance(database).submit([Submission(execution_id, 0, made, "test", "{}", None)])
    async with database.write() as connection:
        await connection.execute(update(executions).values(created_ms=1_000))
        await connection.execute(update(audit).values(at_ms=1_000))
    return execution_id


async def test_what_is_stuck_is_told_with_what_to_do(tmp_path: Path, database: Database, database_url: str) -> None:
    with EmbeddedValkey(tmp_path / "valkey") as valkey:
        stores = {"REDIS_URL": valkey.url, "DATABASE_URL": database_url}
        *around, fine = audited(tmp_path, 0, **stores)
        assert [(each["level"], each["do"]) for each in around] == [
            ("warning", "Start one: headrace orchestrator"),
            ("warning", "Start one: headrace worker"),
        ]
        assert (fine["level"], fine["says"]) == ("ok", "0 running executions, and none is stuck")

        execution_id = await accept_long_ago(database)
        *around, stuck = audited(tmp_path, 1, **stores)
        assert {each["level"] for each in around} == {"problem"}
        assert stuck["level"] == "problem" and stuck["do"] == "Start one: headrace orchestrator"
        assert stuck["says"].startswith(f"{execution_id} (test) has not moved for ")
        assert "no orchestrator is at work" in stuck["says"]
        plain = headrace("doctor", "--audit", cwd=tmp_path, **stores).stdout
        assert f"problem  audit: {execution_id} (test)" in plain
        assert "audit" not in headrace("doctor", cwd=tmp_path, **stores).stdout
    away = audited(tmp_path, 1, **stores)
    assert [each["level"] for each in away] == ["problem"] and "Valkey does not answer" in away[0]["says"]


def test_where_nothing_runs_there_is_nothing_to_audit(tmp_path: Path) -> None:
    assert [each["level"] for each in audited(tmp_path, 0)] == ["ok"]
    assert headrace("migrate", cwd=tmp_path).returncode == 0
    [told] = audited(tmp_path, 0)
    assert (told["level"], told["do"]) == ("warning", "Start `headrace dev`")
