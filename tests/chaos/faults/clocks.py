"""Clocks of workers that are an hour off, in either direction, and jump back."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault, Parameters

HOUR_SECONDS = 3600.0


async def set_wrong(cluster: Cluster, given: Parameters) -> bool:
    orders = cluster.roles[given["target"]].orders
    orders.skew_seconds = given["skew_seconds"]
    await asyncio.sleep(given["seconds"])
    orders.skew_seconds = 0.0
    return True


def draw(rng: random.Random) -> dict[str, Any]:
    worker, direction = rng.randint(1, 3), rng.choice((-1, 1))
    return {
        "target": f"worker-{worker}",
        "skew_seconds": direction * HOUR_SECONDS,
        "seconds": round(rng.uniform(2.0, 10.0), 1),
    }


FAULTS = (Fault("clock_off", 3, set_wrong, draw),)
