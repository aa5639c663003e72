"""The list of executions, item by item and as a live feed.

The feed looks at the page again when the hot store tells of a change, and once a second anyway: what was only submitted
makes no noise there, and an end is shown when SQL has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.api.answers import Changes
from headrace.engine.service import Service
from headrace.engine.view import timestamp
from headrace.errors import RecordUnavailable
from headrace.record.queries import ExecutionItem, Filter, Queries

LOOK_AGAIN_SECONDS: Final = 1.0
TOGETHER_SECONDS: Final = 0.2


def shown_item(item: ExecutionItem) -> dict[str, Any]:
    return {
        "execution_id": item.id,
        "workflow": item.workflow,
        "version": item.version,
        "status": item.status,
        "run": item.run,
        "error": _error(item),
        "created_at": timestamp(item.created_ms),
        "started_at": timestamp(item.started_ms or 0),
        "finished_at": timestamp(item.finished_ms or 0),
        "progress": _progress(item),
    }


def _error(item: ExecutionItem) -> dict[str, Any] | None:
    if item.error is None:
        return None
    error: dict[str, Any] = msgspec.json.decode(item.error)
    return {"node": item.error_node, **error} if item.error_node else error


def _progress(item: ExecutionItem) -> dict[str, int] | None:
    """As of the last change that SQL has. What never ran in an execution that has ended is in none of the numbers."""
    if item.nodes is None or item.done is None or item.failed is None:
        return None
    done = item.nodes if item.status == "COMPLETED" else item.done
    return {"done": done, "total": item.nodes, "failed": item.failed}


async def follow_list(service: Service, queries: Queries, wanted: Filter, cursor: str, limit: int) -> Changes:
    """A snapshot of the page, then what is new or changed in it and what is gone from it. There are no ids to resume
    from: whoever comes back begins with a snapshot."""
    with service.feed.listen() as queue:
        page = await queries.executions(wanted, cursor=cursor, limit=limit)
        known = {item.id: item for item in page.items}
        yield "", "snapshot", {"items": [shown_item(item) for item in page.items]}
        while True:
            await _something(queue)
            try:
                page = await queries.executions(wanted, cursor=cursor, limit=limit)
            except RecordUnavailable:
                continue  # the list cannot have changed
            now = {item.id: item for item in page.items}
            if now != known:
                yield "", "change", _difference(known, now)
            known = now


async def _something(queue: asyncio.Queue[Any]) -> None:
    """Waits until something may have changed, and takes together what changes at the same time."""
    try:
        await asyncio.wait_for(queue.get(), LOOK_AGAIN_SECONDS)
    except TimeoutError:
        return
    await asyncio.sleep(TOGETHER_SECONDS)
    while not queue.empty():
        queue.get_nowait()


def _difference(known: Mapping[str, ExecutionItem], now: Mapping[str, ExecutionItem]) -> dict[str, Any]:
    return {
        "items": [shown_item(item) for item_id, item in now.items() if known.get(item_id) != item],
        "gone": [item_id for item_id in known if item_id not in now],
    }
