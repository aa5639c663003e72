"""The record is away: PostgreSQL stopped, killed, its sessions ended, its answers lost; SQLite locked or full."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from typing import Any, cast

import asyncpg  # type: ignore[import-untyped]

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault, Parameters
from tests.chaos.stores import POSTGRES_AWAY, Postgresql, Sqlite

LONGEST_AWAY_SECONDS = 60.0
COMMIT_WITHIN_SECONDS = 20.0
OTHERS = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename <> ''"


def postgresql(cluster: Cluster) -> Postgresql:
    return cast("Postgresql", cluster.sql)


async def stop(cluster: Cluster, given: Parameters) -> bool:
    sql = postgresql(cluster)
    async with sql.changing:
        await asyncio.to_thread(sql.server.stop)
        try:
            await asyncio.sleep(given["seconds"])
        finally:
            await asyncio.to_thread(sql.server.start)
    return True


async def kill(cluster: Cluster, given: Parameters) -> bool:
    sql = postgresql(cluster)
    async with sql.changing:
        await sql.kill()
        await asyncio.to_thread(sql.server.start)
    return True


async def end_sessions(cluster: Cluster, given: Parameters) -> bool:
    try:
        connection = await asyncpg.connect(cluster.sql.url, timeout=5)
        try:
            return bool(await connection.fetchval(OTHERS, timeout=5))
        finally:
            connection.terminate()
    except POSTGRES_AWAY:
        return False


async def drop_commit(cluster: Cluster, given: Parameters) -> bool:
    """It is committed, and whoever asked for it does not hear of it."""
    return await postgresql(cluster).proxy.drop_reply("COMMIT", COMMIT_WITHIN_SECONDS)


async def reset(cluster: Cluster, given: Parameters) -> bool:
    return postgresql(cluster).proxy.reset_some(given["connections"]) > 0


async def lock(cluster: Cluster, given: Parameters) -> bool:
    return await asyncio.to_thread(_lock, cast("Sqlite", cluster.sql), given["seconds"])


def _lock(sql: Sqlite, seconds: float) -> bool:
    connection = sqlite3.connect(sql.file, timeout=10.0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        threading.Event().wait(seconds)
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


async def fill_disk(cluster: Cluster, given: Parameters) -> bool:
    cluster.disk_full.touch()
    await asyncio.sleep(given["seconds"])
    cluster.disk_full.unlink(missing_ok=True)
    return True


def draw_away(rng: random.Random) -> dict[str, Any]:
    """Mostly short: nothing is accepted meanwhile. The plan makes one of a long run last a minute."""
    return {"seconds": round(rng.uniform(0.5, 6.0), 1)}


def draw_connections(rng: random.Random) -> dict[str, Any]:
    return {"connections": rng.randint(1, 2)}


def draw_locked(rng: random.Random) -> dict[str, Any]:
    """At times longer than a statement may wait, which is 3 s here (role.py)."""
    return {"seconds": round(rng.choice((0.5, 2.0, 6.0)) * rng.random(), 2)}


FAULTS = (
    Fault("postgres_stopped", 0.7, stop, draw_away, "postgresql"),
    Fault("postgres_killed", 0.7, kill, database="postgresql"),
    Fault("sessions_ended", 2, end_sessions, database="postgresql"),
    Fault("commit_unanswered", 8, drop_commit, database="postgresql", longest_seconds=COMMIT_WITHIN_SECONDS),
    Fault("sql_connections_reset", 4, reset, draw_connections, "postgresql"),
    Fault("sqlite_locked", 4, lock, draw_locked, "sqlite"),
    Fault("sqlite_full", 3, fill_disk, draw_locked, "sqlite"),
)
