"""What a network does between the roles and Valkey: see proxy.py."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault, Parameters

COME_WITHIN_SECONDS = 20.0

# What a command looks like on the wire: the end of a function's name, or the command itself. Of `open` and the likes
# there are many per second; `renew` comes with every heartbeat.
COMMANDS = (
    "_claim", "_report", "_renew", "_push", "_advance", "_dispatch", "_due", "_reserve", "_open", "_forget",
    "XREADGROUP", "XAUTOCLAIM", "XREAD", "HMGET", "SET",
)  # fmt: skip


async def drop_reply(cluster: Cluster, given: Parameters) -> bool:
    return await cluster.proxy.drop_reply(given["target"], COME_WITHIN_SECONDS)


def draw_command(rng: random.Random) -> dict[str, Any]:
    return {"target": rng.choice(COMMANDS)}


async def reset(cluster: Cluster, given: Parameters) -> bool:
    return cluster.proxy.reset_some(given["connections"]) > 0


async def half_open(cluster: Cluster, given: Parameters) -> bool:
    with cluster.proxy.half_open(given["connections"]) as count:
        await asyncio.sleep(given["seconds"])
        return count > 0


async def slow_down(cluster: Cluster, given: Parameters) -> bool:
    cluster.proxy.latency_seconds = given["latency_seconds"]
    await asyncio.sleep(given["seconds"])
    cluster.proxy.latency_seconds = 0.0
    return True


async def split(cluster: Cluster, given: Parameters) -> bool:
    cluster.proxy.splits = True
    await asyncio.sleep(given["seconds"])
    cluster.proxy.splits = False
    return True


def draw_connections(rng: random.Random) -> dict[str, Any]:
    return {"connections": rng.randint(1, 6)}


def draw_dead(rng: random.Random) -> dict[str, Any]:
    return {**draw_connections(rng), "seconds": round(rng.uniform(0.5, 5.0), 1)}


def draw_latency(rng: random.Random) -> dict[str, Any]:
    return {"latency_seconds": rng.choice((0.005, 0.02, 0.1)), "seconds": round(rng.uniform(0.5, 3.0), 1)}


def draw_seconds(rng: random.Random) -> dict[str, Any]:
    return {"seconds": round(rng.uniform(0.3, 2.0), 1)}


FAULTS = (
    Fault("reply_dropped", 35, drop_reply, draw_command, longest_seconds=COME_WITHIN_SECONDS),
    Fault("connections_reset", 18, reset, draw_connections),
    Fault("half_open", 3, half_open, draw_dead),
    Fault("latency", 3, slow_down, draw_latency),
    Fault("frames_split", 3, split, draw_seconds),
)
