"""Prefect: a flow per diamond, chain or fan, a task per node, against a server of its own.

Tasks are submitted to the thread pool, as https://docs.prefect.io/v3/how-to-guides/workflows/run-work-concurrently
advises. The server is on SQLite, its default (https://docs.prefect.io/v3/manage/server): for PostgreSQL it wants the
extension pg_trgm, which our wheel does not have. As durable as ours: results are kept. Logs do not go to the server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.peers.driver import free_port, process, script, until

FLOWS_TOGETHER = 4


def settings(folder: Path, port: int) -> dict[str, str]:
    return {
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_UI_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


class Peer:
    def __init__(self) -> None:
        from prefect import flow, task  # reads the settings

        @task
        def noop(before: Any = None) -> int:
            return time.monotonic_ns()

        @flow
        def diamond() -> None:
            top = noop.submit()
            middle = [noop.submit(top) for _ in range(3)]
            noop.submit(middle).result()

        @flow
        def chained(length: int) -> list[int]:
            links = [noop.submit()]
            for _ in range(length - 1):
                links.append(noop.submit(links[-1]))
            return [link.result() for link in links]

        @flow
        def fanned(width: int) -> None:
            top = noop.submit()
            noop.submit([noop.submit(top) for _ in range(width)]).result()

        self._diamond, self._chained, self._fanned = diamond, chained, fanned

    def diamonds(self, count: int) -> None:
        with ThreadPoolExecutor(FLOWS_TOGETHER) as pool:
            for future in [pool.submit(self._diamond) for _ in range(count)]:
                future.result()

    def chain(self, length: int) -> list[int]:
        return list(self._chained(length))

    def fan(self, width: int) -> None:
        self._fanned(width)


@contextmanager
def running(folder: Path) -> Iterator[Peer]:
    port = free_port()
    given = settings(folder, port)
    os.environ.update(given)
    command = [script("prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with process(command, folder / "server.log", **given):
        until(lambda: urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5).close(), 120)
        yield Peer()
