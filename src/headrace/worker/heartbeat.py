"""The heartbeat of a worker: a thread that renews the leases of all running attempts and tells that the worker lives.

The thread has an event loop and a connection of its own, so a handler that blocks the worker's loop can neither lose a
lease nor stop the heartbeat. It also ends, in the engine's eyes, an attempt that is past its timeout and that the
worker's loop did not end because it is blocked: it reports the timeout itself. A report is fenced by its token, so one
too many changes nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from headrace.errors import HeadraceError
from headrace.hot.store import HotStore
from headrace.model.messages import Failure, Outcome, Report, Token

LATE_SECONDS = 2.0  # beyond the handler's own grace: the event loop was given its chance
LOOK_SECONDS = 1.0  # how often a store that is away is asked again, and deadlines are looked at

log = structlog.get_logger(__name__)

Leases = Mapping[Token, tuple[int, float | None]]  # token -> partition, hard deadline on the monotonic clock


class Heartbeat:
    """`leases` and `about` are called in the thread, and so is `lost`, with the attempts that no longer count."""

    def __init__(
        self,
        connect: Callable[[], HotStore],
        *,
        worker: str,
        about: Callable[[], str],
        interval_seconds: float,
        lease_seconds: float,
        leases: Callable[[], Leases],
        lost: Callable[[Sequence[Token]], None],
    ) -> None:
        self._connect = connect
        self._worker = worker
        self._about = about
        self._interval = interval_seconds
        self._lease_ms = round(lease_seconds * 1000)
        self._leases = leases
        self._lost = lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Beats no more; call it from a thread that may wait."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        store = self._connect()
        next_renewal = 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            try:
                if now >= next_renewal:
                    await self._renew(store)
                    next_renewal = now + self._interval
                await self._end_overdue(store, now)
            except HeadraceError as error:
                log.warning("heartbeat failed", error=str(error))
            except Exception:
                log.exception("heartbeat failed")
            pause = max(0.01, min(LOOK_SECONDS, next_renewal - time.monotonic()))
            await asyncio.to_thread(self._stop.wait, pause)
        await store.aclose()

    async def _renew(self, store: HotStore) -> None:
        leases = self._leases()
        for partition in range(store.partitions):
            tokens = [token for token, (where, _) in leases.items() if where == partition]
            lost = await store.renew(partition, self._worker, self._about(), self._lease_ms, tokens)
            if lost:
                self._lost([tokens[position] for position in lost])

    async def _end_overdue(self, store: HotStore, now: float) -> None:
        for token, (partition, deadline) in self._leases().items():
            if deadline is not None and now > deadline + LATE_SECONDS:
                failure = Failure("timeout", "the handler blocked the event loop beyond its timeout", retryable=True)
                outcome = msgspec.json.encode(Outcome(failure=failure)).decode()
                await store.report(partition, [Report(token, outcome)])
                self._lost([token])
