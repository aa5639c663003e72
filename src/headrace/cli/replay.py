"""What the API tells of an execution, as the events that the views of `headrace run` understand.

A snapshot tells how every node stands, a change how some do; both pass the same way. What is known already makes no
event, so that snapshots may come as often as they like. What never started gets its end from the view itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from headrace.client import ServerUnreachable
from headrace.model import definition as model
from headrace.model.messages import Change, Event, Failure
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState, NodeState

NEVER_STARTED = (NodeState.PENDING, NodeState.QUEUED, NodeState.SKIPPED, NodeState.CANCELLED)


class _Error(msgspec.Struct, frozen=True):
    code: str
    message: str
    type: str = ""
    retryable: bool = False
    node: str | None = None

    @property
    def text(self) -> str:
        return msgspec.json.encode(Failure(self.code, self.message, self.type, self.retryable)).decode()


class _Node(msgspec.Struct, frozen=True):
    id: str
    status: str
    attempt: int = 0
    handler: str = ""
    dependencies: tuple[str, ...] = ()
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    next_attempt_at: datetime | None = None
    error: _Error | None = None


class _Told(msgspec.Struct, frozen=True):
    execution_id: str = ""
    workflow: str = ""
    status: str = ""
    run: int = 0
    at: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: _Error | None = None
    nodes: tuple[_Node, ...] = ()


class Replay:
    def __init__(self, snapshot: dict[str, Any]) -> None:
        told = _read(snapshot)
        if not told.nodes:
            raise ServerUnreachable("the server tells of an execution without nodes")
        nodes = (model.Node(each.id, each.handler, each.dependencies) for each in told.nodes)
        self.definition = model.Definition(told.workflow, tuple(nodes))
        self._parents = {node.id: node.dependencies for node in self.definition.nodes}
        self._known = dict.fromkeys(self._parents, (NodeState.PENDING, 0))
        self._culprits: dict[str, str] = {}
        self._last_ms = 0

    def events(self, document: dict[str, Any]) -> Iterator[Event]:
        """In the order of their times."""
        told = _read(document)
        now_ms = _ms(told.at) or self._last_ms or _ms(told.started_at) or _ms(told.created_at)
        if not self._last_ms:
            yield _event(told, _ms(told.started_at) or now_ms)
        status = ExecutionState.__members__.get(told.status)
        is_over = status in TERMINAL_EXECUTIONS
        steps = [step for node in told.nodes for step in self._steps(node, now_ms, is_over=is_over)]
        for at_ms, change in sorted(steps, key=lambda step: step[0]):
            self._last_ms = max(self._last_ms, at_ms)
            yield _event(told, at_ms, change)
        self._last_ms = max(self._last_ms, now_ms)
        if status and is_over:
            error = told.error.text if told.error and not told.error.node else ""
            yield _event(told, _ms(told.finished_at) or self._last_ms, status=status, error=error)

    def _steps(self, node: _Node, now_ms: int, *, is_over: bool) -> Iterator[tuple[int, Change]]:
        state = NodeState.__members__.get(node.status)
        before = self._known.get(node.id)
        if state is None or before is None or before == (state, node.attempt):
            return
        if is_over and state in NEVER_STARTED:
            return  # the view knows this, and why, by itself
        self._known[node.id] = (state, node.attempt)
        has_ended = state not in (*NEVER_STARTED, NodeState.RUNNING)
        if has_ended and node.started_at and before != (NodeState.RUNNING, node.attempt):
            yield _ms(node.started_at), Change(node.id, NodeState.RUNNING, node.attempt)
        at = node.finished_at if has_ended else node.started_at if state == NodeState.RUNNING else None
        detail = self._detail(node, state)
        yield _ms(at) or now_ms, Change(node.id, state, node.attempt, detail, _ms(node.next_attempt_at))

    def _detail(self, node: _Node, state: NodeState) -> str:
        if state in (NodeState.FAILED, NodeState.RETRYING):
            self._culprits[node.id] = node.id  # once it is FAILED; before that nothing is skipped for it
            return (node.error or _Error("error", "the server does not tell why")).text
        if state == NodeState.SKIPPED:
            found = (self._culprits[parent] for parent in self._parents[node.id] if parent in self._culprits)
            self._culprits[node.id] = next(found, "what it depends on")
            return self._culprits[node.id]
        return ""


def _read(document: dict[str, Any]) -> _Told:
    try:
        return msgspec.convert(document, _Told)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(f"the server's events are not those of a Headrace API: {error}") from error


def _event(
    told: _Told, at_ms: int, change: Change | None = None, *, status: ExecutionState | None = None, error: str = ""
) -> Event:
    return Event(
        execution_id=told.execution_id,
        epoch="",
        run=told.run,
        seq=0,
        previous="",
        at_ms=at_ms,
        status=status.value if status else "",
        error=error,
        changes=(change,) if change else (),
    )


def _ms(time: datetime | None) -> int:
    return int(time.timestamp() * 1000) if time else 0
