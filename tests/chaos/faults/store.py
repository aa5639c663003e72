"""Valkey dies, forgets, goes back in time, loses its functions, its connections or its speed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.errors import StoreUnavailable
from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault, Parameters


def draw_away(rng: random.Random) -> dict[str, Any]:
    return {"away_seconds": round(rng.choice((0.0, 0.2, 1.0)) * rng.random(), 2)}


@asynccontextmanager
async def killed(cluster: Cluster, given: Parameters) -> AsyncIterator[None]:
    """The server is dead inside and alive again behind it."""
    async with cluster.valkey.changing:
        await cluster.valkey.kill()
        try:
            yield
            await asyncio.sleep(given["away_seconds"])
        finally:
            await cluster.valkey.start()


async def kill(cluster: Cluster, given: Parameters) -> bool:
    async with killed(cluster, given):
        return True


async def cut_file(cluster: Cluster, given: Parameters) -> bool:
    async with killed(cluster, given):
        cluster.valkey.cut()
    return True


async def damage_file(cluster: Cluster, given: Parameters) -> bool:
    async with killed(cluster, given):
        cluster.valkey.damage()
    cluster.losses += cluster.valkey.has_set_aside
    return True


async def empty_folder(cluster: Cluster, given: Parameters) -> bool:
    async with killed(cluster, given):
        cluster.valkey.empty()
    cluster.losses += 1
    return True


async def flush_all(cluster: Cluster, given: Parameters) -> bool:
    if await _told(cluster, "FLUSHALL"):
        cluster.losses += 1
        return True
    return False


async def flush_functions(cluster: Cluster, given: Parameters) -> bool:
    return await _told(cluster, "FUNCTION", "FLUSH")


async def kill_all_clients(cluster: Cluster, given: Parameters) -> bool:
    return await _told(cluster, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def kill_client(cluster: Cluster, given: Parameters) -> bool:
    """One of them, old or new; not our own."""
    try:
        own = await cluster.link.call("CLIENT", "ID")
        lines = (await cluster.link.call("CLIENT", "LIST")).decode().splitlines()
    except StoreUnavailable:
        return False
    others = [each for each in (line.split()[0].removeprefix("id=") for line in lines) if each != str(own)]
    return bool(others) and await _told(cluster, "CLIENT", "KILL", "ID", others[int(given["which"] * len(others))])


async def pause_clients(cluster: Cluster, given: Parameters) -> bool:
    if not await _told(cluster, "CLIENT", "PAUSE", given["milliseconds"], given["mode"]):
        return False
    await asyncio.sleep(given["milliseconds"] / 1000)
    return True


async def _told(cluster: Cluster, *command: str | int) -> bool:
    """A server that is just being started is waited for."""
    async with cluster.valkey.changing:
        try:
            await cluster.link.call(*command)
        except StoreUnavailable:
            return False
    return True


def draw_pause(rng: random.Random) -> dict[str, Any]:
    return {"milliseconds": rng.randrange(100, 2500), "mode": rng.choice(("ALL", "WRITE"))}


def draw_which(rng: random.Random) -> dict[str, Any]:
    return {"which": rng.random()}


def _away(name: str, per_minute: float, inject: Callable[[Cluster, Parameters], Any]) -> Fault:
    return Fault(name, per_minute, inject, draw_away)


FAULTS = (
    _away("valkey_killed", 2, kill),
    _away("aof_cut", 1, cut_file),
    _away("aof_damaged", 0.7, damage_file),
    _away("empty_folder", 0.7, empty_folder),
    Fault("flushall", 2.5, flush_all),
    Fault("function_flush", 5, flush_functions),
    Fault("client_killed", 12, kill_client, draw_which),
    Fault("all_clients_killed", 2, kill_all_clients),
    Fault("clients_paused", 3, pause_clients, draw_pause),
)
