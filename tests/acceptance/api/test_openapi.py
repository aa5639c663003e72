"""The OpenAPI document: complete, stable, and true of what the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from headrace.engine.opener import Opener
from tests.acceptance.api.client import Api, greeting
from tests.acceptance.api.test_rows import broken

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

OPERATIONS = {
    "POST /v1/workflow": "submit_workflow",
    "POST /v1/workflow/trigger/{execution_id}": "trigger_execution",
    "POST /v1/executions": "start_execution",
    "GET /v1/executions": "list_executions",
    "GET /v1/executions/events": "follow_executions",
    "GET /v1/executions/{execution_id}": "get_execution",
    "GET /v1/executions/{execution_id}/nodes/{node}": "get_node",
    "GET /v1/executions/{execution_id}/attempts": "list_attempts",
    "GET /v1/executions/{execution_id}/events": "follow_execution",
    "GET /v1/executions/{execution_id}/why": "explain_execution",
    "POST /v1/executions/{execution_id}/cancel": "cancel_execution",
    "POST /v1/executions/{execution_id}/retry": "retry_execution",
    "GET /v1/workflows": "list_workflows",
    "GET /v1/workflows/{name}": "get_workflow",
    "GET /v1/workflows/{name}/versions/{version}": "get_workflow_version",
    "POST /v1/validate": "validate_definition",
    "GET /v1/dlq": "list_dead_letters",
    "POST /v1/dlq/retry": "retry_dead_letters",
    "GET /v1/dlq/{letter_id}": "get_dead_letter",
    "POST /v1/dlq/{letter_id}/retry": "retry_dead_letter",
    "DELETE /v1/dlq/{letter_id}": "drop_dead_letter",
    "GET /v1/workers": "list_workers",
    "GET /v1/queues": "list_queues",
    "GET /v1/handlers": "list_handlers",
    "GET /v1/audit": "audit",
    "GET /healthz": "healthz",
    "GET /readyz": "readyz",
    "GET /metrics": "metrics",
}


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_every_operation_is_there_under_its_id(api: Api) -> None:
    document = await api.get("/openapi.json")
    assert {call: operation["operationId"] for call, operation in operations(document)} == OPERATIONS
    for call, operation in operations(document):
        assert operation["description"], call
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert named == {part[1:-1] for part in call.split("/") if part.startswith("{")}, call
        for answer in operation["responses"].values():
            if "application/json" in answer.get("content", ()):
                assert answer["content"]["application/json"]["schema"].keys() == {"$ref"}, call
        for body in operation.get("requestBody", {}).get("content", {}).values():
            assert "example" in body, call
            validator(document, body["schema"]).validate(body["example"])


def validator(document: Any, schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


def without_extras(schema: Any) -> Any:
    """Where fields are named, no others: clients may get more than the document says, but not today."""
    if isinstance(schema, list):
        return [without_extras(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else {}
    return {**closed, **{key: without_extras(value) for key, value in schema.items()}}


async def test_answers_are_as_it_says(api: Api, ledger: Path) -> None:
    document = without_extras(await api.get("/openapi.json"))
    ended = await api.start(greeting())
    await api.ended(ended)
    failed = await broken(api, ledger)
    [letter] = (await api.get("/v1/dlq"))["items"]
    waiting = await api.post("/v1/workflow", greeting("other"), status=201)
    values = {"execution_id": ended, "node": "done", "name": "greeting", "version": "1", "letter_id": letter["id"]}
    bodies = {
        "submit_workflow": greeting(),
        "validate_definition": greeting(),
        "start_execution": {"workflow": "greeting"},
        "retry_execution": {"from": ["a"]},
        "retry_dead_letters": {},
    }
    for call, operation in operations(document):
        method, path = call.split(" ")
        if path.endswith("/events") or path == "/metrics":
            continue
        chosen = values | {
            "trigger_execution": {"execution_id": waiting["execution_id"]},
            "retry_execution": {"execution_id": failed},
        }.get(operation["operationId"], {})
        answer = await api.http.request(method, path.format(**chosen), json=bodies.get(operation["operationId"]))
        told = operation["responses"][str(answer.status_code)]
        if answer.status_code != 204:
            media_type = answer.headers["content-type"]
            validator(document, told["content"][media_type]["schema"]).validate(answer.json())


async def test_what_is_being_opened_is_shown_whole(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two halves of opening, the hot store has a reservation: SQL knows more than that."""

    async def nothing(*_: object) -> set[str]:
        reserved.set()
        return set()

    reserved = asyncio.Event()
    monkeypatch.setattr(Opener, "_fill", nothing)
    execution_id = await api.start(greeting())
    await reserved.wait()
    document = await api.get("/openapi.json")
    seen = await api.get(f"/v1/executions/{execution_id}")
    validator(document, document["components"]["schemas"]["Execution"]).validate(seen)
    assert (seen["status"], {each["status"] for each in seen["nodes"]}) == ("RUNNING", {"PENDING"})
