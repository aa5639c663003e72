"""The shapes of answers, for the OpenAPI document alone: what is sent is written by msgspec.

The tests hold the answers of a running server against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.api.problems import KINDS
from headrace.engine.causes import Cause

Time = Annotated[str, Field(description="RFC 3339, UTC, with milliseconds.", examples=["2026-01-31T12:00:00.000Z"])]
ExecutionStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
NodeStatus = Literal[
    "PENDING", "QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]  # fmt: skip


class Shape(BaseModel):
    model_config = ConfigDict(defer_build=True)  # until somebody asks for the document


class ErrorItem(Shape):
    loc: list[str | int]
    msg: str
    code: str
    node: str | None = None
    line: int | None = None
    column: int | None = None


class Problem(Shape):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    errors: list[ErrorItem] = []


class Submitted(Shape):
    workflow_definition_id: str
    execution_id: str
    name: str
    version: int
    status: ExecutionStatus
    run: int


class Triggered(Shape):
    execution_id: str
    status: Literal["RUNNING"]
    run: int


class Cancelled(Shape):
    execution_id: str
    cancel_requested: Literal[True]


class Node(Shape):
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


class _Attempt(Shape):
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


class Attempts(Shape):
    items: list[NodeAttempt]
    next_cursor: str | None


class NodeDetails(Node):
    config: dict[str, Any] | None = Field(description="As the worker gets it; secrets are references.")
    output: dict[str, Any] | None
    attempts: list[Attempt]


class Progress(Shape):
    """Nodes. What never ran in an execution that failed fast or was cancelled is neither done nor failed."""

    done: int = Field(description="COMPLETED or SKIPPED.")
    total: int
    failed: int


class _Execution(Shape):
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


class Executions(Shape):
    items: list[ExecutionItem]
    next_cursor: str | None


class NodeChange(Shape):
    id: str
    status: NodeStatus
    attempt: int
    worker: str | None = None
    error: dict[str, Any] | None = None
    next_attempt_at: Time | None = None
    reason: str | None = None


class Change(Shape):
    """What changed in an execution: the data of an event `change`."""

    execution_id: str
    run: int
    at: Time
    nodes: list[NodeChange]


class ListChange(Shape):
    """The page of the list (`snapshot`), or what is new, changed or gone in it (`change`)."""

    items: list[ExecutionItem]
    gone: list[str] = []


class Trouble(Shape):
    cause: Cause = Field(description="By name; docs/operations.md has them all.")
    why: str
    do: str = Field(description="What helps.")


class Reason(Trouble):
    node: str | None = Field(description="None: it concerns the execution as a whole.")
    status: str


class Why(Shape):
    execution_id: str
    nodes: list[Reason]


class WorkflowItem(Shape):
    name: str
    version: int
    workflow_definition_id: str
    created_at: Time


class Workflows(Shape):
    items: list[WorkflowItem]
    next_cursor: str | None


class WorkflowVersion(Shape):
    name: str
    version: int
    definition: dict[str, Any]


class Workflow(WorkflowVersion):
    """The newest version, and the list of all."""

    versions: list[WorkflowItem]
    next_cursor: str | None


class Valid(Shape):
    valid: Literal[True]
    name: str
    nodes: int


class LetterItem(Shape):
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


class Letters(Shape):
    items: list[LetterItem]
    next_cursor: str | None


class Letter(LetterItem):
    task: NodeDetails = Field(description="The node whose task failed, with its config and all attempts.")


class Retried(Shape):
    retried: list[Triggered]
    refused: list[dict[str, str]] = Field(description="Executions whose state does not allow it.")
    more: bool = Field(description="Whether letters are left: call again.")


class Worker(Shape):
    name: str
    alive: bool
    heartbeat_age_seconds: float
    handlers: list[str]
    slots: int | None
    running: int | None


class Workers(Shape):
    items: list[Worker]


class Queue(Shape):
    handler: str
    depth: int
    oldest_age_seconds: float | None


class Queues(Shape):
    items: list[Queue]


class Handler(Shape):
    name: str
    config_schema: dict[str, Any] | None


class Handlers(Shape):
    items: list[Handler]


class AuditItem(Shape):
    id: str
    at: Time
    actor: str
    action: str
    execution_id: str | None
    detail: str | None


class Stuck(Shape):
    execution_id: str
    workflow: str
    idle_seconds: float
    nodes: list[Reason]


class Audit(Shape):
    problems: list[Trouble] = Field(description="What concerns all executions: a store, orchestrators, workers.")
    stuck: list[Stuck] = Field(description="Executions that cannot make progress, the longest waiting first.")
    stuck_count: int = Field(description="All of them; of very many only the first are told.")
    live_count: int = Field(description="Executions that were looked at: all that are running.")
    items: list[AuditItem] = Field(description="Who did what when, newest first.")
    next_cursor: str | None


class Health(Shape):
    status: Literal["ok"]


class Ready(Shape):
    status: Literal["ready"]
    stores: dict[str, Literal["ok"]]
