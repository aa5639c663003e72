"""The reconciler: brings the hot store to what SQL says.

It compares the executions that SQL says are running with what the hot store holds, once at the start, then every few
seconds. What is absent is opened; what has a smaller run is opened in the next one; what was cancelled is cancelled.
What the two no longer agree on, because one of them went back in time, is opened again from SQL. Opening goes by the
epoch in SQL, so any number of reconcilers is safe; what an execution already said is archived before it is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from headrace.engine.archiver import Archiver
from headrace.engine.opener import Opener, Opening
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Execution
from headrace.model.state import ExecutionState
from headrace.record.openings import Openings, Wanted
from headrace.settings import Settings

PAGE = 1000
AWAY_SECONDS = 0.5

log = structlog.get_logger(__name__)


class Reconciler:
    def __init__(
        self, store: HotStore, openings: Openings, opener: Opener, archiver: Archiver, settings: Settings
    ) -> None:
        self._store = store
        self._openings = openings
        self._opener = opener
        self._archiver = archiver
        self._settings = settings

    async def run(self, partition: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            pause = self._settings.orchestrator_reconcile_interval
            try:
                await self.reconcile(partition)
            except (StoreUnavailable, RecordUnavailable) as error:
                log.warning("reconciling waits", partition=partition, error=str(error))
                pause = AWAY_SECONDS
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                continue

    async def reconcile(self, partition: int) -> int:
        """How many executions were opened."""
        await self._archiver.drain(partition)
        opened, after = 0, ""
        while page := await self._openings.running(partition, after, PAGE):
            after = page[-1].execution_id
            opened += await self._reconcile(partition, page)
        if opened:
            log.info("opened what the store had not", partition=partition, count=opened)
        return opened

    async def _reconcile(self, partition: int, page: Sequence[Wanted]) -> int:
        held = await self._store.executions([one.execution_id for one in page])
        pairs = [(one, there) for one, there in zip(page, held, strict=True) if not _agrees(one, there)]
        if not pairs:
            return 0
        if any(there and _is_before(one.last_event, there.last) for one, there in pairs):
            await self._archiver.drain(partition)  # then SQL has everything that the store had said when we looked
        # SQL is read again, after the store: what differs now really differs, and is not just being opened.
        now = {one.execution_id: one for one in await self._openings.wanted([one.execution_id for one, _ in pairs])}
        openings: list[Opening] = []
        for before, there in pairs:
            wanted = now.get(before.execution_id)
            if wanted is None:
                continue  # it has ended
            if there is None or there.run < wanted.run:
                openings.append(Opening(wanted))
            elif there.status == ExecutionState.OPENING or there.run > wanted.run:
                continue  # somebody is at it
            elif _is_apart(before, there, wanted):
                openings.append(Opening(wanted, behind=there))
            elif wanted.is_cancelled and there.status == ExecutionState.RUNNING:
                await self._store.cancel(wanted.execution_id, wanted.run)
        return await self._opener.open_wanted(openings) if openings else 0


def _agrees(wanted: Wanted, there: Execution | None) -> bool:
    return (
        there is not None
        and (there.run, there.epoch, there.last) == (wanted.run, wanted.epoch, wanted.last_event)
        and not (wanted.is_cancelled and there.status == ExecutionState.RUNNING)
    )


def _is_apart(before: Wanted, there: Execution, now: Wanted) -> bool:
    """Whether store and record can no longer come together, `there` being read between the two looks at SQL: another
    epoch; or the store lacks what SQL had before (it went back in time); or SQL lacks what the store had said, though
    all of that was archived since (SQL went back in time, and the events are gone)."""
    if there.epoch != now.epoch:
        return True
    has_lost = before.epoch == there.epoch and _is_before(there.last, before.last_event)
    return has_lost or _is_before(now.last_event, there.last)


def _is_before(one: str, other: str) -> bool:
    """Whether an event id is older than another; no event is older than any."""
    return _parts(one) < _parts(other)


def _parts(event_id: str) -> tuple[int, int]:
    ms, _, number = event_id.partition("-")
    return int(ms or 0), int(number or 0)
