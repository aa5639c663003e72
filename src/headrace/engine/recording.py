"""What an orchestrator does for the record, put together: it archives, and brings the hot store to what SQL says."""

from __future__ import annotations

import asyncio

from headrace.engine.archiver import Archiver
from headrace.engine.housekeeping import Housekeeper
from headrace.engine.opener import Opener
from headrace.engine.recovery import Reconciler
from headrace.hot.store import HotStore
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.openings import Openings
from headrace.settings import Settings


class Recording:
    def __init__(self, database: Database, store: HotStore, settings: Settings, name: str) -> None:
        openings = Openings(database)
        self.archiver = Archiver(store, Archive(database, letters=settings.dlq_policy), Logs(database), settings, name)
        self.reconciler = Reconciler(store, openings, Opener(store, openings, settings), self.archiver, settings)

        self.housekeeper = Housekeeper(store, database, settings, name)
        self._partitions = store.partitions

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.housekeeper.run(stop))
            for partition in range(self._partitions):
                group.create_task(self.archiver.run(partition, stop))
                group.create_task(self.reconciler.run(partition, stop))
