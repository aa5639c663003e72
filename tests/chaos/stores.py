"""The two stores that a run breaks: a Valkey on its append-only file, and SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg  # type: ignore[import-untyped]
import psutil  # type: ignore[import-untyped]

from headrace.embedded import EmbeddedValkey
from headrace.record import migrations
from headrace.record.database import Database
from tests.chaos.proxy import Proxy
from tests.databases import Postgres


class Valkey:
    """The embedded server, as `headrace dev` has it: one that cannot read its data sets them aside and starts empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = EmbeddedValkey(folder)
        self.socket = self._server.socket_path
        self.url = self._server.url
        self.changing = asyncio.Lock()  # one at a time stops it, damages its data and starts it

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)
        assert self._server.socket_path == self.socket, "the folder's name is too long for a Unix socket"

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._server.pid, signal.SIGKILL)
        await self.stop()

    @property
    def has_set_aside(self) -> bool:
        """Whether the last start found the data damaged."""
        found = self._server.set_aside is not None
        self._server.set_aside = None
        return found

    def empty(self) -> None:
        shutil.rmtree(self._folder / "appendonlydir", ignore_errors=True)

    def cut(self) -> int:
        """The last incremental file ends at a random byte. How many are gone."""
        file = self._last_file()
        size = file.stat().st_size
        at = random.randrange(size + 1)
        os.truncate(file, at)
        return size - at

    def damage(self) -> None:
        """Some bytes are missing in the middle of the last incremental file. (Wrong ones inside a value nobody would
        notice: the file has no checksums.)"""
        file = self._last_file()
        data = file.read_bytes()
        middle = len(data) // 2
        file.write_bytes(data[:middle] + data[middle + 64 :])

    def _last_file(self) -> Path:
        files = (self._folder / "appendonlydir").glob("*.incr.aof")
        return max(files, key=lambda file: int(file.name.split(".")[-3]))


class Sql(ABC):
    """`url` is for the harness, `url_for_roles` may lead through a proxy."""

    kind: str
    url: str
    url_for_roles: str

    async def migrate(self) -> None:
        database = Database(self.url)
        try:
            await migrations.upgrade(database)
        finally:
            await database.aclose()

    async def running(self) -> set[str]:
        """The executions that were started and have not ended. Raises OSError while the store is away."""
        return {row[0] for row in await self.query("SELECT id FROM executions WHERE status = 'RUNNING'")}

    async def knows_handlers(self) -> None:
        """Until it does: from then on they are known even if Valkey loses everything."""
        while not await self.query("SELECT name FROM handlers WHERE name = 'step'"):
            await asyncio.sleep(0.05)

    async def ends(self) -> dict[str, int]:
        """How many executions have which status; what was submitted and never triggered does not count."""
        rows = await self.query("SELECT status, count(*) FROM executions WHERE run > 0 GROUP BY status")
        return {row[0]: row[1] for row in rows}

    @abstractmethod
    async def query(self, statement: str) -> list[Sequence[Any]]: ...


class Sqlite(Sql):
    kind = "sqlite"

    def __init__(self, file: Path) -> None:
        self.file = file
        self.url = self.url_for_roles = f"sqlite:///{file}"

    async def query(self, statement: str) -> list[Sequence[Any]]:
        return await asyncio.to_thread(self._query, statement)

    def _query(self, statement: str) -> list[Sequence[Any]]:
        try:
            connection = sqlite3.connect(self.file, timeout=1.0)
            try:
                return list(connection.execute(statement))
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            raise OSError(str(error)) from error


POSTGRES_AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Postgresql(Sql):
    kind = "postgresql"

    def __init__(self, server: Postgres, name: str) -> None:
        self.server = server
        self.url = server.url(name)
        folder = parse_qs(urlsplit(self.url).query)["host"][0]
        self.proxy = Proxy(Path(folder, ".s.PGSQL.5432"))
        self.url_for_roles = ""
        self.changing = asyncio.Lock()
        self._name = name

    async def start(self) -> None:
        await self.proxy.start()
        self.url_for_roles = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{self._name}"

    async def query(self, statement: str) -> list[Sequence[Any]]:
        try:
            connection = await asyncpg.connect(self.url, timeout=2)
            try:
                return list(await connection.fetch(statement, timeout=2))
            finally:
                connection.terminate()
        except POSTGRES_AWAY as error:
            raise OSError(str(error)) from error

    async def kill(self) -> None:
        """The server and all its processes, at once."""
        await asyncio.to_thread(self._kill)

    def _kill(self) -> None:
        master = psutil.Process(self.server._server.get_pid())
        everybody = [*master.children(recursive=True), master]
        for process in everybody:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(everybody, timeout=30)


@asynccontextmanager
async def open_sql(folder: Path, database: str) -> AsyncIterator[Sql]:
    if database == "sqlite":
        yield Sqlite(folder / "headrace.db")
        return
    server = await asyncio.to_thread(Postgres)
    await asyncio.to_thread(server.__enter__)
    try:
        made = Postgresql(server, await asyncio.to_thread(server.create))
        await made.start()
        try:
            yield made
        finally:
            await made.proxy.aclose()
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
