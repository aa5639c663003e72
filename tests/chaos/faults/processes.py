"""Roles are killed, stopped for longer than a lease, made to die at a named point, and replaced by another version."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

from tests.chaos.cluster import ROLES, VERSIONS, Cluster, Role
from tests.chaos.crash_points import CRASH_POINTS
from tests.chaos.faults.fault import Fault, Parameters

HIT_WITHIN_SECONDS = 45.0
SELDOM_LONGER_SECONDS = 20.0
WORK_SECONDS = 3.0  # between two crashes of a role: else nothing is done that could go wrong
TOLD_AGAIN_SECONDS = 1.0
CRASHES_PER_MINUTE = {"api": 6, "orchestrator": 14, "worker": 8}  # there is only one API, and nothing without it
POINTS = {str(point): point for point in CRASH_POINTS}


def draw_role(rng: random.Random) -> dict[str, Any]:
    return {"target": rng.choice(list(ROLES))}


async def kill(cluster: Cluster, given: Parameters) -> bool:
    return cluster.roles[given["target"]].send(signal.SIGKILL)


def draw_stop(rng: random.Random) -> dict[str, Any]:
    return {**draw_role(rng), "seconds": round(rng.uniform(2.0, 5.0), 1)}  # a lease is 1.5 s


async def stop_and_go_on(cluster: Cluster, given: Parameters) -> bool:
    role = cluster.roles[given["target"]]
    async with role.busy:
        await role.settled(0.0)
        if not role.send(signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(given["seconds"])
        finally:
            role.send(signal.SIGCONT)
        return True


def draw_crash(rng: random.Random) -> dict[str, Any]:
    """The plan goes through all points in turn; `seat` chooses among the roles of that kind."""
    return {"count": rng.randint(1, 3), "seat": rng.random()}


async def crash(cluster: Cluster, given: Parameters) -> bool:
    """Armed until it is hit, whatever else happens to the role meanwhile."""
    point = POINTS[given["target"]]
    role = _free(cluster.of_kind(point.role), given["seat"])
    async with role.busy:
        await role.settled(WORK_SECONDS)
        role.orders.arm(point.name, 1 if point.role == "api" or point.step.at_stop else given["count"])
        try:
            async with asyncio.timeout(HIT_WITHIN_SECONDS):
                await _hit(role, told_to_stop=point.step.at_stop)
        except TimeoutError:
            return False
        finally:
            role.orders.disarm()
        return True


def _free(roles: list[Role], seat: float) -> Role:
    roles = [role for role in roles if not role.busy.locked()] or roles
    return roles[int(seat * len(roles))]


async def _hit(role: Role, *, told_to_stop: bool) -> None:
    waited = 0.0
    while role.orders.armed:
        if told_to_stop and waited <= 0:
            role.send(signal.SIGTERM)
            waited = TOLD_AGAIN_SECONDS
        await asyncio.sleep(0.02)
        waited -= 0.02


async def upgrade(cluster: Cluster, given: Parameters) -> bool:
    """One role after the other ends in order and comes back as the other version; meanwhile both are at work."""
    names = list(cluster.roles)
    random.Random(given["order"]).shuffle(names)
    for name in names:
        role = cluster.roles[name]
        async with role.busy:
            role.version = (role.version + 1) % VERSIONS
            await role.replace()
        await asyncio.sleep(given["pause"])
    return True


def draw_upgrade(rng: random.Random) -> dict[str, Any]:
    return {"order": rng.randrange(1000), "pause": round(rng.uniform(0.0, 1.5), 2)}


FAULTS = (
    Fault("role_killed", 8, kill, draw_role),
    Fault("role_stopped", 2, stop_and_go_on, draw_stop),
    Fault("crash", sum(CRASHES_PER_MINUTE.values()), crash, draw_crash, longest_seconds=SELDOM_LONGER_SECONDS),
    Fault("upgrade", 0.5, upgrade, draw_upgrade, longest_seconds=30),
)
