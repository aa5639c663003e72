"""The reconciler: brings the hot store to what SQL says.

It compares the executions that SQL says are running with what the hot store holds. What is absent is opened; what has a
smaller run is opened in the next one; what was cancelled is cancelled. What the two no longer agree on, because one of
them went back in time, is opened again from SQL. Opening goes by the epoch in SQL, so any number of reconcilers is
safe; what an execution already said is archived before it is judged.

Whose turn it is, a key in the hot store says that lives for one interval: one reconciler looks at a time, and when the
store is wiped, the key is gone too, so that somebody looks at once.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

import structlog

from headrace.engine.archiver import Archiver
from headrace.engine.opener import Opener, Opening
from headrace.engine.settling import Settler
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Execution, event_order
from headrace.model.state import ExecutionState
from headrace.record.openings import Openings, Wanted
from headrace.settings import Settings

PAGE = 1000
LOOK_SECONDS = 0.5
OPENED_WITHIN_SECONDS = 3.0  # from the reservation on, or whoever made it has died, or it came back with an old state

Reserved = dict[tuple[str, str], float]  # execution and token -> since when we see it

log = structlog.get_logger(__name__)


class Reconciler:
    def __init__(
        self, store: HotStore, openings: Openings, opener: Opener, archiver: Archiver, settings: Settings
    ) -> None:
        self._store = store
        self._openings = openings
        self._opener = opener
        self._archiver = archiver
        self._settler = Settler(store, openings, archiver, settings)
        self._settings = settings
        self._reserved: list[Reserved] = [{} for _ in range(store.partitions)]

    async def run(self, partition: int, stop: asyncio.Event) -> None:
        interval = self._settings.orchestrator_reconcile_interval
        turn = secrets.token_hex(8)
        while not stop.is_set():
            try:
                settled = await self._settler.settle(partition)
                if await self._store.hold(partition, "reconcile", turn, round(interval * 1000)) or settled:
                    await self.reconcile(partition)
                    turn = secrets.token_hex(8)  # the next turn is anybody's
            except (StoreUnavailable, RecordUnavailable) as error:
                log.warning("reconciling waits", partition=partition, error=str(error))
            try:
                await asyncio.wait_for(stop.wait(), min(interval, LOOK_SECONDS))
            except TimeoutError:
                continue

    async def reconcile(self, partition: int) -> int:
        """How many executions were opened."""
        await self._archiver.drain(partition)
        opened, after, reserved = 0, "", Reserved()
        while page := await self._openings.running(partition, self._store.partitions, after, PAGE):
            after = page[-1].execution_id
            opened += await self._reconcile(page, self._reserved[partition], reserved)
        self._reserved[partition] = reserved
        if opened:
            log.info("opened what the store had not", partition=partition, count=opened)
        return opened

    async def _reconcile(self, page: Sequence[Wanted], seen: Reserved, reserved: Reserved) -> int:
        held = await self._store.executions([one.execution_id for one in page])
        await self._opener.restore_definitions(
            {
                (self._store.partition_of(one.execution_id), one.definition_id)
                for one, there in zip(page, held, strict=True)
                if there
            }
        )
        pairs = [(one, there) for one, there in zip(page, held, strict=True) if not _agrees(one, there)]
        if not pairs:
            return 0
        ahead = [
            one.execution_id for one, there in pairs if there and event_order(one.last_event) < event_order(there.last)
        ]
        for partition in {self._store.partition_of(execution_id) for execution_id in ahead}:
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
            elif there.status == ExecutionState.OPENING:
                key, now_seconds = (wanted.execution_id, there.epoch), time.monotonic()
                reserved[key] = seen.get(key, now_seconds)
                if now_seconds - reserved[key] > OPENED_WITHIN_SECONDS:
                    openings.append(Opening(wanted, behind=there))
            elif there.run > wanted.run:
                continue  # somebody is at it
            elif _is_apart(before, there, wanted):
                openings.append(Opening(wanted, behind=there))
            elif wanted.is_cancelled and there.status == ExecutionState.RUNNING:
                await self._store.cancel(wanted.execution_id, wanted.run)
        return await self._opener.open_wanted(openings) if openings else 0


def _agrees(wanted: Wanted, there: Execution | None) -> bool:
    return (
        there is not None
        and there.status != ExecutionState.OPENING
        and (there.run, there.epoch, there.last) == (wanted.run, wanted.epoch, wanted.last_event)
        and not (wanted.is_cancelled and there.status == ExecutionState.RUNNING)
    )


def _is_apart(before: Wanted, there: Execution, now: Wanted) -> bool:
    """Whether store and record can no longer come together, `there` being read between the two looks at SQL: another
    epoch; or the store lacks what SQL had before (it went back in time); or SQL lacks what the store had said, though
    all of that was archived since (SQL went back in time, and the events are gone)."""
    if there.epoch != now.epoch:
        return True
    has_lost = before.epoch == there.epoch and event_order(there.last) < event_order(before.last_event)
    return has_lost or event_order(now.last_event) < event_order(there.last)
