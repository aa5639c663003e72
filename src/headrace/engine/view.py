"""An execution as users see it: the shape of the REST API and of `headrace run --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.hot.keys import INPUT_FIELD
from headrace.model.graph import Graph
from headrace.model.messages import Execution, Record
from headrace.model.plan import Plan
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState, NodeState, shown


def timestamp(ms: int) -> str | None:
    """RFC 3339, UTC, with milliseconds; 0 is no time."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe(
    execution_id: str,
    held: Execution,
    plan: Plan,
    records: Sequence[Record],
    outputs: Mapping[str, Any],
    *,
    version: int | None = 1,
) -> dict[str, Any]:
    status = ExecutionState(held.status)
    states = [shown(NodeState(record.state), status) for record in records]
    reasons = _reasons(plan.graph, records, states, status)
    return {
        "execution_id": execution_id,
        "workflow": plan.definition.name,
        "version": version,
        "status": status.name,
        "run": held.run,
        "input_params": outputs.get(INPUT_FIELD, {}),
        "output": plan.output(outputs) if status in TERMINAL_EXECUTIONS else None,
        "error": _error(held),
        "created_at": timestamp(held.created_ms),
        "started_at": timestamp(held.started_ms),
        "finished_at": timestamp(held.finished_ms),
        "nodes": [
            {
                "id": node.id,
                "handler": node.handler,
                "status": state.name,
                "attempt": record.attempt,
                "dependencies": list(node.dependencies),
                "queued_at": timestamp(record.queued_ms),
                "started_at": timestamp(record.started_ms),
                "finished_at": timestamp(record.finished_ms),
                "error": msgspec.json.decode(record.error) if record.error else None,
                "reason": reason,
            }
            for node, record, state, reason in zip(plan.definition.nodes, records, states, reasons, strict=True)
        ],
    }


def _error(held: Execution) -> dict[str, Any] | None:
    if not held.error:
        return None
    error: dict[str, Any] = msgspec.json.decode(held.error)
    return {"node": held.error_node, **error} if held.error_node else error


def _reasons(
    graph: Graph, records: Sequence[Record], states: Sequence[NodeState], status: ExecutionState
) -> list[str | None]:
    """Why a node did not run: something upstream failed, or the execution ended first."""
    failed = [i for i, record in enumerate(records) if record.state == NodeState.FAILED]
    below = frozenset(graph.descendants(*failed))
    ended = "execution_cancelled" if status == ExecutionState.CANCELLED else "execution_failed"
    stopped = (NodeState.SKIPPED, NodeState.CANCELLED)
    return [
        ("upstream_failed" if i in below and state == NodeState.SKIPPED else ended) if state in stopped else None
        for i, state in enumerate(states)
    ]
