"""What kind of database the record is in, and how its schema stands, for `headrace doctor` and `headrace migrate`."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import text

from headrace.record.database import Database
from headrace.record.migrations import revisions


@dataclass(frozen=True, slots=True)
class Facts:
    """`ahead_seconds`: how far its clock is before ours; a file has ours."""

    version: str
    latency_seconds: float
    ahead_seconds: float


async def look(database: Database) -> Facts:
    """RecordUnavailable: it cannot be reached, or does not let us in."""
    version = "SELECT sqlite_version()" if database.is_sqlite else "SHOW server_version"
    clock = "SELECT 0.0" if database.is_sqlite else "SELECT extract(epoch FROM clock_timestamp())::float8"
    async with database.read() as connection:
        named = (await connection.execute(text(version))).scalar_one()
        began, before = time.perf_counter(), time.time()
        told = (await connection.execute(text(clock))).scalar_one()
        middle = (before + time.time()) / 2
        took = time.perf_counter() - began
    return Facts(str(named), took, 0.0 if database.is_sqlite else float(told) - middle)


def is_known(revision: str) -> bool:
    """Whether this version of Headrace has the revision; if not, a newer one made it."""
    return revision in revisions()
