"""Settling: after the hot store's server was started anew, what it holds is compared with the record before any work.

A server that comes back from a file that was cut short, or a replica that takes over, is older than what was archived:
it would hand out tasks of nodes that have long ended. So nothing can be claimed (settle.lua) until what is behind the
record is gone from the store; the reconciler then opens from the record what should be running.
"""

from __future__ import annotations

import structlog

from headrace.engine.archiver import Archiver
from headrace.hot.store import HotStore
from headrace.model.messages import Execution
from headrace.model.state import ExecutionState
from headrace.record.openings import Openings, Standing

log = structlog.get_logger(__name__)


async def settle(store: HotStore, openings: Openings, archiver: Archiver, partition: int, ttl_seconds: int) -> None:
    """Any number may do it at once: what has moved since it was looked at is not dropped."""
    dropped, cursor = 0, ""
    while cursor != "0":
        cursor, ids = await store.held_executions(partition, cursor or "0")
        held = dict(zip(ids, await store.executions(ids), strict=True))
        await archiver.drain(partition)
        known = await openings.standing(ids)
        apart = [
            (execution_id, there.epoch, there.last)
            for execution_id, there in held.items()
            if there is not None and is_apart(there, known.get(execution_id))
        ]
        if apart:
            dropped += len(await store.forget(partition, apart, definition_ttl_seconds=ttl_seconds, behind=True))
    await store.settle(partition)
    if dropped:
        log.warning("the store was behind the record", partition=partition, dropped=dropped)


def is_apart(there: Execution, known: Standing | None) -> bool:
    """Whether the record, read after the store and after all that the store had said was archived, does not agree: it
    knows more, or what the store says does not follow from it. What only the store knows stays."""
    if known is None or there.status == ExecutionState.OPENING:
        return False
    return (there.epoch, there.last) != (known.epoch, known.last_event)
