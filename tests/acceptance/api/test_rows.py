"""The contract's REST table, row by row: workflows and executions, asked of separately started processes.

`calls` names the rows that a test is about; test_table.py sees to it that there is one for each.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.api.client import Client, Remote, greeting, one_note, problem
from tests.acceptance.api.house import SECRET, House
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
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.calls("POST /v1/workflow", "POST /v1/workflow/trigger/{execution_id}", "GET /v1/executions/{execution_id}")
async def test_submit_then_trigger(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    flow = greeting(remote.name)
    flow["nodes"].insert(1, node("held", "start", config={"ledger": str(ledger), "gate": str(gate)}))
    made = await remote.post("/v1/workflow", flow, status=201)
    execution_id = made["execution_id"]
    assert {"workflow_definition_id", "execution_id", "name", "version", "status"} <= made.keys()
    assert (made["name"], made["version"], made["status"]) == (remote.name, 1, "PENDING")
    waiting = await remote.get(f"/v1/executions/{execution_id}")
    assert (waiting["status"], waiting["started_at"]) == ("PENDING", None)
    assert {each["status"] for each in waiting["nodes"]} == {"PENDING"}

    refused = await remote.http.post(f"/v1/workflow/trigger/{execution_id}", json={"input_params": {"who": 7}})
    problem(refused, 422, "invalid_input")
    assert (await remote.get(f"/v1/executions/{execution_id}"))["status"] == "PENDING"
    triggered = await remote.post(f"/v1/workflow/trigger/{execution_id}", {"input_params": {"who": "Ada"}})
    assert triggered == {"execution_id": execution_id, "status": "RUNNING", "run": 1}
    await until(lambda: read(ledger), "its node to run")
    problem(await remote.http.post(f"/v1/workflow/trigger/{execution_id}"), 409, "conflict")
    gate.touch()
    ended = await remote.ended(execution_id)
    assert ended.keys() == FIELDS
    assert {frozenset(each) for each in ended["nodes"]} == {frozenset(NODE_FIELDS)}
    assert (ended["status"], ended["run"], ended["error"]) == ("COMPLETED", 1, None)
    assert (ended["output"], ended["input_params"]) == ({"text": "Hello Ada"}, {"who": "Ada"})
    times = [ended[name] for name in ("created_at", "started_at", "finished_at")]
    times += [each[name] for each in ended["nodes"] for name in ("queued_at", "started_at", "finished_at")]
    assert all(TIME.fullmatch(each) for each in times)
    problem(await remote.http.post(f"/v1/workflow/trigger/{execution_id}"), 409, "conflict")


async def test_what_was_triggered_while_valkey_is_away_starts_when_it_is_back(remote: Remote, house: House) -> None:
    made = await remote.post("/v1/workflow", greeting(remote.name), status=201)
    await asyncio.to_thread(house.valkey.stop)
    try:
        triggered = await remote.post(f"/v1/workflow/trigger/{made['execution_id']}")
        assert triggered == {"execution_id": made["execution_id"], "status": "RUNNING", "run": 1}
        started = await remote.post("/v1/executions", {"workflow": remote.name})
        cancelled = await remote.post("/v1/executions", {"workflow": remote.name})
        await remote.post(f"/v1/executions/{cancelled['execution_id']}/cancel")
        assert (await remote.get(f"/v1/executions/{made['execution_id']}"))["status"] == "RUNNING"
        for path in ("/readyz", "/v1/workers", "/v1/queues"):
            away = await remote.http.get(path)
            problem(away, 503, "store_unavailable")
            assert int(away.headers["retry-after"]) > 0
        assert (await remote.http.get("/healthz")).status_code == 200
    finally:
        await asyncio.to_thread(house.valkey.start)
    for each in (made, started):
        assert (await remote.ended(each["execution_id"]))["output"] == {"text": "Hello world"}
    assert (await remote.ended(cancelled["execution_id"]))["status"] == "CANCELLED"


@pytest.mark.calls("GET /v1/workflows", "GET /v1/workflows/{name}", "GET /v1/workflows/{name}/versions/{version}")
async def test_versions_follow_the_content(remote: Remote) -> None:
    name = remote.name
    first = await remote.post("/v1/workflow", greeting(name), status=201)
    same = await remote.post("/v1/workflow", greeting(name), status=201)
    other = await remote.post("/v1/workflow", greeting(name, description="changed"), status=201)
    assert [each["version"] for each in (first, same, other)] == [1, 1, 2]
    assert first["workflow_definition_id"] == same["workflow_definition_id"] != other["workflow_definition_id"]
    assert first["execution_id"] != same["execution_id"]

    listed = (await remote.get("/v1/workflows", params={"limit": 1, "cursor": name[:-1]}))["items"]
    assert [(each["name"], each["version"]) for each in listed] == [(name, 2)]
    newest = await remote.get(f"/v1/workflows/{name}")
    assert newest["version"] == 2 and newest["definition"]["description"] == "changed"
    assert [each["version"] for each in newest["versions"]] == [2, 1]
    older = await remote.get(f"/v1/workflows/{name}", params={"limit": 1, "cursor": "2"})
    assert older["version"] == 2 and [each["version"] for each in older["versions"]] == [1]
    assert (await remote.get(f"/v1/workflows/{name}/versions/1"))["definition"] == greeting(name)
    for path in (f"{name}-2", f"{name}/versions/3", f"{name}/versions/x"):
        problem(await remote.http.get(f"/v1/workflows/{path}"), 404, "workflow_not_found")


@pytest.mark.calls("POST /v1/validate")
async def test_validate_stores_nothing(remote: Remote) -> None:
    name = remote.name
    valid = await remote.post("/v1/validate", greeting(name), status=200)
    assert valid == {"valid": True, "name": name, "nodes": 2}
    wrong = greeting(name, nodes=[node("a", "b", handler="nope"), node("b", "a", handler="input"), node("a", "x")])
    errors = problem(await remote.http.post("/v1/validate", json=wrong), 422, "invalid_definition")["errors"]
    assert {"duplicate_id", "unknown_handler", "cycle"} <= {each["code"] for each in errors}
    same = problem(await remote.http.post("/v1/workflow", json=wrong), 422, "invalid_definition")["errors"]
    assert same == errors
    problem(await remote.http.get(f"/v1/workflows/{name}"), 404, "workflow_not_found")


async def test_yaml_and_a_body_without_a_content_type(remote: Remote) -> None:
    text = f"name: {remote.name}\nnodes:\n  - id: start\n    handler: input\n"
    answer = await remote.http.post("/v1/workflow", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201 and answer.json()["name"] == remote.name
    wrong = await remote.http.post("/v1/workflow", content=text + "  - id: b\n    handler: inputt\n", headers={
        "Content-Type": "application/yaml; charset=utf-8"
    })  # fmt: skip
    [error] = problem(wrong, 422, "invalid_definition")["errors"]
    assert (error["code"], error["node"], error["line"]) == ("unknown_handler", "b", 6)
    plain = await remote.http.post("/v1/validate", content='{"name": "x", "nodes": [{"id": "a", "handler": "input"}]}')
    assert plain.json() == {"valid": True, "name": "x", "nodes": 1}


@pytest.mark.calls("POST /v1/executions")
async def test_start_by_definition_and_by_name(remote: Remote) -> None:
    name = remote.name
    body = {"definition": greeting(name), "input_params": {"who": "Ada"}}
    answer = await remote.http.post("/v1/executions", json=body)
    assert answer.status_code == 202
    made = answer.json()
    assert answer.headers["location"] == f"/v1/executions/{made['execution_id']}"
    assert (made["name"], made["version"], made["status"], made["run"]) == (name, 1, "RUNNING", 1)
    assert (await remote.ended(made["execution_id"]))["output"] == {"text": "Hello Ada"}

    await remote.post("/v1/workflow", greeting(name, description="second"), status=201)
    newest = await remote.post("/v1/executions", {"workflow": name})
    first = await remote.post("/v1/executions", {"workflow": name, "version": 1, "input_params": {"who": "Bo"}})
    assert (newest["version"], first["version"]) == (2, 1)
    assert (await remote.ended(first["execution_id"]))["output"] == {"text": "Hello Bo"}
    assert (await remote.ended(newest["execution_id"]))["output"] == {"text": "Hello world"}
    problem(await remote.http.post("/v1/executions", json={"workflow": f"{name}-2"}), 404, "workflow_not_found")
    missing = await remote.http.post("/v1/executions", json={"workflow": name, "version": 3})
    problem(missing, 404, "workflow_not_found")


async def test_inputs_are_checked_before_anything_happens(remote: Remote) -> None:
    body = {"definition": greeting(remote.name), "input_params": {"who": 7, "x": 1}}
    errors = problem(await remote.http.post("/v1/executions", json=body), 422, "invalid_input")["errors"]
    assert {each["code"] for each in errors} == {"bad_input", "unknown_input"}
    assert (await remote.get("/v1/executions", params={"workflow": remote.name}))["items"] == []


async def test_fifty_equal_requests_are_one_execution(remote: Remote, ledger: Path) -> None:
    body, headers = {"definition": one_note(ledger, remote.name)}, {"Idempotency-Key": f"the same {remote.name}"}
    answers = await asyncio.gather(*(remote.http.post("/v1/executions", json=body, headers=headers) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    await remote.ended(answers[0].json()["execution_id"])
    assert len(read(ledger)) == 1
    assert len((await remote.get("/v1/executions", params={"workflow": remote.name}))["items"]) == 1
    other = await remote.http.post("/v1/executions", json={"workflow": remote.name}, headers=headers)
    problem(other, 422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e4"])
async def test_idempotency_keys_that_are_none(remote: Remote, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    body = {"definition": greeting(remote.name)}
    refused = await remote.http.post("/v1/executions", json=body, headers=headers)  # type: ignore[arg-type]
    assert problem(refused, 422, "invalid_request")["errors"][0]["loc"] == ["header", "Idempotency-Key"]


@pytest.mark.calls("GET /v1/executions")
async def test_list_with_pages_and_filters(remote: Remote) -> None:
    ids = [await remote.start(greeting(f"{remote.name}-{number % 2}")) for number in range(5)]
    for each in ids:
        await remote.ended(each)
    waiting = await remote.post("/v1/workflow", greeting(f"{remote.name}-0"), status=201)
    ours: dict[str, Any] = {"q": remote.name}
    seen: list[str] = []
    cursor = ""
    while True:
        page = await remote.get("/v1/executions", params={**ours, "limit": 2, "cursor": cursor})
        seen += [each["execution_id"] for each in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == [waiting["execution_id"], *reversed(ids)]
    newest = await remote.get("/v1/executions", params={"limit": 1})
    assert newest["items"][0]["execution_id"] == seen[0] and newest["next_cursor"] == seen[0]

    async def listed(**params: Any) -> list[str]:
        return [each["execution_id"] for each in (await remote.get("/v1/executions", params=params))["items"]]

    assert await listed(status="PENDING", **ours) == [waiting["execution_id"]]
    assert await listed(workflow=f"{remote.name}-1") == [ids[3], ids[1]]
    assert await listed(workflow=f"{remote.name}-1", status="RUNNING") == []
    assert await listed(q=f"{remote.name}-1") == [ids[3], ids[1]]
    assert await listed(q=ids[2]) == [ids[2]]
    created = (await remote.get(f"/v1/executions/{ids[2]}"))["created_at"]
    assert await listed(since=created, workflow=f"{remote.name}-0", status="COMPLETED") == [ids[4], ids[2]]
    assert ids[2] not in await listed(until=created, **ours)
    assert await listed(since="2100-01-01") == []


async def test_the_list_tells_how_far_each_is(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    note, gate = {"ledger": str(ledger)}, tmp_path / "gate"
    flow = {
        "name": remote.name,
        "on_failure": "continue",
        "nodes": [
            node("bad", handler="break", config={**note, "only_run": 1}),
            node("after", "bad", config=note),
            node("good", config=note),
            node("held", "good", config={**note, "gate": str(gate)}),
            node("last", "held", config=note),
        ],
    }
    waiting = (await remote.post("/v1/workflow", flow, status=201))["execution_id"]

    async def told() -> dict[str, Any]:
        items = (await remote.get("/v1/executions", params={"workflow": remote.name}))["items"]
        return {each["execution_id"]: (each["status"], each["error"], each["progress"]) for each in items}

    async def is_told(execution_id: str, status: str, done: int, failed: int) -> Any:
        async def told_so() -> Any:
            found = (await told())[execution_id]
            return found if found[::2] == (status, {"done": done, "total": 5, "failed": failed}) else None

        return await until(told_so, f"{execution_id} to be {status} with {done} done and {failed} failed")

    await is_told(waiting, "PENDING", 0, 0)
    cancelled, failed = [await remote.start(flow) for _ in range(2)]
    for each in (cancelled, failed):
        assert (await is_told(each, "RUNNING", 2, 1))[1] is None  # good; after is skipped
    await remote.post(f"/v1/executions/{cancelled}/cancel")
    await is_told(cancelled, "CANCELLED", 2, 1)
    gate.touch()
    _, error, _ = await is_told(failed, "FAILED", 4, 1)
    assert (error["node"], error["message"]) == ("bad", "broken")
    assert (await remote.get(f"/v1/executions/{failed}"))["error"] == error
    for each in (cancelled, failed):
        await remote.post(f"/v1/executions/{each}/retry")
        await is_told(each, "COMPLETED", 5, 0)


@pytest.mark.calls("GET /v1/executions/{execution_id}/nodes/{node}")
async def test_a_node_with_config_output_and_attempts(remote: Remote, ledger: Path) -> None:
    given = {"ledger": str(ledger), "fails": 1, "value": ["{{ start.who }}", "{{ secret.TOKEN }}"]}
    flow = {
        "name": remote.name,
        "nodes": [node("start", handler="input"), node("a", "start", handler="fail", config=given)],
    }
    execution_id = await remote.start(flow, who="Ada")
    await remote.ended(execution_id)
    answer = await remote.http.get(f"/v1/executions/{execution_id}/nodes/a")
    assert SECRET not in answer.text
    found = answer.json()
    assert found["config"] == given | {"value": ["Ada", "{{ secret.TOKEN }}"]}
    assert (found["status"], found["attempt"]) == ("COMPLETED", 2)
    assert found["output"] == {"value": ["Ada", "***"]}
    assert [each["status"] for each in found["attempts"]] == ["FAILED", "COMPLETED"]
    assert found["attempts"][0]["error"]["message"] == "not yet"
    for each in found["attempts"]:
        assert each["worker"].startswith("worker@")
        assert all(TIME.fullmatch(each[name]) for name in ("queued_at", "started_at", "finished_at"))
    problem(await remote.http.get(f"/v1/executions/{execution_id}/nodes/b"), 404, "node_not_found")


@pytest.mark.calls("GET /v1/executions/{execution_id}/attempts")
async def test_all_attempts_of_an_execution(remote: Remote, ledger: Path) -> None:
    note = {"ledger": str(ledger)}
    flow = {
        "name": remote.name,
        "on_failure": "continue",
        "nodes": [
            node("a", handler="fail", config={**note, "fails": 1}),
            node("b", "a", handler="break", config={**note, "only_run": 1}),
            node("c", "b", config=note),
        ],
    }
    execution_id = await remote.start(flow)
    await remote.ended(execution_id)
    await remote.post(f"/v1/executions/{execution_id}/retry")
    await remote.ended(execution_id)
    path = f"/v1/executions/{execution_id}/attempts"
    whole = await remote.get(path)
    assert whole["next_cursor"] is None
    found = [(each["node"], each["run"], each["attempt"], each["status"]) for each in whole["items"]]
    assert found == [
        ("a", 1, 1, "FAILED"), ("a", 1, 2, "COMPLETED"), ("b", 1, 1, "FAILED"), ("c", 1, 0, "SKIPPED"),
        ("b", 2, 1, "COMPLETED"), ("c", 2, 1, "COMPLETED"),
    ]  # fmt: skip
    assert whole["items"][0]["next_attempt_at"] and whole["items"][2]["error"]["message"] == "broken"
    pages, cursor = [], ""
    while cursor is not None:
        page = await remote.get(path, params={"limit": 1, "cursor": cursor})
        pages += page["items"]
        cursor = page["next_cursor"]
    assert pages == whole["items"]
    for name in ("a", "b", "c"):
        details = (await remote.get(f"/v1/executions/{execution_id}/nodes/{name}"))["attempts"]
        own = [each for each in whole["items"] if each["node"] == name]
        assert own == [{"node": name, **each} for each in map(without_logs, details)]
    waiting = await remote.post("/v1/workflow", flow, status=201)
    assert await remote.get(f"/v1/executions/{waiting['execution_id']}/attempts") == {"items": [], "next_cursor": None}
    for cursor in ("x", "1-1-1", "1-1-1-\x00", "9" * 16 + "-1-1-a"):
        problem(await remote.http.get(path, params={"cursor": cursor}), 422, "invalid_request")


def without_logs(attempt: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attempt.items() if name != "logs"}


@pytest.mark.calls("GET /v1/executions/{execution_id}/why", "POST /v1/executions/{execution_id}/cancel")
async def test_why_and_cancel(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    gate = {"ledger": str(ledger), "gate": str(tmp_path / "gate")}
    waits = {"name": remote.name, "nodes": [node("a", config=gate), node("b", "a", config=gate)]}
    waiting = await remote.post("/v1/workflow", waits, status=201)
    problem(await remote.http.post(f"/v1/executions/{waiting['execution_id']}/retry"), 409, "conflict")
    execution_id = await remote.start(waits)
    await until(lambda: read(ledger), "a to run")

    async def running() -> Any:
        why = await remote.get(f"/v1/executions/{execution_id}/why")
        return why if why["nodes"] and why["nodes"][0]["cause"] == "running" else None

    why = await until(running, "a to be seen running")
    assert [each["node"] for each in why["nodes"]] == ["a", "b"]
    assert (why["nodes"][1]["cause"], why["nodes"][1]["why"]) == ("parents", "waits for a")

    problem(await remote.http.post(f"/v1/executions/{execution_id}/retry"), 409, "conflict")
    asked = await remote.post(f"/v1/executions/{execution_id}/cancel")
    assert asked == {"execution_id": execution_id, "cancel_requested": True}
    ended = await remote.ended(execution_id)
    assert ended["status"] == "CANCELLED"
    assert {each["status"] for each in ended["nodes"]} == {"CANCELLED"}
    await until(lambda: read(ledger, "cancelled"), "the handler to be stopped")
    problem(await remote.http.post(f"/v1/executions/{execution_id}/cancel"), 409, "conflict")
    assert (await remote.get(f"/v1/executions/{execution_id}/why"))["nodes"] == []

    (tmp_path / "gate").touch()
    assert (await remote.post(f"/v1/executions/{execution_id}/retry"))["run"] == 2
    assert (await remote.ended(execution_id))["status"] == "COMPLETED"


async def broken(api: Client, ledger: Path, name: str = "breaks") -> str:
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


@pytest.mark.calls("POST /v1/executions/{execution_id}/retry", "POST /v1/workflow/trigger/{execution_id}")
async def test_retry_keeps_what_is_complete(remote: Remote, tmp_path: Path) -> None:
    for path in ("/v1/executions/{}/retry", "/v1/workflow/trigger/{}"):
        ledger = tmp_path / path.replace("/", "-")
        execution_id = await broken(remote, ledger, remote.name)
        if "trigger" in path:
            refused = await remote.http.post(path.format(execution_id), json={"input_params": {"x": 1}})
            problem(refused, 422, "invalid_input")
        retried = await remote.post(path.format(execution_id))
        assert retried == {"execution_id": execution_id, "status": "RUNNING", "run": 2}
        ended = await remote.ended(execution_id)
        assert (ended["status"], ended["run"]) == ("COMPLETED", 2)
        assert [each["node"] for each in read(ledger)] == ["a", "b", "b"]
        problem(await remote.http.post(f"/v1/executions/{execution_id}/retry"), 409, "conflict")


@pytest.mark.calls("POST /v1/executions/{execution_id}/retry", "GET /v1/audit")
async def test_retry_from_a_node(remote: Remote, ledger: Path) -> None:
    execution_id = await broken(remote, ledger, remote.name)
    path = f"/v1/executions/{execution_id}/retry"
    for body, loc, said in (
        ({"from": ["a", "aa", "x"]}, ["from", 1], "there is no node aa: did you mean a?"),
        ({"from": ["a", 7]}, ["from", 1], "from[1] must be the id of a node, not a number"),
        ({"from": "a"}, ["from"], 'from must be a list of nodes, not the text "a": write [a]'),
        ({"form": ["a"]}, ["form"], "the body has no field form: did you mean from?"),
    ):
        error = problem(await remote.http.post(path, json=body), 422, "invalid_request")["errors"][0]
        assert (error["loc"], error["msg"]) == (loc, said)
    refused = problem(await remote.http.post(path, json={"from": ["x", "\u202ey"]}), 422, "invalid_request")
    assert [each["msg"] for each in refused["errors"]] == ["there is no node x", "there is no node \\u202ey"]
    assert (await remote.get(f"/v1/executions/{execution_id}"))["run"] == 1
    assert (await remote.post(path, {"from": ["a"]}))["run"] == 2
    assert (await remote.ended(execution_id))["status"] == "COMPLETED"
    problem(await remote.http.post(path, json={"from": []}), 409, "conflict")
    problem(await remote.http.post(path), 409, "conflict")
    assert (await remote.post(path, {"from": ["b", "b"]}))["run"] == 3
    ended = await remote.ended(execution_id)
    assert (ended["status"], ended["run"]) == ("COMPLETED", 3)
    assert [(each["run"], each["node"]) for each in read(ledger)] == [(1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "b")]
    trail = (await remote.get("/v1/audit", params={"execution_id": execution_id}))["items"]
    assert [(each["action"], each["detail"]) for each in trail] == [
        ("retry", "from b, b"), ("retry", "from a"), ("start", None),
    ]  # fmt: skip


async def test_an_execution_that_is_not_there(remote: Remote) -> None:
    reads = [("GET", each) for each in ("", "/nodes/a", "/attempts", "/events", "/why")]
    for method, path in (*reads, ("POST", "/cancel"), ("POST", "/retry")):
        for name in (NOBODY, "nobody", "%00", "..%2f..", NOBODY.upper(), "\u00e4", "a" * 5000):
            answer = await remote.http.request(method, f"/v1/executions/{name}{path}")
            problem(answer, 404, "not_found" if "%2f" in name else "execution_not_found")
    for path in ("/v1/workflow/trigger/nobody", f"/v1/workflow/trigger/{NOBODY}"):
        problem(await remote.http.post(path), 404, "execution_not_found")
