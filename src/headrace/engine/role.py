"""The orchestrator's role: its loops over all partitions, started and stopped together."""

from __future__ import annotations

import asyncio

from headrace.engine.keeper import Keeper
from headrace.engine.orchestrator import Orchestrator
from headrace.hot.store import HotStore
from headrace.settings import Settings

LANES = 2  # batches of hints that are worked on at once, per partition


async def orchestrate(store: HotStore, settings: Settings, name: str, stop: asyncio.Event) -> None:
    orchestrator = Orchestrator(store, settings, name)
    keeper = Keeper(store, settings, orchestrator)
    async with asyncio.TaskGroup() as group:
        for partition in range(store.partitions):
            for lane in range(LANES):
                group.create_task(orchestrator.follow(partition, lane, stop))
            group.create_task(keeper.keep(partition, stop))
