"""The archiver: what happened in the hot store becomes the record.

It reads the outbox of one partition from the cursor that SQL holds, writes a batch of events in one transaction, then
lets the hot store forget what has ended and drops events that are a minute old. It may die at any point, or be doubled:
what was not committed is read again, and what was is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from headrace.engine.run_spans import RunSpans
from headrace.engine.tally import Tally
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import event_order
from headrace.record.archive import Archive, Ended, Entry
from headrace.record.logs import Logged, Logs
from headrace.settings import Settings

FIRST_ENTRIES = 20
MOST_ENTRIES = 200
BATCH_BYTES = 8 << 20
KEEP_EVENTS_MS = 60_000
TRIM_EVERY_MS = 5_000
AWAY_SECONDS = 0.5
DUTY_MS = 5_000
MOST_TO_FORGET = 10_000

log = structlog.get_logger(__name__)


class Archiver:
    def __init__(
        self,
        store: HotStore,
        archive: Archive,
        logs: Logs,
        settings: Settings,
        name: str,
        *,
        spans: RunSpans | None = None,
    ) -> None:
        self.lag_seconds = [0.0] * store.partitions
        self.set_aside = 0
        self._store = store
        self._archive = archive
        self._logs = logs
        self._settings = settings
        self._name = name
        self._spans = spans
        self._ended: list[list[Ended]] = [[] for _ in range(store.partitions)]
        self._most = [FIRST_ENTRIES] * store.partitions
        self._trimmed_ms = [0] * store.partitions
        self._tallies = [Tally() for _ in range(store.partitions)]

    async def run(self, partition: int, stop: asyncio.Event) -> None:
        """One partition, until told to stop; what has happened until then is archived."""
        while not stop.is_set():
            try:
                if await self._store.hold(partition, "archive", self._name, DUTY_MS):
                    await self.drain(partition)
                    await self._archive_logs(partition)
                    await self._forget_rest(partition)
                await _pause(stop, self._settings.orchestrator_archive_interval)
            except (StoreUnavailable, RecordUnavailable) as error:
                log.warning("archiving waits", partition=partition, error=str(error))
                await _pause(stop, AWAY_SECONDS)
        try:
            await self.drain(partition)
        except (StoreUnavailable, RecordUnavailable) as error:
            log.warning("stopped before all was archived: it is read again later", error=str(error))

    async def drain(self, partition: int) -> None:
        """Everything that happened before this call, in bounded batches; under load there is always something new."""
        newest = event_order(await self._store.last_event(partition))
        cursor = await self._archive.cursor(partition)
        while event_order(cursor) < newest:
            entries = await self._store.read_events(partition, cursor, self._most[partition], block=False)
            if not entries:
                break
            self._most[partition] = _as_many_as_fit(entries)
            done = await self._archive.apply(partition, self._store.partitions, entries)
            cursor = entries[-1][0]
            self.set_aside += done.set_aside
            self._tallies[partition].add(done.events)
            if self._spans is not None:
                await self._spans.add(done.events)
            await self._store.count(partition, self._tallies[partition].take())
            self._ended[partition] += await self._forget(partition, done.ended)
            now_ms = await self._store.now_ms()
            self.lag_seconds[partition] = max(0.0, (now_ms - entries[-1][1].at_ms) / 1000)
            await self._trim(partition, cursor, now_ms)
        self.lag_seconds[partition] = 0.0

    async def _trim(self, partition: int, cursor: str, now_ms: int) -> None:
        """Events that are archived and a minute old: live views may still read the younger ones."""
        if now_ms - self._trimmed_ms[partition] < TRIM_EVERY_MS:
            return
        self._trimmed_ms[partition] = now_ms
        through = min(int(cursor.partition("-")[0]) - 1, now_ms - KEEP_EVENTS_MS)
        await self._store.trim_events(partition, f"{max(through, 0)}-0")

    async def _archive_logs(self, partition: int) -> None:
        while entries := await self._store.read_logs(partition, MOST_ENTRIES):
            try:
                await self._logs.write(
                    [
                        Logged(token.execution_id, token.run, token.node, token.attempt, text)
                        for _, token, text in entries
                    ]
                )
            except RecordUnavailable:
                raise
            except Exception:  # nothing depends on them, and they must not stop the archive
                log.exception("log lines were dropped", count=len(entries))
            await self._store.drop_logs(partition, entries[-1][0])

    async def _forget_rest(self, partition: int) -> None:
        """Those whose handlers were still running; of very many, housekeeping sweeps up the oldest."""
        ended, self._ended[partition] = self._ended[partition][-MOST_TO_FORGET:], []
        for start in range(0, len(ended), MOST_ENTRIES):
            self._ended[partition] += await self._forget(partition, ended[start : start + MOST_ENTRIES])

    async def _forget(self, partition: int, ended: Sequence[Ended]) -> list[Ended]:
        """What SQL has to its end leaves the hot store. Gives what is still there."""
        if not ended:
            return []
        ttl = self._settings.hot_ttl_seconds
        gone = set(await self._store.forget(partition, ended, definition_ttl_seconds=ttl))
        left = [one for position, one in enumerate(ended) if position not in gone]
        if not left:
            return []
        held = await self._store.executions([one.execution_id for one in left])
        return [one for one, there in zip(left, held, strict=True) if there and there.epoch == one.epoch]


def _as_many_as_fit(entries: Sequence[Entry]) -> int:
    """How many entries to read next, if they are like those just read."""
    count = len({entry_id for entry_id, _ in entries})
    size = sum(len(change.detail) for _, event in entries for change in event.changes)
    return max(1, min(MOST_ENTRIES, max(FIRST_ENTRIES, 4 * count), BATCH_BYTES * count // max(size, 1)))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
