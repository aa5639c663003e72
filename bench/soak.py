"""A soak: the service at half its speed for minutes, beside executions that live and wait. Nothing may grow.

Looked at all the while: the resident memory of every role, and what Valkey holds per live execution. The first part, in
which caches fill and the events of the last minute gather, does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence

from bench import over_http, shapes
from bench.cluster import memory_bytes
from bench.engine_alone import DIAMOND_NODES
from bench.usage import rss_bytes

LIVE = 10_000
LOOK_SECONDS = 5.0
WARM_UP_SECONDS = 90.0  # at least: events are held for a minute
WARM_UP_NODES = 150_000  # at least: more small outputs than the cache of an orchestrator holds
TICK_SECONDS = 0.1

Samples = dict[str, list[float]]


async def soak(kind: str, minutes: float, diamonds_per_second: float, live: int = LIVE) -> Samples:
    """Samples from the end of the warm-up on; `at` is in seconds."""
    samples: Samples = {}
    warm_up = max(WARM_UP_SECONDS, WARM_UP_NODES / (DIAMOND_NODES * diamonds_per_second))
    async with over_http.service(kind) as service:
        await service.park(live)
        began = time.perf_counter()
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(_load(service, diamonds_per_second, over))
            await asyncio.sleep(warm_up)
            while (passed := time.perf_counter() - began) < warm_up + 60 * minutes:
                for name, value in (await _look(service, live)).items():
                    samples.setdefault(name, []).append(value)
                samples.setdefault("at", []).append(passed)
                await asyncio.sleep(LOOK_SECONDS)
            over.set()
    return samples


async def _load(service: over_http.Service, diamonds_per_second: float, over: asyncio.Event) -> None:
    began, sent = time.perf_counter(), 0
    while not over.is_set():
        due = round(diamonds_per_second * (time.perf_counter() - began)) - sent
        await service.submit(shapes.diamond().name, due)
        sent += due
        await asyncio.sleep(TICK_SECONDS)


async def _look(service: over_http.Service, live: int) -> dict[str, float]:
    roles = {f"rss_bytes {role}": float(rss_bytes(pid)) for role, pid in service.pids.items() if role != "PostgreSQL"}
    return {**roles, "valkey_bytes_per_live_execution": await memory_bytes(service.store) / live}


def growth(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The last third as a multiple of the first."""
    third = max(1, len(samples["at"]) // 3)
    return {
        name: statistics.mean(values[-third:]) / statistics.mean(values[:third])
        for name, values in samples.items()
        if name != "at"
    }
