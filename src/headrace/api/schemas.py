"""The shapes of bodies and answers, for the OpenAPI document alone: what is sent is written by msgspec.

The tests hold the answers of a running server against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field

from headrace.api.problems import KINDS, MEDIA_TYPE
from headrace.model.schema import definition_schema

Time = Annotated[str, Field(description="RFC 3339, UTC, with milliseconds.", examples=["2026-01-31T12:00:00.000Z"])]
ExecutionStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
NodeStatus = Literal[
    "PENDING", "QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]  # fmt: skip

ID = "0198c0de-0000-7000-8000-000000000001"
DEFINITION: dict[str, Any] = {
    "name": "greeting",
    "inputs": {"name": {"type": "string", "default": "world"}},
    "nodes": [
        {"id": "start", "handler": "input"},
        {"id": "done", "handler": "output", "dependencies": ["start"], "config": {"text": "Hello {{ start.name }}"}},
    ],
}


class ErrorItem(BaseModel):
    loc: list[str | int]
    msg: str
    code: str
    node: str | None = None
    line: int | None = None
    column: int | None = None


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    errors: list[ErrorItem] = []


class Submitted(BaseModel):
    workflow_definition_id: str
    execution_id: str
    name: str
    version: int
    status: ExecutionStatus
    run: int


class Triggered(BaseModel):
    execution_id: str
    status: Literal["RUNNING"]
    run: int


class Cancelled(BaseModel):
    execution_id: str
    cancel_requested: Literal[True]


class Node(BaseModel):
    id: str
    handler: str
    status: NodeStatus
    attempt: int
    dependencies: list[str]
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    error: dict[str, Any] | None
    reason: str | None


class Attempt(BaseModel):
    run: int
    attempt: int
    status: str
    worker: str | None
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    next_attempt_at: Time | None
    error: dict[str, Any] | None


class NodeDetails(Node):
    config: dict[str, Any] | None = Field(description="As the worker gets it; secrets are references.")
    output: dict[str, Any] | None
    attempts: list[Attempt]


class ExecutionItem(BaseModel):
    execution_id: str
    workflow: str
    version: int
    status: ExecutionStatus
    run: int
    error: dict[str, Any] | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class Execution(ExecutionItem):
    input_params: dict[str, Any]
    output: dict[str, Any] | None
    nodes: list[Node]


class Executions(BaseModel):
    items: list[ExecutionItem]
    next_cursor: str | None


class Reason(BaseModel):
    node: str | None
    status: str
    why: str


class Why(BaseModel):
    execution_id: str
    nodes: list[Reason]


class WorkflowItem(BaseModel):
    name: str
    version: int
    workflow_definition_id: str
    created_at: Time


class Workflows(BaseModel):
    items: list[WorkflowItem]
    next_cursor: str | None


class WorkflowVersion(BaseModel):
    name: str
    version: int
    definition: dict[str, Any]


class Workflow(WorkflowVersion):
    """The newest version, and the list of all."""

    versions: list[WorkflowItem]
    next_cursor: str | None


class Valid(BaseModel):
    valid: Literal[True]
    name: str
    nodes: int


class LetterItem(BaseModel):
    id: str
    execution_id: str
    run: int
    node: str
    attempt: int
    workflow: str
    cause: str
    error: dict[str, Any]
    status: Literal["OPEN", "RETRIED", "DROPPED"]
    created_at: Time


class Letters(BaseModel):
    items: list[LetterItem]
    next_cursor: str | None


class Letter(LetterItem):
    task: NodeDetails = Field(description="The node whose task failed, with its config and all attempts.")


class Retried(BaseModel):
    retried: list[Triggered]
    refused: list[dict[str, str]] = Field(description="Executions whose state does not allow it.")
    more: bool = Field(description="Whether letters are left: call again.")


class Worker(BaseModel):
    name: str
    alive: bool
    heartbeat_age_seconds: float
    handlers: list[str]
    slots: int | None
    running: int | None


class Workers(BaseModel):
    items: list[Worker]


class Queue(BaseModel):
    handler: str
    depth: int
    oldest_age_seconds: float | None


class Queues(BaseModel):
    items: list[Queue]


class Handler(BaseModel):
    name: str
    config_schema: dict[str, Any] | None


class Handlers(BaseModel):
    items: list[Handler]


class AuditItem(BaseModel):
    id: str
    at: Time
    actor: str
    action: str
    execution_id: str | None
    detail: str | None


class Stuck(BaseModel):
    execution_id: str
    workflow: str
    idle_seconds: float
    nodes: list[Reason]


class Audit(BaseModel):
    stuck: list[Stuck] = Field(description="Executions that cannot make progress, the longest waiting first.")
    items: list[AuditItem] = Field(description="Who did what when, newest first.")
    next_cursor: str | None


class Health(BaseModel):
    status: Literal["ok"]


class Ready(BaseModel):
    status: Literal["ready"]
    stores: dict[str, Literal["ok"]]


# Answers and bodies of operations

_ALWAYS = (401, 403, 429, 500, 503)
_WORDS = {
    400: "The body cannot be read.", 401: "A valid API key is needed.", 403: "The key or the origin may not do this.",
    404: "There is no such thing.", 408: "The body did not arrive in time.",
    409: "The state of the execution does not allow this.", 413: "The body is too large.",
    422: "The request has problems; each is in errors.", 429: "Too many requests: wait as Retry-After says.",
    500: "Something is wrong with the server.", 503: "A store is away: try again as Retry-After says.",
}  # fmt: skip
_READS_BODY = (400, 408, 413, 422)

Responses = dict[int | str, dict[str, Any]]


def answers(status: int, model: type[BaseModel] | None, words: str, *problems: int, body: bool = False) -> Responses:
    """The answer when all is well, and every problem that there can be."""
    good: dict[str, Any] = {"description": words} | ({"model": model} if model else {})
    found = sorted({*problems, *_ALWAYS, *(_READS_BODY if body else ())})
    return {status: good, **{one: problem(one) for one in found}}


def problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": _WORDS[status], "content": {MEDIA_TYPE: {"schema": schema}}}


def events(words: str, *problems: int) -> Responses:
    example = 'id: 5f3a.7\nevent: change\ndata: {"execution_id": "…", "nodes": […]}\n\n'
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    found = sorted({*problems, *_ALWAYS})
    return {200: {"description": words, "content": content}, **{one: problem(one) for one in found}}


def body(schema: dict[str, Any], example: Any, *, required: bool = True, yaml: bool = False) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    if yaml:
        content["application/yaml"] = {"schema": schema, "example": example}
    return {"requestBody": {"required": required, "content": content}}


def definition_body() -> dict[str, Any]:
    return body({"$ref": "#/components/schemas/Definition"}, DEFINITION, yaml=True)


_INPUT_PARAMS = {"type": "object", "description": "Values for the workflow's inputs."}
TRIGGER_BODY = body(
    {"type": "object", "properties": {"input_params": _INPUT_PARAMS}, "additionalProperties": False},
    {"input_params": {"name": "Ada"}},
    required=False,
)
START_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {
                "workflow": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
                "version": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
                "input_params": _INPUT_PARAMS,
            },
            "required": ["workflow"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"definition": {"$ref": "#/components/schemas/Definition"}, "input_params": _INPUT_PARAMS},
            "required": ["definition"],
            "additionalProperties": False,
        },
    ]
}
START_BODY = body(START_SCHEMA, {"definition": DEFINITION, "input_params": {"name": "Ada"}}, yaml=True)
RETRY_LETTERS_BODY = body(
    {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": {"type": "string", "format": "uuid"}, "maxItems": 1000},
            "workflow": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
        },
        "additionalProperties": False,
    },
    {"workflow": "greeting"},
    required=False,
)


def path_parameter(name: str, words: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": words, "schema": {"type": "string"}}


def definition_components() -> dict[str, Any]:
    """The schema of a definition, with its parts where an OpenAPI document has them."""
    schema = definition_schema({})
    del schema["$schema"]
    parts = schema.pop("$defs")
    del parts["node"]["properties"]["handler"]["enum"]  # which there are, /v1/handlers says
    text = msgspec.json.encode({"Definition": schema, **{f"Definition_{name}": parts[name] for name in parts}})
    moved: dict[str, Any] = msgspec.json.decode(text.replace(b"#/$defs/", b"#/components/schemas/Definition_"))
    return moved
