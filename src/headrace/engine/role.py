"""The orchestrator's role: hints and timers of every partition; with a record, archive and reconciliation too."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.engine.keeper import Keeper
from headrace.engine.orchestrator import Orchestrator
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.settings import Settings

if TYPE_CHECKING:  # SQL is not loaded where there is no record
    from headrace.engine.recording import Recording

SETTLE_SECONDS = 0.5
LANES = 2  # batches of hints that are worked on at once, per partition


async def orchestrate(
    store: HotStore, settings: Settings, name: str, stop: asyncio.Event, recording: Recording | None = None
) -> None:
    orchestrator = Orchestrator(store, settings, name)
    keeper = Keeper(store, settings, orchestrator)
    async with asyncio.TaskGroup() as group:
        for partition in range(store.partitions):
            for lane in range(LANES):
                group.create_task(orchestrator.follow(partition, lane, stop))
            group.create_task(keeper.keep(partition, stop))
        group.create_task(_settle(store, stop) if recording is None else recording.run(stop))


async def _settle(store: HotStore, stop: asyncio.Event) -> None:
    """Without a record, nothing in the store is older than it."""
    while not stop.is_set():
        with suppress(StoreUnavailable):
            for partition in range(store.partitions):
                await store.settle(partition, await store.unsettled(partition))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SETTLE_SECONDS)
