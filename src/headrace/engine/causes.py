"""Every cause for which a node is not running, by name: what it looks like, and what to do about it.

Pure: why.py and audit.py bring what the stores say. Each unfinished node has exactly one cause. A cause either passes
by itself (somebody alive is at it), or it stays until somebody does something; an execution in which only such causes
are left cannot make progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from headrace.engine.view import timestamp
from headrace.model.definition import Node
from headrace.model.messages import Execution, Record
from headrace.model.plan import Plan
from headrace.model.state import TERMINAL_EXECUTIONS, TERMINAL_NODES, ExecutionState, NodeState, shown
from headrace.settings import Settings

AT_WORK_WITHIN_MS = 5_000  # an orchestrator looks at its timers ten times a second
MOST_NAMED = 20


class Cause(StrEnum):
    NOT_TRIGGERED = "not_triggered"
    STORE_AWAY = "store_away"
    RECORD_AWAY = "record_away"
    NO_ORCHESTRATOR = "no_orchestrator"
    NOT_OPENED = "not_opened"
    OPENING = "opening"
    LAST_RUN = "last_run"
    CANCELLING = "cancelling"
    ARCHIVE = "archive"
    DEADLINE = "deadline"
    PARENTS = "parents"
    READY = "ready"
    SETTLING = "settling"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    NO_SLOT = "no_slot"
    CLAIM = "claim"
    RETRY = "retry"
    RETRY_DUE = "retry_due"
    RUNNING = "running"
    WORKER_SILENT = "worker_silent"
    LEASE_EXPIRED = "lease_expired"
    RESULT = "result"


C = Cause
MOMENT = "Nothing: it takes a moment. If it stays like this, look at the orchestrators' logs"
DO: Mapping[Cause, str] = {
    C.NOT_TRIGGERED: "POST /v1/workflow/trigger/{id} starts it",
    C.STORE_AWAY: "Start Valkey, or correct REDIS_URL: then everything goes on by itself",
    C.RECORD_AWAY: "Start the database, or correct DATABASE_URL: then it is shown how it ended",
    C.NO_ORCHESTRATOR: "Start one: headrace orchestrator",
    C.NOT_OPENED: MOMENT,
    C.OPENING: MOMENT,
    C.LAST_RUN: "Nothing: leases and timeouts bound how long that can take",
    C.CANCELLING: MOMENT,
    C.ARCHIVE: "Nothing: it takes a moment. If it stays like this, look at headrace_archive_lag_seconds and at SQL",
    C.DEADLINE: "Nothing, or give the definition a longer timeout_seconds",
    C.PARENTS: "Nothing: look at what these wait for",
    C.READY: MOMENT,
    C.SETTLING: MOMENT,
    C.NO_WORKER: "Start one: headrace worker",
    C.NO_HANDLER: "Start a worker that has it: headrace worker --handlers MODULE",
    C.NO_SLOT: "Wait, start more workers, or raise WORKER_CONCURRENCY",
    C.CLAIM: "Nothing: it takes a moment. If it stays like this, look at the workers' logs",
    C.RETRY: "Nothing: it is tried again then",
    C.RETRY_DUE: MOMENT,
    C.RUNNING: "Nothing: it runs. A timeout_seconds would bound how long",
    C.WORKER_SILENT: "Nothing: it is tried again then. See what became of the worker",
    C.LEASE_EXPIRED: MOMENT,
    C.RESULT: MOMENT,
}
# By themselves, however long they last. (PARENTS passes when its parents' causes do.)
PASSES = frozenset({C.DEADLINE, C.OPENING, C.LAST_RUN, C.NO_SLOT, C.RETRY, C.RUNNING, C.WORKER_SILENT})
NEEDS_ORCHESTRATOR = frozenset(
    {C.NOT_OPENED, C.CANCELLING, C.ARCHIVE, C.READY, C.SETTLING, C.RETRY_DUE, C.LEASE_EXPIRED, C.RESULT}
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one node is not running, or without a node the execution."""

    node: str | None
    status: str
    cause: Cause
    why: str


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    alive: bool
    seen_ms: int
    handlers: frozenset[str]
    slots: int
    running: int


