"""`python -m tests.chaos.rehearsal`: every crash point hit once, each in a fork of one process.

What is wrapped is replaced by something small before: it shows whether it was called, or whether its transaction was
committed, when the process died. So this is about the points themselves; that roles really come by them is what a run
of the machine shows, in which a planned point that was never hit makes the run invalid.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy import text

from headrace.record.database import Database
from tests.chaos import crash_points
from tests.chaos.crash_points import CRASH_POINTS, CrashPoint, Orders


def main() -> None:
    hits = {}
    for point in CRASH_POINTS:
        crash_points.find(point.step.target)  # imported here, not in every fork
    for point in CRASH_POINTS:
        with tempfile.TemporaryDirectory() as folder:
            pid = os.fork()
            if not pid:
                _come_by(point, Path(folder))
            _, status = os.waitpid(pid, 0)
            hits[str(point)] = {"status": os.waitstatus_to_exitcode(status), "took_effect": _took_effect(Path(folder))}
    json.dump(hits, sys.stdout)


def _come_by(point: CrashPoint, folder: Path) -> None:
    """Twice: the second time is the last."""
    sqlite3.connect(folder / "record.db").execute("CREATE TABLE done (n INTEGER)").connection.close()
    owner, name = crash_points.find(point.step.target)
    setattr(owner, name, _in_sql if point.step.in_sql else _outside)
    orders = Orders(folder / "orders")
    crash_points.install(point.role, orders)
    orders.arm(point.name, 2)
    for number in (1, 2):
        asyncio.run(getattr(owner, name)(folder, number))
    os._exit(0)


async def _outside(folder: Path, number: int) -> None:
    (folder / f"called-{number}").touch()


async def _in_sql(folder: Path, number: int) -> None:
    database = Database(f"sqlite:///{folder / 'record.db'}")
    async with database.write() as connection:
        await connection.execute(text(f"INSERT INTO done VALUES ({number})"))
    await database.aclose()


def _took_effect(folder: Path) -> bool:
    """Whether the second call did what it does."""
    rows: list[Any] = sqlite3.connect(folder / "record.db").execute("SELECT * FROM done WHERE n = 2").fetchall()
    return bool(rows) or (folder / "called-2").exists()


if __name__ == "__main__":
    main()
