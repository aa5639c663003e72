"""The launcher: a warm process that forks roles, and what a forked role is before it is `headrace worker`, say.

`python -m tests.chaos.role` has everything imported and no thread and no event loop, so that a fork is safe and a role
is there in a tenth of a second. It reads one JSON object per line, {"role", "environment", "orders", "log"}, and
answers with the pid. All roles die with it, and it ends when its input does.

What makes a role fit for faults is put in from outside: crash points, a clock that can be set wrong, a disk that can be
full, and the token of an attempt for its handler.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from headrace.hot.store import HotStore
from headrace.model.messages import Outcome, Report, Task
from headrace.worker.attempt import Attempts
from tests.chaos import crash_points
from tests.chaos.crash_points import Orders
from tests.chaos.run import append

REFUSED = "CHAOS_REFUSED"  # a file
DISK_FULL = "CHAOS_DISK_FULL"  # while this file is there, SQLite may not grow
HANDLERS = "tests.chaos.handlers"
WARM = (
    "aiosqlite", "asyncpg", "uvloop", "uvicorn.protocols.http.httptools_impl", "uvicorn.loops.uvloop",
    "sqlalchemy.dialects.postgresql.asyncpg", "sqlalchemy.dialects.sqlite.aiosqlite",
    "headrace.api.app", "headrace.api.server", "headrace.cli.roles", "headrace.engine.role",
    "headrace.engine.recording", "headrace.engine.service", "headrace.record.migrations", "headrace.worker.worker",
    "headrace.worker.handlers", HANDLERS,
)  # fmt: skip
PR_SET_PDEATHSIG = 1


def main() -> None:
    for module in WARM:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for roles: the supervisor sees them end by itself
    gc.collect()
    gc.freeze()
    print("warm", flush=True)
    while text := sys.stdin.readline():
        order = json.loads(text)
        pid = os.fork()
        if not pid:
            become(order)
        print(pid, flush=True)


def become(order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["environment"])
        code = run(order["role"], Orders(Path(order["orders"])))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(role: str, orders: Orders) -> int:
    from headrace.cli import roles

    crash_points.install(role, orders)
    _set_clock(orders)
    _tell_tokens()
    _limit_disk()
    _note_refusals()
    _wait_little()
    start: dict[str, Callable[[], int]] = {
        "api": roles.run_api,
        "orchestrator": roles.run_orchestrator,
        "worker": lambda: roles.run_worker([HANDLERS]),
    }
    return start[role]()


def _set_clock(orders: Orders) -> None:
    """The wall clock alone: nothing moves the monotonic one."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + orders.skew_seconds
    time.time_ns = lambda: right_ns() + int(orders.skew_seconds * 1e9)


def _tell_tokens() -> None:
    run_attempt = Attempts.run

    async def told(attempts: Attempts, task: Task) -> Outcome:
        if task.handler.startswith("step"):
            work = msgspec.json.decode(task.payload)
            work["config"]["token"] = "|".join(map(str, msgspec.structs.astuple(task.token)))
            task = msgspec.structs.replace(task, payload=msgspec.json.encode(work).decode())
        return await run_attempt(attempts, task)

    setattr(Attempts, "run", told)  # noqa: B010 (mypy forbids to assign to a method)


def _wait_little() -> None:
    """What has no setting: tidying, how long a duty or a reservation of one that died is kept from others, and how
    long a statement of SQL may wait for a lock."""
    from headrace.engine import archiver, housekeeping, keeper
    from headrace.hot import functions
    from headrace.record.database import Database

    archiver.DUTY_MS = 1_000
    housekeeping.SWEEP_EVERY_SECONDS = 5.0
    keeper.TIDY_INTERVAL_SECONDS = 2.0
    keeper.GONE_AFTER_SECONDS = 20.0
    functions.RESERVATION_MS = 5_000
    cast("dict[str, Any]", Database.__init__.__kwdefaults__)["answer_seconds"] = 3.0


def _note_refusals() -> None:
    """What a worker is told of reports that came too late."""
    report, notes = HotStore.report, Path(os.environ[REFUSED])

    async def noted(store: HotStore, partition: int, reports: Sequence[Report]) -> list[int]:
        late = await report(store, partition, reports)
        if late:
            append(notes, {"at": time.time(), "count": len(late)})
        return late

    setattr(HotStore, "report", noted)  # noqa: B010


def _limit_disk() -> None:
    from headrace.record import database

    begin, flag = database._begin_sqlite, os.environ[DISK_FULL]

    def begin_on_a_full_disk(connection: Any) -> None:
        most = 1 if os.path.exists(flag) else 1 << 30  # SQLite makes of 1 the number of pages that there are
        connection.exec_driver_sql(f"PRAGMA max_page_count = {most}").close()
        begin(connection)

    database._begin_sqlite = begin_on_a_full_disk


if __name__ == "__main__":
    main()
