"""Every row of the contract's REST table, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.api.client import Api, greeting, one_note, problem
from tests.ledger import read
from tests.roles import node, until

NOBODY = "0198c0de-0000-7000-8000-000000000001"
FIELDS = {
    "execution_id", "workflow", "version", "status", "run", "input_params", "output", "error", "created_at",
    "started_at", "finished_at", "nodes",
}  # fmt: skip
NODE_FIELDS = {
    "id", "handler", "status", "attempt", "dependencies", "queued_at", "started_at", "finished_at", "error", "reason",
}  # fmt: skip


async def test_submit_then_trigger(api: Api) -> None:
    made = await api.post("/v1/workflow", greeting(), status=201)
    assert (made["name"], made["version"], made["status"]) == ("greeting", 1, "PENDING")
    waiting = await api.get(f"/v1/executions/{made['execution_id']}")
    assert (waiting["status"], waiting["started_at"]) == ("PENDING", None)

    triggered = await api.post(f"/v1/workflow/trigger/{made['execution_id']}", {"input_params": {"who": "Ada"}})
    assert triggered == {"execution_id": made["execution_id"], "status": "RUNNING", "run": 1}
    ended = await api.ended(made["execution_id"])
    assert ended.keys() == FIELDS
    assert {frozenset(each) for each in ended["nodes"]} == {frozenset(NODE_FIELDS)}
    assert (ended["status"], ended["output"], ended["input_params"]) == (
        "COMPLETED",
        {"text": "Hello Ada"},
        {"who": "Ada"},
    )
    again = await api.http.post(f"/v1/workflow/trigger/{made['execution_id']}")
    problem(again, 409, "conflict")


async def test_versions_follow_the_content(api: Api) -> None:
    first = await api.post("/v1/workflow", greeting(), status=201)
    same = await api.post("/v1/workflow", greeting(), status=201)
    other = await api.post("/v1/workflow", greeting(description="changed"), status=201)
    assert [each["version"] for each in (first, same, other)] == [1, 1, 2]
    assert first["workflow_definition_id"] == same["workflow_definition_id"] != other["workflow_definition_id"]
    assert first["execution_id"] != same["execution_id"]

    [listed] = (await api.get("/v1/workflows"))["items"]
    assert (listed["name"], listed["version"]) == ("greeting", 2)
    newest = await api.get("/v1/workflows/greeting")
    assert newest["version"] == 2 and newest["definition"]["description"] == "changed"
    assert [each["version"] for each in newest["versions"]] == [2, 1]
    older = await api.get("/v1/workflows/greeting", params={"limit": 1, "cursor": "2"})
    assert older["version"] == 2 and [each["version"] for each in older["versions"]] == [1]
    assert (await api.get("/v1/workflows/greeting/versions/1"))["definition"] == greeting()
    for path in ("/v1/workflows/nothing", "/v1/workflows/greeting/versions/3", "/v1/workflows/greeting/versions/x"):
        problem(await api.http.get(path), 404, "workflow_not_found")


async def test_yaml_and_a_body_without_a_content_type(api: Api) -> None:
    text = "name: in-yaml\nnodes:\n  - id: start\n    handler: input\n"
    answer = await api.http.post("/v1/workflow", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201 and answer.json()["name"] == "in-yaml"
    wrong = await api.http.post("/v1/workflow", content=text + "  - id: b\n    handler: inputt\n", headers={
        "Content-Type": "application/yaml; charset=utf-8"
    })  # fmt: skip
    [error] = problem(wrong, 422, "invalid_definition")["errors"]
    assert (error["code"], error["node"], error["line"]) == ("unknown_handler", "b", 6)
    plain = await api.http.post("/v1/validate", content='{"name": "x", "nodes": [{"id": "a", "handler": "input"}]}')
    assert plain.json() == {"valid": True, "name": "x", "nodes": 1}


async def test_start_by_definition_and_by_name(api: Api) -> None:
    answer = await api.http.post("/v1/executions", json={"definition": greeting(), "input_params": {"who": "Ada"}})
    assert answer.status_code == 202
    made = answer.json()
    assert answer.headers["location"] == f"/v1/executions/{made['execution_id']}"
    assert (made["name"], made["version"], made["status"], made["run"]) == ("greeting", 1, "RUNNING", 1)
    assert (await api.ended(made["execution_id"]))["output"] == {"text": "Hello Ada"}

    await api.post("/v1/workflow", greeting(description="second"), status=201)
    newest = await api.post("/v1/executions", {"workflow": "greeting"})
    first = await api.post("/v1/executions", {"workflow": "greeting", "version": 1, "input_params": {"who": "Bo"}})
    assert (newest["version"], first["version"]) == (2, 1)
    assert (await api.ended(first["execution_id"]))["output"] == {"text": "Hello Bo"}
    assert (await api.ended(newest["execution_id"]))["output"] == {"text": "Hello world"}
    problem(await api.http.post("/v1/executions", json={"workflow": "nothing"}), 404, "workflow_not_found")
    missing = await api.http.post("/v1/executions", json={"workflow": "greeting", "version": 3})
    problem(missing, 404, "workflow_not_found")


async def test_inputs_are_checked_before_anything_happens(api: Api) -> None:
    refused = await api.http.post("/v1/executions", json={"definition": greeting(), "input_params": {"who": 7, "x": 1}})
    errors = problem(refused, 422, "invalid_input")["errors"]
    assert {each["code"] for each in errors} == {"bad_input", "unknown_input"}
    assert (await api.get("/v1/executions"))["items"] == []


async def test_fifty_equal_requests_are_one_execution(api: Api, ledger: Path) -> None:
    body, headers = {"definition": one_note(ledger)}, {"Idempotency-Key": "the same"}
    answers = await asyncio.gather(
        *(api.http.post("/v1/executions", json=body, headers=headers) for _ in range(50))
    )  # fmt: skip
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    await api.ended(answers[0].json()["execution_id"])
    assert len(read(ledger)) == 1
    other = await api.http.post("/v1/executions", json={"workflow": "one-note"}, headers=headers)
    problem(other, 422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e4"])
async def test_idempotency_keys_that_are_none(api: Api, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    refused = await api.http.post("/v1/executions", json={"definition": greeting()}, headers=headers)  # type: ignore[arg-type]
    assert problem(refused, 422, "invalid_request")["errors"][0]["loc"] == ["header", "Idempotency-Key"]


async def test_list_with_pages_and_filters(api: Api) -> None:
    ids = [await api.start(greeting(f"flow-{number % 2}")) for number in range(5)]
    for each in ids:
        await api.ended(each)
    waiting = await api.post("/v1/workflow", greeting("flow-0"), status=201)
    seen: list[str] = []
    cursor = ""
    while True:
        page = await api.get("/v1/executions", params={"limit": 2, "cursor": cursor})
        seen += [each["execution_id"] for each in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == [waiting["execution_id"], *reversed(ids)]

    async def listed(**params: Any) -> list[str]:
        return [each["execution_id"] for each in (await api.get("/v1/executions", params=params))["items"]]

    assert await listed(status="PENDING") == [waiting["execution_id"]]
    assert await listed(workflow="flow-1") == [ids[3], ids[1]]
    assert await listed(workflow="flow-1", status="RUNNING") == []
    assert await listed(q="flow-1") == [ids[3], ids[1]]
    assert await listed(q=ids[2]) == [ids[2]]
    created = (await api.get(f"/v1/executions/{ids[2]}"))["created_at"]
    assert await listed(since=created, workflow="flow-0", status="COMPLETED") == [ids[4], ids[2]]
    assert ids[2] not in await listed(until=created)
    assert await listed(since="2100-01-01") == []


async def test_a_node_with_config_output_and_attempts(api: Api, ledger: Path) -> None:
    flow = {
        "name": "twice",
        "nodes": [
            node("start", handler="input"),
            node("a", "start", handler="fail", config={"ledger": str(ledger), "fails": 1, "value": "{{ start.who }}"}),
        ],
    }
    execution_id = await api.start(flow, who="Ada")
    await api.ended(execution_id)
    found = await api.get(f"/v1/executions/{execution_id}/nodes/a")
    assert found["config"] == {"ledger": str(ledger), "fails": 1, "value": "Ada"}
    assert (found["status"], found["output"], found["attempt"]) == ("COMPLETED", {"value": "Ada"}, 2)
    assert [each["status"] for each in found["attempts"]] == ["FAILED", "COMPLETED"]
    assert found["attempts"][0]["error"]["message"] == "not yet"
    assert all(each["worker"] == "w1" and each["started_at"] for each in found["attempts"])
    problem(await api.http.get(f"/v1/executions/{execution_id}/nodes/b"), 404, "execution_not_found")


async def test_why_and_cancel(api: Api, ledger: Path, tmp_path: Path) -> None:
    gate = {"ledger": str(ledger), "gate": str(tmp_path / "gate")}
    flow = {"name": "waits", "nodes": [node("a", config=gate), node("b", "a", config=gate)]}
    execution_id = await api.start(flow)
    await until(lambda: read(ledger), "a to run")

    async def running() -> Any:
        why = await api.get(f"/v1/executions/{execution_id}/why")
        return why if why["nodes"] and why["nodes"][0]["status"] == "RUNNING" else None

    why = await until(running, "a to be seen running")
    assert [each["node"] for each in why["nodes"]] == ["a", "b"]
    assert "waits for a" in why["nodes"][1]["why"]

    asked = await api.post(f"/v1/executions/{execution_id}/cancel")
    assert asked == {"execution_id": execution_id, "cancel_requested": True}
    ended = await api.ended(execution_id)
    assert ended["status"] == "CANCELLED"
    assert {each["status"] for each in ended["nodes"]} == {"CANCELLED"}
    await until(lambda: read(ledger, "cancelled"), "the handler to be stopped")
    problem(await api.http.post(f"/v1/executions/{execution_id}/cancel"), 409, "conflict")
    assert (await api.get(f"/v1/executions/{execution_id}/why"))["nodes"] == []


async def broken(api: Api, ledger: Path, name: str = "breaks") -> str:
    """Its first node is complete, its second one breaks in the first run."""
    flow = {
        "name": name,
        "nodes": [
            node("a", config={"ledger": str(ledger)}),
            node("b", "a", handler="break", config={"ledger": str(ledger), "only_run": 1}),
        ],
    }
    execution_id = await api.start(flow)
    ended = await api.ended(execution_id)
    assert (ended["status"], ended["error"]["node"]) == ("FAILED", "b")
    return execution_id


@pytest.mark.parametrize("path", ["/v1/executions/{}/retry", "/v1/workflow/trigger/{}"])
async def test_retry_keeps_what_is_complete(api: Api, ledger: Path, path: str) -> None:
    execution_id = await broken(api, ledger)
    if "trigger" in path:
        refused = await api.http.post(path.format(execution_id), json={"input_params": {"x": 1}})
        problem(refused, 422, "invalid_input")
    retried = await api.post(path.format(execution_id))
    assert retried == {"execution_id": execution_id, "status": "RUNNING", "run": 2}
    ended = await api.ended(execution_id)
    assert (ended["status"], ended["run"]) == ("COMPLETED", 2)
    assert [each["node"] for each in read(ledger)] == ["a", "b", "b"]
    problem(await api.http.post(f"/v1/executions/{execution_id}/retry"), 409, "conflict")


async def test_a_dead_letter_is_looked_at_and_retried(api: Api, ledger: Path) -> None:
    execution_id = await broken(api, ledger)
    [letter] = (await api.get("/v1/dlq"))["items"]
    assert (letter["execution_id"], letter["run"], letter["node"], letter["status"]) == (execution_id, 1, "b", "OPEN")
    assert letter["error"]["message"] == "broken" and letter["cause"] and letter["created_at"]
    found = await api.get(f"/v1/dlq/{letter['id']}")
    assert found["task"]["config"] == {"ledger": str(ledger), "only_run": 1}
    assert len(found["task"]["attempts"]) == 1

    retried = await api.post(f"/v1/dlq/{letter['id']}/retry")
    assert retried == {"execution_id": execution_id, "status": "RUNNING", "run": 2}
    assert (await api.ended(execution_id))["status"] == "COMPLETED"
    assert (await api.get("/v1/dlq"))["items"] == []
    assert (await api.get("/v1/dlq", params={"status": "RETRIED"}))["items"][0]["id"] == letter["id"]
    problem(await api.http.post(f"/v1/dlq/{letter['id']}/retry"), 409, "conflict")


async def test_many_dead_letters_are_one_retry_per_execution(api: Api, ledger: Path) -> None:
    entry = {"ledger": str(ledger), "only_run": 1}
    flow = {
        "name": "twice-broken",
        "on_failure": "continue",
        "nodes": [node("a", handler="break", config=entry), node("b", handler="break", config=entry)],
    }
    first, second = await api.start(flow), await broken(api, ledger, "other")
    await api.ended(first)
    assert len((await api.get("/v1/dlq"))["items"]) == 3
    answer = await api.post("/v1/dlq/retry", {"workflow": "twice-broken"})
    assert answer == {
        "retried": [{"execution_id": first, "status": "RUNNING", "run": 2}],
        "refused": [],
        "more": False,
    }
    [left] = (await api.get("/v1/dlq"))["items"]
    answer = await api.post("/v1/dlq/retry", {"ids": [left["id"]]})
    assert [each["execution_id"] for each in answer["retried"]] == [second]
    assert (await api.post("/v1/dlq/retry"))["retried"] == []
    for each in (first, second):
        assert (await api.ended(each))["status"] == "COMPLETED"


async def test_a_dead_letter_is_dropped_once(api: Api, ledger: Path) -> None:
    execution_id = await broken(api, ledger)
    [letter] = (await api.get("/v1/dlq"))["items"]
    dropped = await api.http.delete(f"/v1/dlq/{letter['id']}")
    assert (dropped.status_code, dropped.content) == (204, b"")
    problem(await api.http.delete(f"/v1/dlq/{letter['id']}"), 409, "conflict")
    problem(await api.http.delete(f"/v1/dlq/{NOBODY}"), 404, "dead_letter_not_found")
    assert (await api.get(f"/v1/executions/{execution_id}"))["status"] == "FAILED"
    actions = [each["action"] for each in (await api.get("/v1/audit"))["items"]]
    assert actions == ["drop_letter", "start"]


async def test_workers_queues_handlers(api: Api) -> None:
    async def seen() -> Any:
        return (await api.get("/v1/workers"))["items"]

    [worker] = await until(seen, "the worker to sign in")
    assert worker["name"] == "w1" and worker["alive"] and worker["heartbeat_age_seconds"] < 60
    assert {"note", "input"} <= set(worker["handlers"])
    await api.ended(await api.start(greeting()))
    queues = {each["handler"]: each for each in (await api.get("/v1/queues"))["items"]}
    assert all(each["depth"] == 0 and each["oldest_age_seconds"] is None for each in queues.values())
    handlers = {each["name"]: each["config_schema"] for each in (await api.get("/v1/handlers"))["items"]}
    assert handlers["note"]["properties"]["ledger"]


async def test_audit_has_who_did_what(api: Api, ledger: Path) -> None:
    execution_id = await broken(api, ledger)
    await api.post(f"/v1/executions/{execution_id}/retry")
    await api.start(greeting())
    trail = await api.get("/v1/audit", params={"execution_id": execution_id})
    assert [(each["action"], each["actor"]) for each in trail["items"]] == [
        ("retry", "anonymous@127.0.0.1"),
        ("start", "anonymous@127.0.0.1"),
    ]
    assert trail["stuck"] == []
    page = await api.get("/v1/audit", params={"limit": 1})
    assert len(page["items"]) == 1 and page["next_cursor"]


async def test_validate_stores_nothing(api: Api) -> None:
    assert await api.post("/v1/validate", greeting(), status=200) == {"valid": True, "name": "greeting", "nodes": 2}
    wrong = greeting(nodes=[node("a", "b", handler="nope"), node("b", "a", handler="input"), node("a", "x")])
    errors = problem(await api.http.post("/v1/validate", json=wrong), 422, "invalid_definition")["errors"]
    assert {"duplicate_id", "unknown_handler", "cycle"} <= {each["code"] for each in errors}
    assert (await api.get("/v1/workflows"))["items"] == []


async def test_health_metrics_and_documents(api: Api) -> None:
    assert await api.get("/healthz") == {"status": "ok"}
    assert await api.get("/readyz") == {"status": "ready", "stores": {"valkey": "ok", "sql": "ok"}}
    await api.http.get(f"/v1/executions/{NOBODY}")
    await api.http.get("/nothing/here")
    text = (await api.http.get("/metrics")).text
    counted = 'headrace_http_requests_total{method="GET",route="/v1/executions/{execution_id}",status="404"} 1.0'
    assert counted in text
    assert 'route="unknown",status="404"' in text and "/nothing/here" not in text
    assert "headrace_http_request_seconds_bucket" in text
    page = await api.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html") and "/v1/executions/{execution_id}" in page.text
    assert "http://" not in page.text and "https://" not in page.text and "<script" not in page.text
    assert (await api.http.get("/")).headers["location"] == "/docs"


async def test_an_execution_that_is_not_there(api: Api) -> None:
    reads = [("GET", each) for each in ("", "/nodes/a", "/events", "/why")]
    for method, path in (*reads, ("POST", "/cancel"), ("POST", "/retry")):
        for name in (NOBODY, "nobody", "%00", "..%2f..", NOBODY.upper(), "\u00e4", "a" * 5000):
            answer = await api.http.request(method, f"/v1/executions/{name}{path}")
            problem(answer, 404, "not_found" if "%2f" in name else "execution_not_found")
    for path in ("/v1/workflow/trigger/nobody", f"/v1/workflow/trigger/{NOBODY}"):
        problem(await api.http.post(path), 404, "execution_not_found")


async def test_every_answer_is_guarded(api: Api) -> None:
    answers: list[httpx2.Response] = [
        await api.http.get("/v1/executions"),
        await api.http.get("/v1/nothing"),
        await api.http.put("/v1/executions"),
        await api.http.get("/docs"),
        await api.http.post("/v1/executions", content=b"{"),
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
    assert answers[2].headers["allow"]
