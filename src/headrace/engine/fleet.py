"""Workers and queues as the hot store knows them, over all partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from headrace.hot.store import HotStore


async def workers(store: HotStore, heartbeat_timeout: float) -> list[dict[str, Any]]:
    """Those that have not signed off; `alive` says whether their heartbeat is fresh."""
    now_ms = await store.now_ms()
    found: dict[str, dict[str, Any]] = {}
    for partition in range(store.partitions):
        for name, (seen_ms, about) in (await store.workers(partition)).items():
            age = max(0.0, (now_ms - seen_ms) / 1000)
            told = msgspec.json.decode(about)
            found[name] = {
                "name": name,
                "alive": age <= heartbeat_timeout,
                "heartbeat_age_seconds": round(age, 3),
                "handlers": list(told.get("handlers", ())),
                "slots": told.get("slots"),
                "running": told.get("running"),
            }
    return [found[name] for name in sorted(found)]


async def queues(store: HotStore) -> list[dict[str, Any]]:
    """Depth and oldest age by handler."""
    now_ms = await store.now_ms()
    depths: Counter[str] = Counter()
    oldest: dict[str, int] = {}
    for partition in range(store.partitions):
        for handler, (depth, since_ms) in (await store.queue_ages(partition)).items():
            depths[handler] += depth
            if since_ms:
                oldest[handler] = min(since_ms, oldest.get(handler, since_ms))
    return [
        {
            "handler": name,
            "depth": depths[name],
            "oldest_age_seconds": round(max(0, now_ms - oldest[name]) / 1000, 3) if name in oldest else None,
        }
        for name in sorted(depths)
    ]
