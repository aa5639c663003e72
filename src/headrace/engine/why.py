"""Why each unfinished node of an execution is not running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.engine.view import timestamp
from headrace.model.state import ExecutionState, NodeState, shown

if TYPE_CHECKING:
    from headrace.engine.service import Snapshot


def explain(seen: Snapshot, queues: Mapping[str, int], offered: Mapping[str, int]) -> list[dict[str, Any]]:
    """`queues`: handler -> waiting tasks; `offered`: handler -> live workers that have it."""
    if seen.stored.status == "PENDING":
        return [{"node": None, "status": "PENDING", "why": "the execution was submitted and not triggered yet"}]
    if seen.stored.status != "RUNNING":
        return []
    told: list[dict[str, Any]] = []
    nodes = seen.plan.definition.nodes
    states = {node.id: NodeState(record.state) for node, record in zip(nodes, seen.records, strict=True)}
    for node, record in zip(nodes, seen.records, strict=True):
        state = NodeState(record.state)
        why = ""
        match state:
            case NodeState.PENDING:
                waits = [name for name in node.dependencies if states[name] != NodeState.COMPLETED]
                why = f"waits for {', '.join(waits[:20])}" if waits else "is about to be queued"
            case NodeState.QUEUED if not offered.get(node.handler):
                why = f"waits for a worker with the handler {node.handler}: no live worker has it"
            case NodeState.QUEUED:
                why = f"waits for a free slot: {queues.get(node.handler, 0)} tasks are queued for {node.handler}"
            case NodeState.RETRYING:
                failure = msgspec.json.decode(record.error) if record.error else {}
                why = f"attempt {record.attempt} failed and the next one waits: {failure.get('message', '')}"
            case NodeState.RUNNING:
                why = f"runs on {record.worker} since {timestamp(record.started_ms)}"
            case NodeState.REPORTED:
                why = "has ended and its result is being applied"
            case _:
                continue
        shown_as = shown(state, ExecutionState.RUNNING)
        told.append({"node": node.id, "status": shown_as.name, "why": why})
    return told
