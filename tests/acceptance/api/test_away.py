"""With a store away: what needs it is answered 503 with Retry-After, everything else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.api import parts
from headrace.embedded import EmbeddedValkey
from headrace.hot.store import HotStore
from headrace.record.admin import Handlers
from headrace.record.database import Database
from tests.acceptance.api.client import Api, greeting, problem
from tests.acceptance.api.conftest import Served

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])
KEY = "key-0123456789abcdef"
NOBODY = "0198c0de-0000-7000-8000-000000000001"


async def away(api: Api, method: str, path: str, code: str, **kwargs: object) -> None:
    answer = await api.http.request(method, path, **kwargs)  # type: ignore[arg-type]
    told = problem(answer, 503, code)
    assert int(answer.headers["retry-after"]) > 0
    assert "127.0.0.1" not in answer.text and "valkey.sock" not in answer.text, told


async def test_valkey_away(served: Served, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SPECS_SECONDS", 0.0)
    with EmbeddedValkey(tmp_path / "own") as server:
        store = HotStore(server.url)
        await store.prepare()
        await Handlers(database).remember({"input": None, "output": None}, seen_ms=1)
        opened = served(works=False, store=store, API_RATE_LIMIT="1000/second")
        api = await opened.__aenter__()
        assert (await api.http.get("/readyz")).status_code == 200
        await api.post("/v1/validate", greeting(), status=200)
    try:
        for path in ("/v1/workers", "/v1/queues"):
            await away(api, "GET", path, "store_unavailable")
        await away(api, "GET", "/readyz", "store_unavailable")
        assert (await api.http.get("/healthz")).status_code == 200
        made = await api.post("/v1/workflow", greeting(), status=201)
        triggered = await api.post(f"/v1/workflow/trigger/{made['execution_id']}")
        assert triggered["status"] == "RUNNING"
        await api.post("/v1/executions", {"workflow": "greeting"})
        assert (await api.get(f"/v1/executions/{made['execution_id']}"))["status"] == "RUNNING"
        assert len((await api.get("/v1/executions"))["items"]) == 2
        assert (await api.get("/v1/audit"))["stuck"] == []
        await api.post(f"/v1/executions/{made['execution_id']}/cancel")
    finally:
        await opened.__aexit__(None, None, None)
        await store.aclose()


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
