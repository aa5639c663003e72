"""The shapes of answers, for the OpenAPI document alone: what is sent is written by msgspec.

The tests hold the answers of a running server against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from headrace.api.problems import KINDS
from headrace.engine.causes import Cause

Time = Annotated[str, Field(description="RFC 3339, UTC, with milliseconds.", examples=["2026-01-31T12:00:00.000Z"])]
ExecutionStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
NodeStatus = Literal[
    "PENDING", "QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]  # fmt: skip


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


class _Attempt(BaseModel):
    run: int
    attempt: int
    status: str
    worker: str | None
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    next_attempt_at: Time | None
    error: dict[str, Any] | None


class Attempt(_Attempt):
    logs: list[dict[str, Any]] = Field(description="What the handler said, up to a limit.")


class NodeAttempt(_Attempt):
    node: str


class Attempts(BaseModel):
    items: list[NodeAttempt]
    next_cursor: str | None


class NodeDetails(Node):
    config: dict[str, Any] | None = Field(description="As the worker gets it; secrets are references.")
    output: dict[str, Any] | None
    attempts: list[Attempt]


class Progress(BaseModel):
    """Nodes. What never ran in an execution that failed fast or was cancelled is neither done nor failed."""

    done: int = Field(description="COMPLETED or SKIPPED.")
    total: int
    failed: int


class _Execution(BaseModel):
    execution_id: str
    workflow: str
    version: int
    status: ExecutionStatus
    run: int
    error: dict[str, Any] | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class ExecutionItem(_Execution):
    progress: Progress | None = Field(description="Null while it is unknown: the next run is not open yet.")


class Execution(_Execution):
    version: int | None = Field(description="Null while the SQL store is away.")  # type: ignore[assignment]
    input_params: dict[str, Any]
    output: dict[str, Any] | None
    nodes: list[Node]


class Executions(BaseModel):
    items: list[ExecutionItem]
    next_cursor: str | None


class NodeChange(BaseModel):
    id: str
    status: NodeStatus
    attempt: int
    worker: str | None = None
    error: dict[str, Any] | None = None
    next_attempt_at: Time | None = None
    reason: str | None = None


class Change(BaseModel):
    """What changed in an execution: the data of an event `change`."""

    execution_id: str
    run: int
    at: Time
    nodes: list[NodeChange]


class ListChange(BaseModel):
    """The page of the list (`snapshot`), or what is new, changed or gone in it (`change`)."""

    items: list[ExecutionItem]
    gone: list[str] = []


class Trouble(BaseModel):
    cause: Cause = Field(description="By name; docs/operations.md has them all.")
    why: str
    do: str = Field(description="What helps.")


class Reason(Trouble):
    node: str | None = Field(description="None: it concerns the execution as a whole.")
    status: str


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
    problems: list[Trouble] = Field(description="What concerns all executions: a store, orchestrators, workers.")
    stuck: list[Stuck] = Field(description="Executions that cannot make progress, the longest waiting first.")
    stuck_count: int = Field(description="All of them; of very many only the first are told.")
    live_count: int = Field(description="Executions that were looked at: all that are running.")
    items: list[AuditItem] = Field(description="Who did what when, newest first.")
    next_cursor: str | None


class Health(BaseModel):
    status: Literal["ok"]


class Ready(BaseModel):
    status: Literal["ready"]
    stores: dict[str, Literal["ok"]]
