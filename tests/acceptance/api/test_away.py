"""With a store away: what needs it is answered 503 with Retry-After, everything else goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.hot.store import HotStore
from headrace.record.admin import Handlers
from headrace.record.database import Database
from tests.acceptance.api.client import Client, Remote, greeting, one_note, problem
from tests.acceptance.api.conftest import Served
from tests.databases import Postgres
from tests.ledger import read
from tests.roles import until

KEY = "key-0123456789abcdef"
NOBODY = "0198c0de-0000-7000-8000-000000000001"


async def away(api: Client, method: str, path: str, code: str, **kwargs: object) -> None:
    answer = await api.http.request(method, path, **kwargs)  # type: ignore[arg-type]
    told = problem(answer, 503, code)
    assert int(answer.headers["retry-after"]) > 0
    assert "127.0.0.1" not in answer.text and "valkey.sock" not in answer.text, told


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_without_valkey_what_sql_knows_is_enough(served: Served, database: Database) -> None:
    await Handlers(database).remember({"input": None, "output": None}, seen_ms=1)
    store = HotStore("redis://127.0.0.1:1")
    async with served(works=False, store=store, API_RATE_LIMIT="1000/second") as api:
        for path in ("/v1/workers", "/v1/queues"):
            await away(api, "GET", path, "store_unavailable")
        made = await api.post("/v1/workflow", greeting(), status=201)
        assert (await api.get(f"/v1/executions/{made['execution_id']}"))["status"] == "PENDING"
        assert (await api.get("/v1/audit"))["stuck"] == []
    await store.aclose()


@pytest.mark.parametrize("kind", ["postgresql"])
async def test_sql_away_and_back(remote: Remote, postgres: Postgres, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    running = await remote.start(one_note(ledger, remote.name, gate=str(gate)))
    await until(lambda: read(ledger), "it to run")
    await asyncio.to_thread(postgres.stop)
    try:
        assert (await remote.get(f"/v1/executions/{running}"))["status"] == "RUNNING"
        await away(remote, "GET", "/readyz", "record_unavailable")
        for path in ("/v1/workflow", "/v1/executions"):
            body = {"workflow": remote.name} if path == "/v1/executions" else greeting(remote.name)
            await away(remote, "POST", path, "record_unavailable", json=body)
        gate.touch()
        await until(lambda: read(ledger, "done"), "what runs to go on")
    finally:
        await asyncio.to_thread(postgres.start)
    assert (await remote.ended(running))["status"] == "COMPLETED"
    again = await remote.post("/v1/executions", {"workflow": remote.name})
    assert (await remote.ended(again["execution_id"]))["status"] == "COMPLETED"


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_sql_away(served: Served) -> None:
    database = Database("postgresql://nobody@127.0.0.1:1/nothing")
    async with served(works=False, database=database, API_KEYS=KEY) as api:
        api.http.headers["Authorization"] = f"Bearer {KEY}"
        for path in ("/v1/executions", f"/v1/executions/{NOBODY}", f"/v1/executions/{NOBODY}/events", "/v1/dlq",
                     "/v1/workflows", "/v1/workflows/greeting", "/v1/audit", "/readyz"):  # fmt: skip
            await away(api, "GET", path, "record_unavailable")
        await away(api, "POST", "/v1/executions", "record_unavailable", json={"workflow": "greeting"})
        await away(api, "POST", f"/v1/executions/{NOBODY}/cancel", "record_unavailable")
        await away(api, "GET", "/v1/executions", "record_unavailable", headers={"X-API-Key": "x", "Authorization": ""})
        assert await api.get("/v1/workers") == {"items": []}
        assert (await api.http.get("/healthz")).status_code == 200
    async with served(works=False, database=database) as api:  # nobody knows whether there are keys
        await away(api, "GET", "/v1/workers", "record_unavailable")
    await database.aclose()
