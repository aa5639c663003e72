"""A worker takes tasks, runs their handlers, and reports.

    claim -> attempt -> report

Work is claimed only for free slots. Leases are renewed by a thread of its own (heartbeat.py); a lost lease or a
cancelled execution stops the handler. On a stop no new work is taken, running handlers get their time, and the rest is
given back at once. Reports gather while the last call is under way, so that load makes batches by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import structlog

from headrace import logs
from headrace.errors import StoreUnavailable
from headrace.hot.keys import TRACE_FIELD
from headrace.hot.store import HotStore
from headrace.model.messages import Outcome, Report, Task, Token
from headrace.redaction import SHORTEST, is_redactable
from headrace.settings import Settings
from headrace.worker.attempt import Attempts
from headrace.worker.heartbeat import Heartbeat
from headrace.worker.next_steps import NextSteps
from headrace.worker.registry import Registry
from headrace.worker.slots import Slots

if TYPE_CHECKING:  # an optional dependency
    from headrace.tracing import Tracer

CALL_BYTES = 4 << 20
CALL_ITEMS = 500
AWAY_SECONDS = 0.2
NOTHING_FOR_US_SECONDS = 0.02
OFFER_EVERY_SECONDS = 5.0
STOP_WITHIN_SECONDS = 3.0  # for handlers that were told to stop, at shutdown

_encode = msgspec.json.Encoder().encode

log = structlog.get_logger(__name__)


class Running(msgspec.Struct):
    task: Task
    token: Token
    partition: int
    deadline: float | None
    job: asyncio.Task[None] | None = None


class Worker:
    def __init__(
        self, store: HotStore, registry: Registry, settings: Settings, name: str, tracer: Tracer | None = None
    ) -> None:
        self.name = name
        self.stale_reports = 0
        self._store = store
        self._settings = settings
        self._registry = registry
        self._tracer = tracer
        self._handlers = registry.names
        self._schemas = {each.name: _encode(each.config_schema).decode() for each in registry}
        self._slots = Slots(settings.worker_concurrency)
        self._attempts = Attempts(
            registry,
            concurrency=settings.worker_concurrency,
            max_output_bytes=settings.max_output_bytes,
            on_linger=lambda change: self._slots.give_back(-change),
            secrets={name: value.get_secret_value() for name, value in settings.secrets.items()},
            confidential=settings.confidential,
        )
        self._next_steps = NextSteps(store, settings)
        self._running: dict[Token, Running] = {}
        self._reports: list[list[Report]] = [[] for _ in range(store.partitions)]
        self._logged: list[list[tuple[Token, str]]] = [[] for _ in range(store.partitions)]
        self._reportable = [asyncio.Event() for _ in range(store.partitions)]
        self._stopping = False
        self._drained = False

    async def run(self, stop: asyncio.Event) -> None:
        """Works until told to stop, then drains."""
        self._warn_of_short_secrets()
        heartbeat = self._heartbeat(asyncio.get_running_loop())
        heartbeat.start()
        partitions = range(self._store.partitions)
        try:
            async with asyncio.TaskGroup() as group:
                fetchers = [group.create_task(self._fetch(partition)) for partition in partitions]
                watchers = [group.create_task(self._watch_control(partition)) for partition in partitions]
                reporters = [group.create_task(self._report(partition)) for partition in partitions]
                offering = group.create_task(self._offer())
                await stop.wait()
                offering.cancel()
                await self._stop_fetching(fetchers)
                if self._running:
                    log.info("taking no more work", running=len(self._running))
                await self._drain()
                for task in watchers:
                    task.cancel()
                self._drained = True
                for event in self._reportable:
                    event.set()
                await asyncio.wait(reporters)
        finally:
            await asyncio.to_thread(heartbeat.stop)
            await self._attempts.aclose()
            await self._next_steps.aclose()
            await self._registry.aclose()
        await self._sign_off()

    @property
    def is_stuck(self) -> bool:
        """Whether handlers go on that were told to stop: the process can only end without them."""
        return self._attempts.is_stuck

    def _warn_of_short_secrets(self) -> None:
        values = {name: value.get_secret_value() for name, value in self._settings.secrets.items()}
        if short := [name for name, value in values.items() if value and not is_redactable(value)]:
            log.warning("secrets are too short to be redacted", names=short, shortest=SHORTEST)

    async def _offer(self) -> None:
        """Tells what handlers there are, at the start and now and then: the store may have been wiped."""
        while True:
            try:
                await self._store.offer(self._schemas)
            except StoreUnavailable:
                await asyncio.sleep(AWAY_SECONDS)
            else:
                await asyncio.sleep(OFFER_EVERY_SECONDS)

    # ---- taking work

    async def _fetch(self, partition: int) -> None:
        """Where it is the only one, it holds the free slots while it waits, so that the store can claim for it in the
        moment in which tasks come. Several share the slots: they wait first."""
        alone = self._store.partitions == 1
        lease_ms = round(self._settings.worker_lease_seconds * 1000)
        handlers = list(self._handlers)
        heard: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        nothing_left = False
        while not self._stopping:
            claimed: Sequence[Task] = ()
            read = asked = 0
            try:
                if nothing_left and not alone:
                    await self._store.wait_for_tasks(partition, handlers, heard)
                asked = await self._slots.reserve(self._store.partitions)
                if self._stopping:
                    break
                wanted = (partition, self.name, asked, lease_ms, handlers)
                if nothing_left and alone:
                    claimed, read = await self._store.claim_when_called(*wanted, heard=heard)
                else:
                    claimed, read = await self._store.claim(*wanted)
            except StoreUnavailable as error:
                log.warning("store away", error=str(error))
                await asyncio.sleep(AWAY_SECONDS)
            finally:
                self._slots.give_back(asked - len(claimed))
            for task in claimed:
                self._start(loop, partition, task)
            handlers.append(handlers.pop(0))
            nothing_for_us = read > 0 and not claimed
            nothing_left = read < asked and not nothing_for_us
            if nothing_for_us:
                await asyncio.sleep(NOTHING_FOR_US_SECONDS)  # tasks of another format go round until their workers come
            elif nothing_left:
                await asyncio.sleep(0)  # they begin before the next claim is made; if there is more, that comes first

    def _start(self, loop: asyncio.AbstractEventLoop, partition: int, task: Task) -> None:
        token = task.token
        running = self._running[token] = Running(task, token, partition, self._attempts.hard_deadline(task))
        self._next_steps.prepare(partition, task)
        running.job = loop.create_task(self._attempt(running))

    async def _attempt(self, running: Running) -> None:
        task = running.task
        lines = logs.keep()
        try:
            if self._tracer is None:
                outcome = await self._attempts.run(task)
            else:
                outcome = await self._traced(task, self._tracer)
        except asyncio.CancelledError:
            self._running.pop(running.token, None)  # cancelled, lost or given back: nothing to report
            return
        finally:
            self._slots.give_back(1)
        if lines:
            self._logged[running.partition].append((running.token, f"[{','.join(lines)}]"))
        self._queue_report(running, outcome)

    async def _traced(self, task: Task, tracer: Tracer) -> Outcome:
        """Within a span. What the request brought is read here, and by nobody who does not trace; without it, should
        the store be away, the span is in a trace of its own."""
        texts: dict[str, str] | None = None
        with suppress(StoreUnavailable):
            texts = await self._store.outputs(task.execution_id, (TRACE_FIELD,), most_bytes=1 << 10)
        return await tracer.attempt(task, self.name, (texts or {}).get(TRACE_FIELD), self._attempts.run)

    # ---- reporting

    def _queue_report(self, running: Running, outcome: Outcome) -> None:
        """A success with what follows from it, where that can be told here."""
        report, output = None, outcome.output
        if output is not None:
            report = self._next_steps.report(running.token, running.task.definition, output)
        queue = self._reports[running.partition]
        if not queue:
            self._reportable[running.partition].set()
        queue.append(report or Report(running.token, _encode(outcome).decode()))

    async def _report(self, partition: int) -> None:
        """Until drained; what the store could not take is tried again, for the lease goes on meanwhile."""
        queue, event = self._reports[partition], self._reportable[partition]
        while queue or not self._drained:
            if not queue:
                event.clear()
                await event.wait()
                continue
            batch = _first(queue)
            try:
                stale = await self._store.report(partition, batch)
            except StoreUnavailable as error:
                log.warning("store away", error=str(error))
                if self._drained:
                    return
                await asyncio.sleep(AWAY_SECONDS)
                continue
            del queue[: len(batch)]
            await self._keep_logs(partition)
            for report in batch:
                self._running.pop(report.token, None)
            if stale:
                self.stale_reports += len(stale)
                log.info("reports came too late", count=len(stale))

    async def _keep_logs(self, partition: int) -> None:
        """What handlers logged, beside their reports; nothing depends on it, so nothing is tried again."""
        logged, self._logged[partition] = self._logged[partition], []
        if logged:
            with suppress(StoreUnavailable):
                await self._store.keep_logs(partition, logged)

    # ---- stopping handlers

    async def _watch_control(self, partition: int) -> None:
        after = None
        while True:
            try:
                if after is None:
                    after = await self._store.last_control(partition)
                after, cancelled = await self._store.read_control(partition, after)
            except StoreUnavailable:
                await asyncio.sleep(AWAY_SECONDS)
                continue
            ended = set(cancelled)
            if ended:
                self._abandon([token for token in self._running if (token.execution_id, token.epoch) in ended])

    def _abandon(self, tokens: Sequence[Token]) -> None:
        """Stops handlers whose result no longer counts."""
        for token in tokens:
            running = self._running.get(token)
            if running is not None and running.job is not None and not running.job.done():
                log.info("stopping a handler", execution_id=token.execution_id, node=token.node, attempt=token.attempt)
                running.job.cancel()

    async def _stop_fetching(self, fetchers: Sequence[asyncio.Task[None]]) -> None:
        """A fetcher that waits for a slot or for a bell wakes up and sees that we stop. What a store that is away may
        have claimed for one is given up: its leases will run out."""
        self._stopping = True
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_SECONDS):
                for partition in range(self._store.partitions):
                    await self._store.ring(partition, self._handlers[0])
                while not all(fetcher.done() for fetcher in fetchers):
                    self._slots.give_back(1)
                    await asyncio.wait(fetchers, timeout=0.05)
        for fetcher in fetchers:
            fetcher.cancel()
        await asyncio.wait(fetchers)

    async def _drain(self) -> None:
        """Running handlers get their time; what is left then goes back to the queues."""
        jobs = {running.job for running in self._running.values() if running.job and not running.job.done()}
        if jobs:
            await asyncio.wait(jobs, timeout=self._settings.worker_graceful_shutdown_timeout)
        left = [running for running in self._running.values() if running.job and not running.job.done()]
        by_partition: dict[int, list[Task]] = {}
        for running in left:
            by_partition.setdefault(running.partition, []).append(running.task)
            if running.job:
                running.job.cancel()
        if left:
            await asyncio.wait([running.job for running in left if running.job], timeout=STOP_WITHIN_SECONDS)
        for partition, tasks in by_partition.items():
            try:
                for start in range(0, len(tasks), CALL_ITEMS):
                    given = await self._store.release(partition, tasks[start : start + CALL_ITEMS])
                    log.info("gave back unfinished tasks", count=given)
            except StoreUnavailable as error:
                log.warning("could not give tasks back: their leases will run out", error=str(error))

    async def _sign_off(self) -> None:
        try:
            for partition in range(self._store.partitions):
                await self._store.drop_worker(partition, self.name)
        except StoreUnavailable:
            log.warning("could not sign off: the store is away")

    def _heartbeat(self, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        settings = self._settings
        return Heartbeat(
            self._store.another,
            worker=self.name,
            about=self._about,
            interval_seconds=min(settings.worker_heartbeat_interval, settings.worker_lease_seconds / 3),
            lease_seconds=settings.worker_lease_seconds,
            leases=lambda: {
                token: (running.partition, running.deadline) for token, running in self._running.copy().items()
            },
            lost=lambda tokens: _in_loop(loop, self._abandon, tokens),
        )

    def _about(self) -> str:
        slots = self._slots
        about = {"handlers": self._handlers, "slots": slots.count, "running": len(self._running)}
        return _encode(about).decode()


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Sequence[Token]], None], tokens: Sequence[Token]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, tokens)


def _first(queue: Sequence[Report]) -> list[Report]:
    """What one call may bring, at least one of them."""
    batch: list[Report] = []
    items, size = 0, 0
    for report in queue:
        items += 1 + len(report.children or ())
        size += len(report.outcome)
        for task in report.tasks:
            size += len(task.payload) if task else 0
        if batch and (items > CALL_ITEMS or size > CALL_BYTES):
            break
        batch.append(report)
    return batch
