"""What an orchestrator tidies now and then: it writes down which handlers workers offer, lets the hot store forget what
nobody remembered to take away, and deletes what is older than the record is to be.

One of all orchestrators does it at a time; two would do no harm.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.state import TERMINAL_EXECUTIONS
from headrace.record.admin import Handlers
from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.readings import Readings
from headrace.record.retention import Retention
from headrace.settings import Settings

HANDLERS_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 60.0
RETENTION_EVERY_SECONDS = 3600.0
DAY_MS = 24 * 3600 * 1000

log = structlog.get_logger(__name__)


class Housekeeper:
    def __init__(self, store: HotStore, database: Database, settings: Settings, name: str) -> None:
        self._store = store
        self._handlers = Handlers(database)
        self._readings = Readings(database)
        self._retention = Retention(database)
        self._settings = settings
        self._name = name
        self._written: dict[str, str] = {}
        self._swept = self._deleted = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                if await self._store.hold(0, "house", self._name, round(HANDLERS_EVERY_SECONDS * 3000)):
                    await self._keep_house()
            except (StoreUnavailable, RecordUnavailable) as error:
                log.warning("housekeeping waits", error=str(error))
            try:
                await asyncio.wait_for(stop.wait(), HANDLERS_EVERY_SECONDS)
            except TimeoutError:
                continue

    async def _keep_house(self) -> None:
        await self.remember_handlers()
        if time.monotonic() - self._swept > SWEEP_EVERY_SECONDS:
            self._swept = time.monotonic()
            await self.sweep()
        if time.monotonic() - self._deleted > RETENTION_EVERY_SECONDS:
            self._deleted = time.monotonic()
            await self.delete_old()

    async def remember_handlers(self) -> None:
        offered = await self._store.offered()
        if offered != self._written:
            await self._handlers.remember(offered, now_ms())
            self._written = offered

    async def sweep(self) -> None:
        """Ended executions that are still in the hot store though SQL has all of them: whoever should have taken them
        away died before. Those that SQL does not know belong to somebody else."""
        for partition in range(self._store.partitions):
            cursor = ""
            while cursor != "0":
                cursor, ids = await self._store.held_executions(partition, cursor or "0")
                held = zip(ids, await self._store.executions(ids), strict=True)
                ended = [(one, there) for one, there in held if there and there.status in TERMINAL_EXECUTIONS]
                known = [
                    (one, there.epoch, there.last)
                    for one, there in ended
                    if (stored := await self._readings.execution(one))
                    and (stored.epoch, stored.last_event) == (there.epoch, there.last)
                ]
                if known:
                    ttl = self._settings.hot_ttl_seconds
                    await self._store.forget(partition, known, definition_ttl_seconds=ttl)

    async def delete_old(self) -> None:
        before_ms = now_ms() - self._settings.retention_days * DAY_MS
        for delete in (
            self._retention.delete_keys,
            lambda: self._retention.delete_ended(before_ms),
            lambda: self._retention.delete_set_aside(before_ms),
        ):
            while await delete():
                continue  # one bounded batch at a time
