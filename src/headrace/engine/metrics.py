"""The metrics of the whole installation, by a named list: what the two stores say at the moment of a scrape.

Every API process shows the same numbers, so one of them is enough to ask. Reading costs a few round trips, at most once
a second however many ask, and does not grow with the history. What a store that is away would have said is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, TypeVar

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.engine.service import Service
from headrace.engine.tally import BEYOND, BOUNDS_SECONDS, OUTCOMES
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.state import TERMINAL_EXECUTIONS
from headrace.record.queries import Queries

KEPT_SECONDS: Final = 1.0
WITHIN_SECONDS: Final = 3.0  # of each store: Prometheus waits for ten

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Named:
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    label: str = ""


METRICS: Final = {
    "headrace_store_up": Named("gauge", "1 if the store answers, else 0: valkey or sql.", "store"),
    "headrace_executions_running": Named("gauge", "Executions that are RUNNING."),
    "headrace_executions_ended_total": Named("counter", "Runs of executions that ended, by their status.", "status"),
    "headrace_execution_seconds": Named("histogram", "Seconds from the start of a run to its end."),
    "headrace_node_outcomes_total": Named(
        "counter",
        "Attempts that completed, failed for good or are retried, and nodes skipped while others go on.",
        "outcome",
    ),
    "headrace_attempt_seconds": Named("histogram", "Seconds from the moment a worker takes an attempt to its outcome."),
    "headrace_lost_leases_total": Named("counter", "Attempts given up because their worker was not heard of in time."),
    "headrace_late_results_total": Named("counter", "Results that were refused: the attempt no longer counted."),
    "headrace_dead_letters": Named("gauge", "Dead letters that nobody has retried or dropped."),
    "headrace_queue_depth": Named("gauge", "Tasks that wait for a worker.", "handler"),
    "headrace_queue_oldest_age_seconds": Named("gauge", "How long the oldest of them has waited.", "handler"),
    "headrace_workers_alive": Named("gauge", "Workers whose heartbeat is fresh."),
    "headrace_slots": Named("gauge", "Attempts that the live workers can run at once."),
    "headrace_slots_in_use": Named("gauge", "Attempts that they ran at their last heartbeat."),
    "headrace_archive_lag_seconds": Named("gauge", "Age of the oldest event that is not in SQL yet.", "partition"),
    "headrace_events_set_aside": Named("gauge", "Events that SQL refused: they are in the table set_aside."),
}


class Metrics(Collector):
    """`refresh`, then let the registry collect."""

    def __init__(self, service: Service, queries: Queries, store: HotStore) -> None:
        self._service, self._queries, self._store = service, queries, store
        self._families: list[Metric] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    def collect(self) -> Iterable[Metric]:
        return self._families

    async def refresh(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at > KEPT_SECONDS:
                self._families = await self._read()
                self._read_at = time.monotonic()

    async def _read(self) -> list[Metric]:
        record = await _unless_away("sql", self._from_record())
        cursors = None if record is None else record[1]
        hot = await _unless_away("valkey", self._from_hot(cursors))
        up = {"sql": float(record is not None), "valkey": float(hot is not None)}
        return [_family("headrace_store_up", up), *(record[0] if record else ()), *(hot or ())]

    async def _from_record(self) -> tuple[list[Metric], dict[int, str]]:
        counts = await self._queries.counts()
        families = [
            _one("headrace_executions_running", counts.running),
            _one("headrace_dead_letters", counts.dead_letters),
            _one("headrace_events_set_aside", counts.set_aside),
        ]
        return families, await self._queries.cursors()

    async def _from_hot(self, cursors: Mapping[int, str] | None) -> list[Metric]:
        lag = [] if cursors is None else [await self._lag(cursors)]
        return [*await self._happened(), *await self._queues(), *await self._workers(), *lag]

    async def _happened(self) -> list[Metric]:
        """What tally.py has counted, of all partitions together."""
        counts: Counter[str] = Counter()
        for partition in range(self._store.partitions):
            counts.update(await self._store.counted(partition))
        ended = {state.name: counts[f"executions:{state.name}"] for state in sorted(TERMINAL_EXECUTIONS)}
        outcomes = {name: counts[f"nodes:{name}"] for name in OUTCOMES.values()}
        return [
            _family("headrace_executions_ended_total", ended),
            _histogram("headrace_execution_seconds", "execution", counts),
            _family("headrace_node_outcomes_total", outcomes),
            _histogram("headrace_attempt_seconds", "attempt", counts),
            _one("headrace_lost_leases_total", counts["lost_leases"]),
            _one("headrace_late_results_total", counts["late_results"]),
        ]

    async def _queues(self) -> list[Metric]:
        queues = await self._service.queues()
        depths = {queue["handler"]: queue["depth"] for queue in queues}
        ages = {queue["handler"]: queue["oldest_age_seconds"] or 0.0 for queue in queues}
        return [_family("headrace_queue_depth", depths), _family("headrace_queue_oldest_age_seconds", ages)]

    async def _workers(self) -> list[Metric]:
        alive = [worker for worker in await self._service.workers() if worker["alive"]]
        return [
            _one("headrace_workers_alive", len(alive)),
            _one("headrace_slots", sum(worker["slots"] or 0 for worker in alive)),
            _one("headrace_slots_in_use", sum(worker["running"] or 0 for worker in alive)),
        ]

    async def _lag(self, cursors: Mapping[int, str]) -> Metric:
        """The cursors were read first, so what has been archived meanwhile can only make it look greater."""
        now_ms = await self._store.now_ms()
        ages: dict[str, float] = {}
        for partition in range(self._store.partitions):
            waiting = await self._store.read_events(partition, cursors.get(partition, "0-0"), 1, block=False)
            ages[str(partition)] = max(0.0, (now_ms - waiting[0][1].at_ms) / 1000) if waiting else 0.0
        return _family("headrace_archive_lag_seconds", ages)


async def _unless_away(store: str, reading: Coroutine[Any, Any, Result]) -> Result | None:
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            return await reading
    except (StoreUnavailable, RecordUnavailable, TimeoutError) as error:
        log.warning("metrics are left out: a store is away", store=store, error=str(error) or "no answer in time")
        return None


def _family(name: str, samples: Mapping[str, float]) -> Metric:
    """One sample for each value of the label."""
    family = _kind(name)(name, METRICS[name].meaning, labels=[METRICS[name].label])
    for label, value in samples.items():
        family.add_metric([label], value)
    return family


def _one(name: str, value: float) -> Metric:
    return _kind(name)(name, METRICS[name].meaning, value)


def _kind(name: str) -> type[CounterMetricFamily | GaugeMetricFamily]:
    return CounterMetricFamily if METRICS[name].kind == "counter" else GaugeMetricFamily


def _histogram(name: str, kind: str, counts: Mapping[str, int]) -> Metric:
    bounds = [*map(str, BOUNDS_SECONDS), "+Inf"]
    up_to = accumulate(counts.get(f"{kind}:bucket:{number}", 0) for number in range(BEYOND + 1))
    buckets = list(zip(bounds, up_to, strict=True))
    return HistogramMetricFamily(name, METRICS[name].meaning, buckets, counts.get(f"{kind}:ms", 0) / 1000)
