"""The documents that the REST API answers with, as types: what a client may rely on.

A server may add fields, so a document can hold more than its type says. Times are RFC 3339, UTC, with milliseconds.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NotRequired, TypedDict, TypeVar

T = TypeVar("T")

ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


class Items(TypedDict, Generic[T]):
    items: list[T]


class Page(TypedDict, Generic[T]):
    """A part of a long list; with a `next_cursor` there may be more."""

    items: list[T]
    next_cursor: NotRequired[str | None]


class Submitted(TypedDict):
    workflow_definition_id: str
    execution_id: str
    name: str
    version: int
    status: str
    run: int


class Triggered(TypedDict):
    """Written down: it runs now, or as soon as it can."""

    execution_id: str
    status: str
    run: int


class Cancelled(TypedDict):
    """Written down: it ends in a moment."""

    execution_id: str
    cancel_requested: bool


class Failure(TypedDict):
    """`node` is there where an execution failed by one of its nodes."""

    code: str
    message: str
    type: NotRequired[str]
    retryable: NotRequired[bool]
    node: NotRequired[str | None]


class Progress(TypedDict):
    """Nodes; `done` are COMPLETED or SKIPPED."""

    done: int
    total: int
    failed: int


class ExecutionSummary(TypedDict):
    """`progress` is in lists alone, and null while it is unknown."""

    execution_id: str
    workflow: str
    version: int
    status: str
    run: int
    error: NotRequired[Failure | None]
    created_at: str
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]
    progress: NotRequired[Progress | None]


class Node(TypedDict):
    """`reason` is why it did not run."""

    id: str
    handler: str
    status: str
    attempt: int
    dependencies: list[str]
    queued_at: NotRequired[str | None]
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]
    error: NotRequired[Failure | None]
    reason: NotRequired[str | None]


class Execution(ExecutionSummary):
    input_params: dict[str, Any]
    output: Any
    nodes: list[Node]


class Attempt(TypedDict):
    attempt: int
    status: str
    run: NotRequired[int]
    worker: NotRequired[str | None]
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]
    error: NotRequired[Failure | None]


class NodeAttempt(Attempt):
    node: str


class NodeDetail(Node):
    config: Any
    output: Any
    attempts: list[Attempt]


class Reason(TypedDict):
    """Why one node is not running; without a node, why the execution is not."""

    node: str | None
    status: str
    why: str
    cause: NotRequired[str]
    do: NotRequired[str]


class Why(TypedDict):
    execution_id: str
    nodes: list[Reason]


class DeadLetter(TypedDict):
    """A node that failed for good: `status` is OPEN, RETRIED or DROPPED."""

    id: str
    execution_id: str
    workflow: str
    run: int
    node: str
    attempt: int
    cause: str
    error: Failure
    status: str
    created_at: str


class DeadLetterDetail(DeadLetter):
    """`task`: the node, with its config and all its attempts."""

    task: NodeDetail


class Retried(TypedDict):
    """`refused`: executions whose state does not allow it. `more`: there are letters left, so ask again."""

    retried: list[Triggered]
    refused: list[dict[str, str]]
    more: bool


class Workflow(TypedDict):
    """A workflow in the list, with its newest version; or one version in the list of a workflow's."""

    name: str
    version: int
    workflow_definition_id: str
    created_at: str


class Version(TypedDict):
    name: str
    version: int
    definition: dict[str, Any]


class Newest(Version):
    """The newest version, and a page of the list of all."""

    versions: list[Workflow]
    next_cursor: NotRequired[str | None]


class Validation(TypedDict):
    """`nodes`: how many."""

    valid: bool
    name: str
    nodes: int


class AuditLine(TypedDict):
    """Who did what, when."""

    id: str
    at: str
    actor: str
    action: str
    execution_id: NotRequired[str | None]
    detail: NotRequired[str | None]


class Stuck(TypedDict):
    """An execution that cannot make progress."""

    execution_id: str
    workflow: str
    idle_seconds: float
    nodes: list[Reason]


class Trouble(TypedDict):
    """What concerns all executions."""

    cause: str
    why: str
    do: str


class Audit(Page[AuditLine]):
    stuck: list[Stuck]
    problems: NotRequired[list[Trouble]]
    stuck_count: NotRequired[int]
    live_count: NotRequired[int]


class Worker(TypedDict):
    name: str
    alive: bool
    heartbeat_age_seconds: float
    handlers: list[str]
    slots: NotRequired[int | None]
    running: NotRequired[int | None]


class Queue(TypedDict):
    handler: str
    depth: int
    oldest_age_seconds: NotRequired[float | None]


class Handler(TypedDict):
    name: str
    config_schema: NotRequired[dict[str, Any] | None]
