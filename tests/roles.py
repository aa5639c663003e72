"""Roles for tests: in this process, or as processes of their own that can be killed; and waiting for conditions.

These processes are forks of one that has imported everything (forks.py), or the command line itself if that is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, overload

from headrace.engine.engine import Engine
from headrace.engine.role import orchestrate
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.validation import validate
from headrace.settings import Settings
from headrace.worker.registry import Registry
from headrace.worker.worker import Worker
from tests.forks import Fork

T = TypeVar("T")
GIVE_UP_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.08

QUICK = {
    "WORKER_LEASE_SECONDS": 1.5,
    "WORKER_HEARTBEAT_INTERVAL": 0.3,
    "ORCHESTRATOR_STALE_RESULT_TIMEOUT": 0.5,
    "ORCHESTRATOR_STALE_CLAIM_INTERVAL": 0.2,
    "RETRY_INITIAL_DELAY": 0.05,
    "RETRY_MAX_DELAY": 0.2,
    "REDIS_STREAM_BLOCK_MS": 1000,
}

# A command line ends with its pytest, however that ends: its standard input is a pipe whose only writer is pytest.
LEASH = """
import os, runpy, signal, sys, threading

def end():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=end, daemon=True).start()
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def quick_settings(**more: Any) -> Settings:
    """Everything that waits waits little."""
    return Settings(**{**QUICK, **more})


@overload
async def until(condition: Callable[[], Awaitable[T]], what: str = "", *, within: float = GIVE_UP_SECONDS) -> T: ...
@overload
async def until(condition: Callable[[], T], what: str = "", *, within: float = GIVE_UP_SECONDS) -> T: ...
async def until(condition: Callable[[], Any], what: str = "", *, within: float = GIVE_UP_SECONDS) -> Any:
    """Waits for a condition and gives its value; failing is for conditions that never come.

    It looks less often the longer it waits: looks cost CPU, which those need whom it waits for.
    """
    pause = FIRST_PAUSE_SECONDS
    deadline = asyncio.get_running_loop().time() + within
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {within} s in vain for {what or condition}")
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def definition(*nodes: dict[str, Any], **fields: Any) -> Definition:
    return validate({"name": "test", "nodes": list(nodes), **fields}, handlers=None)


def node(name: str, *parents: str, handler: str = "note", **fields: Any) -> dict[str, Any]:
    return {"id": name, "handler": handler, "dependencies": list(parents), **fields}


class InProcess:
    """Orchestrators and workers on this event loop."""

    def __init__(self, store: HotStore, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = settings or quick_settings()
        self.engine = Engine(store, self.settings)
        self._stack = AsyncExitStack()
        self._count = 0

    async def __aenter__(self) -> InProcess:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stops: list[asyncio.Event] = []
        return self

    async def __aexit__(self, *exception: object) -> None:
        for stop in reversed(self._stops):
            stop.set()
        await self._stack.aclose()

    def orchestrator(self) -> asyncio.Event:
        stop = asyncio.Event()
        self._count += 1
        self._stops.append(stop)
        self._group.create_task(orchestrate(self.store, self.settings, f"o{self._count}", stop))
        return stop

    def worker(self, registry: Registry, settings: Settings | None = None) -> tuple[Worker, asyncio.Event]:
        stop = asyncio.Event()
        self._count += 1
        self._stops.append(stop)
        made = Worker(self.store, registry, settings or self.settings, f"w{self._count}")
        self._group.create_task(made.run(stop))
        return made, stop

    async def ended(self, execution_id: str) -> dict[str, Any]:
        """The execution once it has ended and nothing of it is under way."""

        async def over() -> bool:
            view = await self.engine.read(execution_id)
            return view["status"] != "RUNNING" and not await self.engine.under_way(execution_id)

        await until(over, f"the end of {execution_id}")
        return await self.engine.read(execution_id)


class Process:
    """A role as a process of its own; its arguments are those of `python -m`."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], log: Path, *, command_line: bool = False
    ) -> None:
        self.log = log
        start = self._command_line if command_line else self._fork
        with log.open("ab") as file:
            self.process = start(arguments, {**os.environ, **environment}, file)

    @staticmethod
    def _command_line(arguments: list[str], environment: dict[str, str], log: BinaryIO) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", LEASH, "-m", *arguments]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log)

    @staticmethod
    def _fork(arguments: list[str], environment: dict[str, str], log: BinaryIO) -> Fork:
        with open(os.devnull, "rb") as nothing:
            return Fork(arguments, environment, Path.cwd(), (nothing, log, log))

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        if isinstance(self.process, subprocess.Popen) and self.process.stdin:
            self.process.stdin.close()

    async def said(self, event: str) -> dict[str, Any]:
        """The first line of its log about this event, once it is there."""

        def line() -> dict[str, Any] | None:
            for text in self.log.read_text().splitlines():
                if text.startswith("{") and text.endswith("}") and (found := json.loads(text))["event"] == event:
                    return dict(found)
            assert self.process.poll() is None, self.log.read_text()
            return None

        found = await until(line, f"{self.log} to say {event!r}")
        assert found
        return found


class Processes:
    """Starts roles against one server; what is still there at the end is killed."""

    def __init__(self, url: str, folder: Path, partitions: int = 1, **environment: str) -> None:
        self.folder = folder
        self.command_line = False
        self._environment = {
            **{name: str(value) for name, value in QUICK.items()},
            "REDIS_URL": url,
            "REDIS_PARTITIONS": str(partitions),
            "DATABASE_URL": f"sqlite:///{folder / 'record.db'}",
            "PYTHONPATH": str(Path(__file__).parent.parent),
            **environment,
        }
        self.all: list[Process] = []

    def orchestrator(self, script: str | None = None, **environment: str) -> Process:
        return self._start([script] if script else ["headrace", "orchestrator"], environment)

    def role(self, name: str, **environment: str) -> Process:
        return self._start(["headrace", name], environment)

    def worker(self, *modules: str, **environment: str) -> Process:
        handlers = [part for module in modules or ("tests.ledger",) for part in ("--handlers", module)]
        return self._start(["headrace", "worker", *handlers], environment)

    def _start(self, arguments: list[str], environment: dict[str, str]) -> Process:
        log = self.folder / f"role-{len(self.all)}.log"
        environment = {**self._environment, **environment}
        self.all.append(Process(arguments, environment, log, command_line=self.command_line))
        return self.all[-1]

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.glob("role-*.log")))

    def close(self) -> None:
        for process in self.all:
            process.close()


@contextmanager
def processes(url: str, folder: Path, partitions: int = 1, **environment: str) -> Iterator[Processes]:
    started = Processes(url, folder, partitions, **environment)
    try:
        yield started
    except BaseException:
        print(started.logs())
        raise
    finally:
        started.close()