@dataclass(frozen=True, slots=True)
class Around:
    """What an execution of one partition finds around it. `orchestrated_ms`: when an orchestrator last looked, or 0;
    `is_settled`: whether Valkey, since it started, was compared with SQL."""

    settings: Settings
    now_ms: int
    orchestrated_ms: int
    is_settled: bool
    workers: Mapping[str, WorkerSeen]
    depths: Mapping[str, int]

    @property
    def is_orchestrated(self) -> bool:
        return self.now_ms - self.orchestrated_ms < AT_WORK_WITHIN_MS

    def offering(self, handler: str) -> list[WorkerSeen]:
        return [worker for worker in self.workers.values() if worker.alive and handler in worker.handlers]


@dataclass(frozen=True, slots=True)
class Case:
    """An execution that SQL says is RUNNING, in this run. `held` is what Valkey has of it; `times`: node -> when its
    lease ends or its retry is due, in ms; `deadline_ms`: of the whole execution, or 0."""

    plan: Plan
    run: int
    is_cancelled: bool
    held: Execution | None
    records: Sequence[Record]
    times: Mapping[str, int]
    deadline_ms: int = 0


def explain(case: Case, around: Around) -> list[Reason]:
    whole = _of_whole(case, around)
    if whole is None:
        return [*_deadline(case), *_of_nodes(case, around)]
    return [whole, *_all_because(case, whole)]


def unfinished(case: Case) -> Iterator[tuple[Node, Record, NodeState]]:
    """Nodes that have not ended, with the state that users see."""
    ended_as = ExecutionState(case.held.status) if case.held and case.held.run == case.run else ExecutionState.RUNNING
    status = ended_as if ended_as in TERMINAL_EXECUTIONS else ExecutionState.RUNNING
    for node, record in zip(case.plan.definition.nodes, case.records, strict=True):
        state = shown(NodeState(record.state), status)
        if state not in TERMINAL_NODES:
            yield node, record, state


def all_because(plan: Plan, records: Sequence[Record], cause: Cause, why: str) -> list[Reason]:
    """Of an execution that is stopped as a whole."""
    case = Case(plan, 0, False, None, records, {})
    whole = Reason(None, "PENDING" if cause == C.NOT_TRIGGERED else "RUNNING", cause, why)
    return [whole, *_all_because(case, whole)]


def _all_because(case: Case, whole: Reason) -> Iterator[Reason]:
    for node, _, state in unfinished(case):
        yield Reason(node.id, state.name, whole.cause, whole.why)


# ---- the execution as a whole


def _of_whole(case: Case, around: Around) -> Reason | None:
    """What stops all of it, if anything does."""
    held, run = case.held, case.run
    if held is None:
        return _whole(C.NOT_OPENED, "it was accepted and is not in Valkey: an orchestrator is about to open it", around)
    if held.status == ExecutionState.OPENING:
        return Reason(None, "RUNNING", C.OPENING, "it is just being opened from what SQL has")
    if held.run < run:
        busy = f"{held.busy} attempts of run {held.run} are under way" if held.busy else f"run {held.run} is archived"
        return Reason(None, "RUNNING", C.LAST_RUN, f"run {run} waits {'while' if held.busy else 'until'} {busy}")
    if held.status == ExecutionState.CANCELLED or (held.status in TERMINAL_EXECUTIONS and not held.busy):
        ended = ExecutionState(held.status).name
        return _whole(C.ARCHIVE, f"it has ended as {ended}, which is shown once SQL has it", around)
    if case.is_cancelled and held.status == ExecutionState.RUNNING:
        return _whole(C.CANCELLING, "it was cancelled, and an orchestrator is about to stop it", around)
    return None


def _whole(cause: Cause, why: str, around: Around) -> Reason:
    return Reason(None, "RUNNING", *_or_nobody(cause, why, around))


def _deadline(case: Case) -> Iterator[Reason]:
    if case.deadline_ms:
        why = f"its timeout_seconds end it at {timestamp(case.deadline_ms)}, if it runs until then"
        yield Reason(None, "RUNNING", C.DEADLINE, why)


# ---- nodes


