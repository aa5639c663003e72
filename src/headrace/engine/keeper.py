"""The periodic duties of an orchestrator: timers, hints that another one left behind, and what nobody can run.

Every duty is safe under any number of keepers; only timers and reconciliation are periodic, readiness never is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import structlog

from headrace.engine.orchestrator import Orchestrator
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Failure, Outcome
from headrace.settings import Settings
from headrace.steps.rendering import Ready

DUE_INTERVAL_SECONDS = 0.1
DUE_MOST = 500
TIDY_INTERVAL_SECONDS = 15.0
GONE_AFTER_SECONDS = 600.0

log = structlog.get_logger(__name__)


class Keeper:
    def __init__(self, store: HotStore, settings: Settings, orchestrator: Orchestrator) -> None:
        self._store = store
        self._settings = settings
        self._orchestrator = orchestrator
        self._name = f"{orchestrator.name}/keeper"

    async def keep(self, partition: int, stop: asyncio.Event) -> None:
        """All duties of one partition until told to stop."""
        settings = self._settings
        async with asyncio.TaskGroup() as group:
            group.create_task(_every(DUE_INTERVAL_SECONDS, stop, lambda: self.run_timers(partition)))
            interval = settings.orchestrator_stale_claim_interval
            group.create_task(_every(interval, stop, lambda: self.take_over(partition)))
            interval = min(TIDY_INTERVAL_SECONDS, settings.handler_missing_timeout)
            group.create_task(_every(interval, stop, lambda: self.tidy(partition)))
        with suppress(StoreUnavailable):
            await self._store.leave(partition, [self._name])

    async def run_timers(self, partition: int) -> None:
        more = True
        while more:
            lease_ms = round(self._settings.worker_lease_seconds * 1000)
            due, more = await self._store.due(partition, DUE_MOST, lease_ms)
            ready = []
            for item in due:
                plan = await self._orchestrator.plan(partition, item.definition)
                if plan is not None:
                    index = plan.graph.index[item.node]
                    ready.append(Ready(item.execution_id, item.epoch, item.run, item.attempt + 1, plan, index))
            await self._orchestrator.retry(partition, ready)

    async def take_over(self, partition: int) -> None:
        idle_ms = round(self._settings.orchestrator_stale_result_timeout * 1000)
        while entries := await self._store.take_over_hints(partition, self._name, idle_ms, DUE_MOST):
            log.info("taking over hints", partition=partition, count=len(entries))
            await self._orchestrator.process(partition, entries)

    async def tidy(self, partition: int) -> None:
        await self.reject_unrunnable(partition)
        await self._store.drop_idle_consumers(partition, round(GONE_AFTER_SECONDS * 1000))

    async def reject_unrunnable(self, partition: int) -> None:
        """While workers live, but none of them offers a handler, its tasks wait only so long."""
        now_ms = await self._store.now_ms()
        alive: set[str] = set()
        living = 0
        for worker, (seen_ms, about) in (await self._store.workers(partition)).items():
            if now_ms - seen_ms > GONE_AFTER_SECONDS * 1000:
                await self._store.drop_worker(partition, worker)
            elif now_ms - seen_ms <= self._settings.worker_heartbeat_timeout * 1000:
                living += 1
                alive.update(msgspec.json.decode(about, type=WorkerAbout).handlers)
        if not living:
            return
        age_ms = round(self._settings.handler_missing_timeout * 1000)
        for handler, waiting in (await self._store.queues(partition)).items():
            if waiting and handler not in alive:
                failure = Failure("no_handler", f"no live worker offers the handler {handler!r}", retryable=False)
                outcome = msgspec.json.encode(Outcome(failure=failure)).decode()
                while await self._store.reject(partition, handler, age_ms, DUE_MOST, outcome):
                    log.warning("rejected tasks: no handler", handler=handler)


class WorkerAbout(msgspec.Struct, frozen=True):
    """What a worker tells about itself with each heartbeat."""

    handlers: list[str]


async def _every(seconds: float, stop: asyncio.Event, duty: Callable[[], Awaitable[None]]) -> None:
    """Does the duty until told to stop; a store that is away only delays it."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            try:
                await duty()
            except StoreUnavailable as error:
                log.warning("store away", error=str(error))
            except Exception:
                log.exception("duty failed")
            await asyncio.wait((stopped,), timeout=seconds)
    finally:
        stopped.cancel()
