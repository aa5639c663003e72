"""DBOS: a workflow per diamond, chain or fan, a step per node, all in one process.

Workflows of steps are what its guide shows (https://docs.dbos.dev/python/tutorials/workflow-tutorial); steps beside
each other are gathered. A workflow is started in the process that runs it, which saves it the queue. Nothing else is
set but the size of the pool (https://docs.dbos.dev/python/reference/configuration). PostgreSQL commits with fsync;
SQLite is as DBOS opens it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbos import DBOS

from bench.peers.driver import CLIENTS


@DBOS.step()
async def noop() -> int:
    return time.monotonic_ns()


@DBOS.workflow()
async def diamond() -> int:
    await noop()
    await asyncio.gather(noop(), noop(), noop())
    return await noop()


@DBOS.workflow()
async def chained(length: int) -> list[int]:
    return [await noop() for _ in range(length)]


@DBOS.workflow()
async def fanned(width: int) -> int:
    await noop()
    await asyncio.gather(*(noop() for _ in range(width)))
    return await noop()


class Peer:
    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def diamonds(self, count: int) -> None:
        async def client(turns: Iterator[int]) -> None:
            for _ in turns:
                await (await DBOS.start_workflow_async(diamond)).get_result()

        async def every() -> None:
            turns = iter(range(count))
            await asyncio.gather(*(client(turns) for _ in range(CLIENTS)))

        self._run(every())

    def chain(self, length: int) -> list[int]:
        found: list[int] = self._run(chained(length))
        return found

    def fan(self, width: int) -> None:
        self._run(fanned(width))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)


@contextmanager
def running(folder: Path) -> Iterator[Peer]:
    url = os.environ.get("PEER_POSTGRESQL") or f"sqlite:///{folder}/dbos.sqlite"
    DBOS(config={"name": "peer", "system_database_url": url, "sys_db_pool_size": 20, "log_level": "ERROR"})
    DBOS.launch()
    try:
        with asyncio.Runner() as runner:
            yield Peer(runner)
    finally:
        DBOS.destroy()
