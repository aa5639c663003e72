"""The contract's REST table, row by row: dead letters, workers, queues, health and documents, asked of processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.api.client import Remote, greeting, one_note, problem
from tests.acceptance.api.house import House
from tests.acceptance.api.test_rows import NOBODY, TIME, broken
from tests.roles import node, until


async def letters(remote: Remote, **params: str) -> list[Any]:
    return list((await remote.get("/v1/dlq", params={"workflow": remote.name, **params}))["items"])


@pytest.mark.calls("GET /v1/dlq", "GET /v1/dlq/{letter_id}", "POST /v1/dlq/{letter_id}/retry")
async def test_a_dead_letter_is_looked_at_and_retried(remote: Remote, ledger: Path) -> None:
    execution_id = await broken(remote, ledger, remote.name)
    [letter] = await letters(remote)
    assert (letter["execution_id"], letter["run"], letter["node"], letter["status"]) == (execution_id, 1, "b", "OPEN")
    assert letter["error"]["message"] == "broken" and letter["cause"] and TIME.fullmatch(letter["created_at"])
    found = await remote.get(f"/v1/dlq/{letter['id']}")
    assert found["task"]["config"] == {"ledger": str(ledger), "only_run": 1}
    assert len(found["task"]["attempts"]) == 1

    retried = await remote.post(f"/v1/dlq/{letter['id']}/retry")
    assert retried == {"execution_id": execution_id, "status": "RUNNING", "run": 2}
    assert (await remote.ended(execution_id))["status"] == "COMPLETED"
    assert await letters(remote) == []
    assert [each["id"] for each in await letters(remote, status="RETRIED")] == [letter["id"]]
    problem(await remote.http.post(f"/v1/dlq/{letter['id']}/retry"), 409, "conflict")
    problem(await remote.http.get(f"/v1/dlq/{NOBODY}"), 404, "dead_letter_not_found")
    problem(await remote.http.post(f"/v1/dlq/{NOBODY}/retry"), 404, "dead_letter_not_found")


@pytest.mark.calls("POST /v1/dlq/retry")
async def test_many_dead_letters_are_one_retry_per_execution(remote: Remote, ledger: Path) -> None:
    entry = {"ledger": str(ledger), "only_run": 1}
    flow = {
        "name": remote.name,
        "on_failure": "continue",
        "nodes": [node("a", handler="break", config=entry), node("b", handler="break", config=entry)],
    }
    first, second = await remote.start(flow), await broken(remote, ledger, f"{remote.name}-2")
    third = await broken(remote, ledger, f"{remote.name}-3")
    await remote.ended(first)
    assert len(await letters(remote)) == 2
    page = await remote.get("/v1/dlq", params={"limit": 1})
    assert [each["execution_id"] for each in page["items"]] == [third] and page["next_cursor"]
    answer = await remote.post("/v1/dlq/retry", {"workflow": remote.name})
    retried = [{"execution_id": first, "status": "RUNNING", "run": 2}]
    assert answer == {"retried": retried, "refused": [], "more": False}
    [left] = await letters(remote, workflow=f"{remote.name}-2")
    answer = await remote.post("/v1/dlq/retry", {"ids": [left["id"]]})
    assert [each["execution_id"] for each in answer["retried"]] == [second]
    everything = (await remote.post("/v1/dlq/retry"))["retried"]  # those of other tests, too
    assert third in {each["execution_id"] for each in everything}
    assert not {first, second} & {each["execution_id"] for each in everything}
    for each in (first, second, third):
        assert (await remote.ended(each))["status"] == "COMPLETED"


@pytest.mark.calls("DELETE /v1/dlq/{letter_id}")
async def test_a_dead_letter_is_dropped_once(remote: Remote, ledger: Path) -> None:
    execution_id = await broken(remote, ledger, remote.name)
    [letter] = await letters(remote)
    dropped = await remote.http.delete(f"/v1/dlq/{letter['id']}")
    assert (dropped.status_code, dropped.content) == (204, b"")
    problem(await remote.http.delete(f"/v1/dlq/{letter['id']}"), 409, "conflict")
    problem(await remote.http.delete(f"/v1/dlq/{NOBODY}"), 404, "dead_letter_not_found")
    assert (await remote.get(f"/v1/executions/{execution_id}"))["status"] == "FAILED"
    trail = await remote.get("/v1/audit", params={"execution_id": execution_id})
    assert [each["action"] for each in trail["items"]] == ["drop_letter", "start"]


@pytest.mark.calls("GET /v1/audit")
async def test_audit_has_who_did_what(remote: Remote, ledger: Path) -> None:
    execution_id = await broken(remote, ledger, remote.name)
    await remote.post(f"/v1/executions/{execution_id}/retry")
    await remote.ended(await remote.start(greeting(remote.name)))
    trail = await remote.get("/v1/audit", params={"execution_id": execution_id})
    assert [(each["action"], each["actor"]) for each in trail["items"]] == [
        ("retry", "anonymous@127.0.0.1"),
        ("start", "anonymous@127.0.0.1"),
    ]
    assert all(TIME.fullmatch(each["at"]) for each in trail["items"])
    assert execution_id not in {each["execution_id"] for each in trail["stuck"]}
    page = await remote.get("/v1/audit", params={"limit": 1})
    assert len(page["items"]) == 1 and page["next_cursor"]


@pytest.mark.calls("GET /v1/workers", "GET /v1/queues", "GET /v1/handlers")
async def test_workers_queues_handlers(remote: Remote, house: House, ledger: Path) -> None:
    async def alive() -> Any:
        return [each for each in (await remote.get("/v1/workers"))["items"] if each["alive"]]

    async def queue() -> Any:
        queues = {each["handler"]: each for each in (await remote.get("/v1/queues"))["items"]}
        return queues.get("note", {"depth": 0, "oldest_age_seconds": None})

    async def waiting() -> Any:
        found = await queue()
        return found if found["depth"] else None

    [worker] = await until(alive, "the worker to sign in")
    assert f":{house.worker.pid}:" in worker["name"] and worker["heartbeat_age_seconds"] < 60
    assert {"note", "input"} <= set(worker["handlers"])
    handlers = {each["name"]: each["config_schema"] for each in (await remote.get("/v1/handlers"))["items"]}
    assert handlers["note"]["properties"]["ledger"]

    house.worker.send(signal.SIGSTOP)
    try:
        execution_id = await remote.start(one_note(ledger, remote.name))
        found = await until(waiting, "the task to wait")
        assert found["depth"] == 1 and found["oldest_age_seconds"] >= 0
    finally:
        house.worker.send(signal.SIGCONT)
    assert (await remote.ended(execution_id))["status"] == "COMPLETED"
    assert ((await queue())["depth"], (await queue())["oldest_age_seconds"]) == (0, None)


@pytest.mark.parametrize("kind", ["sqlite"])  # it takes ten seconds of waiting
async def test_what_cannot_go_on_is_told(remote: Remote, house: House, ledger: Path) -> None:
    async def stuck() -> Any:
        found = (await remote.get("/v1/audit", params={"limit": 1}))["stuck"]
        return [each for each in found if each["execution_id"] == execution_id]

    house.worker.send(signal.SIGSTOP)
    try:
        execution_id = await remote.start(one_note(ledger, remote.name))
        [found] = await until(stuck, "it to be called stuck")
        assert (found["workflow"], [each["node"] for each in found["nodes"]]) == (remote.name, ["a"])
        assert found["idle_seconds"] > 0 and "worker" in found["nodes"][0]["why"]
    finally:
        house.worker.send(signal.SIGCONT)
    assert (await remote.ended(execution_id))["status"] == "COMPLETED"
    assert await stuck() == []


@pytest.mark.calls("GET /healthz", "GET /readyz", "GET /metrics", "GET /docs", "GET /")
async def test_health_metrics_and_documents(remote: Remote) -> None:
    async def counted(route: str, status: int = 404) -> float:
        text = (await remote.http.get("/metrics")).text
        assert "headrace_http_request_seconds_bucket" in text and "/nothing/here" not in text
        line = f'headrace_http_requests_total{{method="GET",route="{route}",status="{status}"}} '
        return next((float(each[len(line) :]) for each in text.splitlines() if each.startswith(line)), 0.0)

    assert await remote.get("/healthz") == {"status": "ok"}
    assert await remote.get("/readyz") == {"status": "ready", "stores": {"valkey": "ok", "sql": "ok"}}
    for path, route in ((f"/v1/executions/{NOBODY}", "/v1/executions/{execution_id}"), ("/nothing/here", "unknown")):
        before = await counted(route)
        problem(await remote.http.get(path), 404, "not_found" if route == "unknown" else "execution_not_found")
        assert await counted(route) == before + 1
    page = await remote.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html") and "/v1/executions/{execution_id}" in page.text
    assert "http://" not in page.text and "https://" not in page.text and "<script" not in page.text
    before = await counted("ui", 200)
    front = await remote.http.get("/")
    assert await counted("ui", 200) == before + 1
    assert front.status_code == 200 and front.headers["content-type"].startswith("text/html")


async def test_every_answer_is_guarded(remote: Remote) -> None:
    answers: list[httpx2.Response] = [
        await remote.http.get("/v1/executions"),
        await remote.http.get("/v1/nothing"),
        await remote.http.put("/v1/executions"),
        await remote.http.get("/docs"),
        await remote.http.post("/v1/executions", content=b"{"),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers and "server" not in answer.headers
    problem(answers[1], 404, "not_found")
    problem(answers[2], 405, "method_not_allowed")
    problem(answers[4], 400, "malformed_body")
    assert answers[2].headers["allow"]