def _of_nodes(case: Case, around: Around) -> Iterator[Reason]:
    names = (node.id for node in case.plan.definition.nodes)
    states = {name: record.state for name, record in zip(names, case.records, strict=True)}
    for node, record, state in unfinished(case):
        match NodeState(record.state):
            case NodeState.PENDING:
                found = _pending(node, states)
            case NodeState.QUEUED:
                found = _queued(node, record, around)
            case NodeState.RETRYING:
                found = _retrying(record, case.times.get(node.id, 0), around)
            case NodeState.RUNNING:
                found = _running(node, record, case.times.get(node.id, 0), around)
            case _:
                found = C.RESULT, "it has ended, and an orchestrator is about to apply its result"
        yield Reason(node.id, state.name, *_or_nobody(*found, around))


def _or_nobody(cause: Cause, why: str, around: Around) -> tuple[Cause, str]:
    """What an orchestrator is about to do, nobody does if there is none."""
    if cause not in NEEDS_ORCHESTRATOR or around.is_orchestrated:
        return cause, why
    since = timestamp(around.orchestrated_ms)
    nobody = f"no orchestrator has been at work since {since}" if since else "no orchestrator is at work"
    return C.NO_ORCHESTRATOR, f"{why}; but {nobody}"


def _pending(node: Node, states: Mapping[str, str]) -> tuple[Cause, str]:
    waits = [name for name in node.dependencies if states[name] != NodeState.COMPLETED]
    if not waits:
        return C.READY, "all its parents are complete, and an orchestrator is about to queue it"
    more = f" and {len(waits) - MOST_NAMED} more" if len(waits) > MOST_NAMED else ""
    return C.PARENTS, f"waits for {', '.join(waits[:MOST_NAMED])}{more}"


def _queued(node: Node, record: Record, around: Around) -> tuple[Cause, str]:
    if not around.is_settled:
        return C.SETTLING, "Valkey was started again, and an orchestrator is about to compare it with SQL"
    if not any(worker.alive for worker in around.workers.values()):
        return C.NO_WORKER, "waits for a worker, and none is alive"
    offering = around.offering(node.handler)
    if not offering:
        fails_ms = record.queued_ms + round(around.settings.handler_missing_timeout * 1000)
        told = f"no live worker has the handler {node.handler}"
        return C.NO_HANDLER, f"{told}: it fails at {timestamp(fails_ms)} (HANDLER_MISSING_TIMEOUT)"
    depth = around.depths.get(node.handler, 0)
    slots, used = sum(each.slots for each in offering), sum(each.running for each in offering)
    told = (
        f"{depth} tasks are queued for {node.handler}; {len(offering)} live workers that have it use {used} of {slots}"
    )
    if used < slots and depth <= slots - used:
        return C.CLAIM, f"a worker is about to take it: {told} slots"
    return C.NO_SLOT, f"waits for a free slot: {told} slots"


def _retrying(record: Record, due_ms: int, around: Around) -> tuple[Cause, str]:
    told = f"attempt {record.attempt} failed{_message(record.error)}"
    if due_ms > around.now_ms:
        return C.RETRY, f"{told}: the next one begins at {timestamp(due_ms)}"
    return C.RETRY_DUE, f"{told}: the next one is due, and an orchestrator is about to queue it"


def _running(node: Node, record: Record, lease_ms: int, around: Around) -> tuple[Cause, str]:
    told = f"attempt {record.attempt} runs on {record.worker} since {timestamp(record.started_ms)}"
    if lease_ms <= around.now_ms:
        return C.LEASE_EXPIRED, f"{told}: its lease ran out, and an orchestrator is about to try it again"
    worker = around.workers.get(record.worker)
    if worker is None or not worker.alive:
        silent = f", not heard of since {timestamp(worker.seen_ms)}" if worker else ", which has signed off"
        return C.WORKER_SILENT, f"{told}{silent}: it is tried again when its lease runs out at {timestamp(lease_ms)}"
    ends = (
        node.timeout_seconds and f", its timeout at {timestamp(record.started_ms + round(node.timeout_seconds * 1000))}"
    )
    return C.RUNNING, f"{told}, lease until {timestamp(lease_ms)}{ends or ''}"


def _message(failure: str) -> str:
    try:
        return f" ({msgspec.json.decode(failure)['message']})"
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""
