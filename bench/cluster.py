"""The engine as it is measured: a private Valkey with its append-only file on, one orchestrator and one worker, each a
process of its own, and this process, which starts executions and takes what ends off the store as an archiver would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

from bench import floor
from headrace.embedded import EmbeddedValkey
from headrace.engine.engine import Engine
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState
from headrace.settings import Settings

ROOT = Path(__file__).parent.parent
START_TOGETHER = 200
FORGET_TOGETHER = 200
ROLES = (["bench.orchestrator"], ["headrace", "worker", "--handlers", "bench.handlers"])


class Cluster:
    def __init__(self, url: str, store: HotStore, settings: Settings) -> None:
        self.url = url
        self.store = store
        self._engine = Engine(store, settings)
        self._after = "0-0"

    async def start(self, definition: Definition, count: int) -> list[str]:
        ids: list[str] = []
        while len(ids) < count:
            ids += await self._engine.start_many(definition, [{}] * min(START_TOGETHER, count - len(ids)))
        return ids

    async def finished(self, ids: Iterable[str], *, forget: bool = True) -> None:
        """Follows the events until all of these have ended, forgets those and drops the events."""
        left = set(ids)
        gone: list[tuple[str, str, str]] = []
        while left:
            events = await self.store.read_events(0, self._after, 500)
            for event_id, event in events:
                self._after = event_id
                if event.status in TERMINAL_EXECUTIONS and event.execution_id in left:
                    if event.status != ExecutionState.COMPLETED:
                        raise RuntimeError(f"execution {event.execution_id} ended as {event.status}: {event.error}")
                    left.discard(event.execution_id)
                    gone.append((event.execution_id, event.epoch, event_id))
            if forget and (len(gone) >= FORGET_TOGETHER or not left):
                await self.store.forget(0, gone, definition_ttl_seconds=60)
                gone = []
            if events:
                await self.store.trim_events(0, self._after)

    async def run(self, definition: Definition, count: int = 1) -> list[str]:
        ids = await self.start(definition, count)
        await self.finished(ids)
        return ids

    async def memory_bytes(self) -> int:
        info = (await self.store._link.call("INFO", "memory")).decode()
        return int(dict(line.split(":") for line in info.splitlines() if ":" in line)["used_memory"])


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    with EmbeddedValkey(folder) as server, running(ROLES, environment(server.url)):
        store = HotStore(server.url)
        try:
            await store.prepare()
            yield Cluster(server.url, store, Settings())
        finally:
            await store.aclose()


def environment(url: str) -> dict[str, str]:
    """Of all roles that are measured."""
    return {
        **os.environ,
        "REDIS_URL": url,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "WORKER_CONCURRENCY": str(floor.BATCH),  # as many as the bare loop takes at once
        "HANDLER_MISSING_TIMEOUT": "86400",  # the executions that only live wait for a handler that nobody has
    }


@contextmanager
def running(
    modules: Iterable[Sequence[str]], given: Mapping[str, str], log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[None]:
    """Each a process of its own."""
    commands = ([sys.executable, "-m", *module] for module in modules)
    roles = [subprocess.Popen(command, env=given, stdout=log, stderr=log) for command in commands]
    try:
        yield
    finally:
        for role in roles:
            role.terminate()
        for role in roles:
            role.wait()
