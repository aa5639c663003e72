"""The supervisor: a whole Headrace in a scratch folder, each part a process of its own, and each replaced when it dies.

Roles are forked by warm launchers (role.py), one for each of two versions of the engine that differ only in a comment
of their Lua: so their function libraries have different names. Between the roles and their stores are proxies; what the
harness itself does goes to the stores directly.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.hot.wire import Address, Link
from tests.chaos import effects
from tests.chaos.crash_points import Orders
from tests.chaos.launcher import ROOT, Launcher, version
from tests.chaos.proxy import Proxy
from tests.chaos.role import DISK_FULL, REFUSED
from tests.chaos.run import Run
from tests.chaos.stores import Sql, Valkey, open_sql
from tests.roles import QUICK, quick_settings

ROLES = {
    "api": "api",
    "orchestrator-1": "orchestrator",
    "orchestrator-2": "orchestrator",
    "worker-1": "worker",
    "worker-2": "worker",
    "worker-3": "worker",
}
OWN_SETTINGS = {"worker-2": {"WORKER_PLAN_BYTES": "0"}}  # it leaves every step to the orchestrators
MOST_PARTITIONS = 2
VERSIONS = 2
SETTINGS = {
    **QUICK,
    "REDIS_SOCKET_TIMEOUT": 2.0,
    "ORCHESTRATOR_RECONCILE_INTERVAL": 1.0,
    "WORKER_CONCURRENCY": 16,
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": 0.3,
}
RESTART_AFTER_SECONDS = 0.1
STOP_WITHIN_SECONDS = 15.0


class Role:
    """A role that is always there: when its process ends, however it ends, the next one is started."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.kind = ROLES[name]
        self.orders = Orders(cluster.folder / f"{name}.orders")
        self.version = 0
        self.pid = 0
        self.starts = 0
        self.since = 0.0  # when the present process was started
        self.busy = asyncio.Lock()  # a fault that arms, stops or replaces it is at it
        self._cluster = cluster

    async def keep(self) -> None:
        while True:
            self.starts += 1
            self.pid = await self._cluster.launch(self.kind, self.name, self.version)
            self.since = time.monotonic()
            try:
                await ended(self.pid)
            finally:
                self.send(signal.SIGKILL)
                self.pid = 0
            await asyncio.sleep(RESTART_AFTER_SECONDS)

    def send(self, number: signal.Signals) -> bool:
        if not self.pid:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    async def settled(self, seconds: float) -> None:
        """Waits until it has had that long to do some work."""
        while not self.pid or time.monotonic() < self.since + seconds:
            await asyncio.sleep(0.05)

    async def replace(self) -> None:
        """It is told to stop, killed if it does not, and another process is there."""
        starts, deadline = self.starts, time.monotonic() + STOP_WITHIN_SECONDS
        self.send(signal.SIGTERM)
        while self.starts == starts or not self.pid:
            if self.starts == starts and time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            await asyncio.sleep(0.02)


async def ended(pid: int) -> None:
    """Of any process, not only of a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class Cluster:
    def __init__(self, folder: Path, valkey: Valkey, sql: Sql, partitions: int) -> None:
        self.folder = folder
        self.partitions = partitions
        self.valkey = valkey
        self.sql = sql
        self.proxy = Proxy(valkey.socket)
        self.disk_full = folder / "disk-full"
        self.roles = {name: Role(name, self) for name in ROLES}
        self.api_url = ""
        self.losses = 0  # how often Valkey lost everything
        self.link = Link(Address.parse(valkey.url), 5.0)
        self._launchers: list[Launcher] = []
        self._environment: dict[str, str] = {}
        self._kept: list[asyncio.Task[None]] = []

    @property
    def run(self) -> Run:
        return Run(self.folder, self.valkey.url, self.sql.url, self.partitions, quick_settings(**self._settings))

    @property
    def _settings(self) -> dict[str, Any]:
        return {**SETTINGS, "REDIS_PARTITIONS": self.partitions}

    def of_kind(self, kind: str) -> list[Role]:
        return [role for role in self.roles.values() if role.kind == kind]

    async def launch(self, kind: str, name: str, version: int) -> int:
        return await self._launchers[version].fork(
            {
                "role": kind,
                "environment": {**self._environment, **OWN_SETTINGS.get(name, {})},
                "orders": str(self.folder / f"{name}.orders"),
                "log": str(self.folder / f"{name}.log"),
            }
        )

    async def start(self) -> None:
        await self.proxy.start()
        port = free_port()
        self.api_url = f"http://127.0.0.1:{port}"
        self._environment = {
            **{name: str(value) for name, value in self._settings.items()},
            "HEADRACE_HOME": str(self.folder),
            "REDIS_URL": f"redis://127.0.0.1:{self.proxy.port}",
            "DATABASE_URL": self.sql.url_for_roles,
            "API_PORT": str(port),
            effects.ADDRESS: str(self.folder / "effects.sock"),
            DISK_FULL: str(self.disk_full),
            REFUSED: str(self.run.refused),
        }
        sources = [version(self.folder / f"version-{number}", number) for number in range(VERSIONS)]
        self._launchers = [await Launcher.start(source, self.folder / "launcher.log") for source in sources]
        await self.sql.migrate()
        self._kept = [asyncio.create_task(role.keep()) for role in self.roles.values()]

    async def stop(self, within_seconds: float = 30.0) -> None:
        """An orderly end of all roles: none is started again."""
        pids = [role.pid for role in self.roles.values() if role.pid]
        for role in self.roles.values():
            role.send(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await asyncio.gather(*(ended(pid) for pid in pids))
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        self._kept = []

    async def aclose(self) -> None:
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        for launcher in self._launchers:
            await launcher.aclose()
        await self.link.aclose()
        await self.proxy.aclose()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def cluster(folder: Path, database: str, partitions: int = MOST_PARTITIONS) -> AsyncIterator[Cluster]:
    """Everything in this folder; `database` is sqlite or postgresql."""
    async with AsyncExitStack() as stack:
        valkey = Valkey(folder / "valkey")
        await valkey.start()
        stack.push_async_callback(valkey.stop)
        sql = await stack.enter_async_context(open_sql(folder, database))
        stack.enter_context(_effect_server(folder))
        made = Cluster(folder, valkey, sql, partitions)
        stack.push_async_callback(made.aclose)
        await made.start()
        yield made


def _effect_server(folder: Path) -> subprocess.Popen[bytes]:
    address = folder / "effects.sock"
    command = [sys.executable, "-m", "tests.chaos.effects", str(address), str(folder / "ledger.jsonl")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)  # its end closes the pipe, and that ends it
    deadline = time.monotonic() + 30
    while not address.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process
