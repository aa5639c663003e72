"""The engine as it is measured: a private Valkey with its append-only file on, one orchestrator and one worker, each a
process of its own, and this process, which starts executions and takes what ends off the store as an archiver would."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import headrace
from bench import floor
from headrace.embedded import EmbeddedValkey
from headrace.engine.engine import Engine
from headrace.hot import codec
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState
from headrace.settings import Settings

ROOT = Path(__file__).parent.parent
SOURCE = Path(headrace.__file__).parents[1]  # what this process has imported: it may be a copy
START_TOGETHER = 200
FORGET_TOGETHER = 200
ROLES = {"orchestrator": ["bench.orchestrator"], "worker": ["headrace", "worker", "--handlers", "bench.handlers"]}

Ended = tuple[str, str, str]  # execution, epoch, last event: what `forget` takes


@dataclass
class Awaited:
    """Some executions that somebody waits for."""

    left: int
    over: asyncio.Future[None]
    kept: list[Ended] | None  # those that ended, if they are not to be forgotten yet


class Cluster:
    """`look_seconds`: how often it looks what has ended; 0 means at once, which costs the roles some of the cores."""

    def __init__(self, url: str, store: HotStore, pids: Mapping[str, int]) -> None:
        self.url = url
        self.store = store
        self.pids = pids
        self.look_seconds = 0.0
        self._engine = Engine(store, Settings())
        self._awaited: dict[str, Awaited] = {}
        self._unclaimed: dict[str, Ended] = {}  # ended before anybody waited for them
        self._gone: list[Ended] = []

    async def start(self, definition: Definition, count: int) -> list[str]:
        ids: list[str] = []
        while len(ids) < count:
            ids += await self._engine.start_many(definition, [{}] * min(START_TOGETHER, count - len(ids)))
        return ids

    async def finished(self, ids: Sequence[str], *, keep: bool = False) -> list[Ended]:
        """Until all of these have ended. They are forgotten, or with `keep` given back for `forget`."""
        awaited = Awaited(len(ids), asyncio.get_running_loop().create_future(), [] if keep else None)
        self._awaited |= dict.fromkeys(ids, awaited)
        for execution_id in ids:
            if ended := self._unclaimed.pop(execution_id, None):
                self._end(ended)
        await awaited.over
        return awaited.kept or []

    async def run(self, definition: Definition, count: int = 1) -> None:
        await self.finished(await self.start(definition, count))

    async def forget(self, ended: Sequence[Ended]) -> None:
        await self.store.forget(0, ended, definition_ttl_seconds=60)

    async def follow(self) -> None:
        """Reads and drops the events, for as long as the cluster is there."""
        after = "0-0"
        while True:
            await asyncio.sleep(self.look_seconds)
            entries = await self.store._read("events", 0, after, 500, block=not self.look_seconds)
            for entry_id, (_, text) in entries:
                after = entry_id.decode()
                self._take_ends(after, text.decode())
            if len(self._gone) >= FORGET_TOGETHER or not self._awaited:
                gone, self._gone = self._gone, []
                await self.forget(gone)
            if entries:
                await self.store.trim_events(0, after)

    def _take_ends(self, event_id: str, text: str) -> None:
        """Of an event, of which nobody here needs more than that."""
        for section in text.split(codec.BETWEEN_SECTIONS):
            execution_id, epoch, _, _, _, _, status, error = section.partition(codec.BETWEEN_PARTS)[0].split("|", 7)
            if status not in TERMINAL_EXECUTIONS:
                continue
            if status != ExecutionState.COMPLETED:
                raise RuntimeError(f"execution {execution_id} ended as {status}: {error}")
            ended = (execution_id, epoch, event_id)
            if execution_id in self._awaited:
                self._end(ended)
            else:
                self._unclaimed[execution_id] = ended

    def _end(self, ended: Ended) -> None:
        awaited = self._awaited.pop(ended[0])
        (self._gone if awaited.kept is None else awaited.kept).append(ended)
        awaited.left -= 1
        if not awaited.left:
            awaited.over.set_result(None)

    async def memory_bytes(self) -> int:
        return await memory_bytes(self.store)

    async def rewritten(self) -> None:
        """Until no rewrite of the append-only file is under way: it takes a core for as long as it lasts."""
        while (await _info(self.store, "persistence"))["aof_rewrite_in_progress"] != "0":  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def memory_bytes(store: HotStore) -> int:
    """What Valkey holds, as it says itself."""
    return int((await _info(store, "memory"))["used_memory"])


async def _info(store: HotStore, section: str) -> dict[str, str]:
    info = (await store._link.call("INFO", section)).decode()
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


@asynccontextmanager
async def cluster(folder: Path, **more: str) -> AsyncIterator[Cluster]:
    """`more`: further environment of the roles."""
    with EmbeddedValkey(folder) as server, running(ROLES, environment(server.url) | more) as pids:
        store = HotStore(server.url)
        try:
            await store.prepare()
            engine = Cluster(server.url, store, {"Valkey": server.pid, **pids, "driver": os.getpid()})
            async with asyncio.TaskGroup() as group:
                following = group.create_task(engine.follow())
                yield engine
                following.cancel()
        finally:
            await store.aclose()


def environment(url: str) -> dict[str, str]:
    """Of all roles that are measured."""
    return {
        **os.environ,
        "REDIS_URL": url,
        "PYTHONPATH": os.pathsep.join((str(SOURCE), str(ROOT))),
        "WORKER_CONCURRENCY": str(floor.BATCH),  # as many as the bare loop takes at once
        "HANDLER_MISSING_TIMEOUT": "86400",  # the executions that only live wait for a handler that nobody has
    }


@contextmanager
def running(
    modules: Mapping[str, Sequence[str]], given: Mapping[str, str], log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[dict[str, int]]:
    """Each a process of its own; gives their ids."""
    roles = {
        name: subprocess.Popen([sys.executable, "-m", *module], env=given, stdout=log, stderr=log)
        for name, module in modules.items()
    }
    try:
        yield {name: role.pid for name, role in roles.items()}
    finally:
        for role in roles.values():
            role.terminate()
        for role in roles.values():
            role.wait()
