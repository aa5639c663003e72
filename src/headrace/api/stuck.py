"""Executions that cannot make progress: they run, and nothing of them runs, waits to be retried, or has a worker."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

from headrace.engine.service import Service, Snapshot
from headrace.model.state import NodeState
from headrace.record.queries import Filter, Queries

QUIET_SECONDS: Final = 10.0  # between two steps an execution rests for a moment
MOST_LOOKED_AT: Final = 200
GOES_ON: Final = (NodeState.RUNNING, NodeState.REPORTED, NodeState.RETRYING)


async def find_stuck(service: Service, queries: Queries) -> list[dict[str, Any]]:
    """Among the newest that have run for a while; the one that has waited longest comes first."""
    now_ms = int(time.time() * 1000)
    old = Filter(status="RUNNING", until_ms=now_ms - int(QUIET_SECONDS * 1000))
    page = await queries.executions(old, limit=MOST_LOOKED_AT)
    if not page.items:
        return []
    offered = {name for worker in await service.workers() if worker["alive"] for name in worker["handlers"]}
    found: list[dict[str, Any]] = []
    for item in page.items:
        seen = await service.snapshot(item.id)
        idle = (now_ms - _last_change_ms(seen)) / 1000
        if seen.stored.status == "RUNNING" and idle > QUIET_SECONDS and not _goes_on(seen, offered):
            nodes = await service.why(item.id)
            found.append(
                {"execution_id": item.id, "workflow": item.workflow, "idle_seconds": round(idle, 3), "nodes": nodes}
            )
    return sorted(found, key=lambda each: -each["idle_seconds"])


def _goes_on(seen: Snapshot, offered: Collection[str]) -> bool:
    for node, record in zip(seen.plan.definition.nodes, seen.records, strict=True):
        state = NodeState(record.state)
        if state in GOES_ON or (state == NodeState.QUEUED and node.handler in offered):
            return True
    return False


def _last_change_ms(seen: Snapshot) -> int:
    """From the id of its last event, which begins with the time."""
    return int(seen.held.last.partition("-")[0] or seen.stored.created_ms)
