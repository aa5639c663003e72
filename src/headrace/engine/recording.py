"""What an orchestrator does for the record, put together: it archives, and brings the hot store to what SQL says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.engine.archiver import Archiver
from headrace.engine.housekeeping import Housekeeper
from headrace.engine.opener import Opener
from headrace.engine.recovery import Reconciler
from headrace.engine.run_spans import RunSpans
from headrace.hot.store import HotStore
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.openings import Openings
from headrace.record.readings import Readings
from headrace.settings import Settings

if TYPE_CHECKING:  # an optional dependency
    from headrace.tracing import Tracer


class Recording:
    def __init__(
        self, database: Database, store: HotStore, settings: Settings, name: str, tracer: Tracer | None = None
    ) -> None:
        openings = Openings(database)
        spans = RunSpans(tracer, Readings(database)) if tracer is not None else None
        archive = Archive(database, letters=settings.dlq_policy)
        self.archiver = Archiver(store, archive, Logs(database), settings, name, spans=spans)
        self.reconciler = Reconciler(store, openings, Opener(store, openings, settings), self.archiver, settings)

        self.housekeeper = Housekeeper(store, database, settings, name)
        self._partitions = store.partitions

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.housekeeper.run(stop))
            for partition in range(self._partitions):
                group.create_task(self.archiver.run(partition, stop))
                group.create_task(self.reconciler.run(partition, stop))
