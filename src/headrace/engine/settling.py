"""Settling: after the hot store's server was started anew, what it holds is compared with the record before any work.

A server that comes back from a file that was cut short, or a replica that takes over, is older than what was archived:
it would hand out tasks of nodes that have long ended. So nothing can be claimed (settle.lua) until what is behind the
record is gone from the store; the reconciler then opens from the record what should be running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from headrace.engine.archiver import Archiver
from headrace.hot.store import HotStore
from headrace.model.messages import Execution
from headrace.model.state import ExecutionState
from headrace.record.openings import Openings, Standing
from headrace.settings import Settings

AGAIN_SECONDS = 0.05

log = structlog.get_logger(__name__)


class Settler:
    def __init__(self, store: HotStore, openings: Openings, archiver: Archiver, settings: Settings) -> None:
        self._store = store
        self._openings = openings
        self._archiver = archiver
        self._ttl_seconds = settings.hot_ttl_seconds

    async def settle(self, partition: int) -> bool:
        """Whether there was anything to do. Any number may do it at once."""
        server = await self._store.unsettled(partition)
        if not server:
            return False
        dropped, cursor = 0, ""
        while cursor != "0":
            cursor, ids = await self._store.held_executions(partition, cursor or "0")
            dropped += await self._drop(partition, ids)
        settled = await self._store.settle(partition, server)
        if dropped:
            log.warning("the store was behind the record", partition=partition, dropped=dropped, settled=settled)
        return True

    async def _drop(self, partition: int, ids: Sequence[str]) -> int:
        """Those that are apart from the record. One that has moved since it was looked at is looked at again: it may be
        an old one on which an old result had an effect just now."""
        dropped = 0
        while ids:
            held = dict(zip(ids, await self._store.executions(ids), strict=True))
            await self._archiver.drain(partition)
            known = await self._openings.standing(ids)
            apart = [
                (execution_id, there.epoch, there.last)
                for execution_id, there in held.items()
                if there is not None and is_apart(there, known.get(execution_id))
            ]
            if not apart:
                break
            gone = await self._store.forget(partition, apart, definition_ttl_seconds=self._ttl_seconds, behind=True)
            dropped += len(gone)
            ids = [one[0] for position, one in enumerate(apart) if position not in set(gone)]
            if ids:
                await asyncio.sleep(AGAIN_SECONDS)
        return dropped


def is_apart(there: Execution, known: Standing | None) -> bool:
    """Whether the record, read after the store and after all that the store had said was archived, does not agree: it
    knows more, or what the store says does not follow from it. What only the store knows stays."""
    if known is None or there.status == ExecutionState.OPENING:
        return False
    return (there.epoch, there.last) != (known.epoch, known.last_event)
