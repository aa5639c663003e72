"""One database, SQLite or PostgreSQL: connections, transactions, and one kind of error when it is away.

SQLite runs in WAL mode and takes its write lock at the beginning of a transaction, so that what was read in it cannot
have changed when it is written; PostgreSQL locks the rows that are read `for update`. Both commit durably.

What is done most is given as a function, to `reading` and `writing`: of SQLite it is one visit to a thread, where each
step of a transaction that is led from the event loop would be one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from headrace.errors import BadValue, RecordUnavailable, RecordUnsupported

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
WRITE_IT = "write postgresql://user:password@host:port/name or sqlite:///path"
ANSWER_SECONDS = 15.0  # how long a statement may take, waiting for locks included
PATIENT_SECONDS = 24 * 3600.0
CONNECT_SECONDS = 5

# SQLSTATE of PostgreSQL, by its beginning. Away: connection, read-only standby, login, no such database, a lost race,
# no resources, locked, shutdown, I/O, and a table or column that a migration has not made yet.
AWAY = ("08", "25006", "28", "3D", "40", "53", "55", "57", "58", "42P01", "42703")
BAD_VALUE = ("22", "54")

Result = TypeVar("Result")


def async_url(url: str) -> URL:
    """The message never shows the address: a password may be in it."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        raise RecordUnsupported(f"DATABASE_URL cannot be read: {WRITE_IT}") from None
    if parsed.drivername not in (*DRIVERS, *DRIVERS.values()):
        raise RecordUnsupported(f"DATABASE_URL names {parsed.drivername}, which is not supported: {WRITE_IT}")
    if isinstance(mode := parsed.query.get("sslmode"), str):  # as libpq has it; this driver has another name for it
        parsed = parsed.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
    return parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))


class Database:
    def __init__(self, url: str, *, pool_size: int = 8, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._url = url
        parsed = async_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.insert: Any = _insert(self.is_sqlite)
        connect_args: dict[str, Any] = {"timeout": answer_seconds}
        if not self.is_sqlite:
            connect_args = {"timeout": CONNECT_SECONDS, "command_timeout": answer_seconds}
        self._engine: AsyncEngine = create_async_engine(
            parsed, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=not self.is_sqlite,
            connect_args=connect_args,
        )  # fmt: skip
        self._beside: _Beside | None = None
        if self.is_sqlite:
            _prepare(self._engine.sync_engine)
            direct = create_engine(
                parsed.set(drivername="sqlite+pysqlite"), pool_size=pool_size, connect_args=connect_args,
                pool_use_lifo=True,  # each connection has a cache of its own: few of them stay warm, and small
            )  # fmt: skip
            self._beside = _Beside(_prepare(direct), ThreadPoolExecutor(pool_size, "sqlite"))

    async def writing(self, work: Callable[[Connection], Result]) -> Result:
        """All that `work` does is one transaction; it is durable when this ends without an error."""
        if self._beside is not None:
            return await self._beside.run(work, writes=True)
        async with self.write() as connection:
            return await connection.run_sync(work)

    async def reading(self, work: Callable[[Connection], Result]) -> Result:
        if self._beside is not None:
            return await self._beside.run(work, writes=False)
        async with self.read() as connection:
            return await connection.run_sync(work)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; it is durable when this ends without an error."""
        with _told_when_away():
            async with self._engine.connect() as connection:
                await connection.execution_options(headrace_write=True)
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        with _told_when_away():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def patient(self) -> AsyncIterator[Database]:
        """The same database, for statements that may take hours. SQLite bounds only the wait for its lock."""
        if self.is_sqlite:
            yield self
            return
        patient = Database(self._url, pool_size=1, answer_seconds=PATIENT_SECONDS)
        try:
            yield patient
        finally:
            await patient.aclose()

    async def aclose(self) -> None:
        await self._engine.dispose()
        if self._beside is not None:
            await self._beside.aclose()


class _Beside:
    """SQLite in threads. Whoever is cancelled no longer waits; what it began is done to its end all the same."""

    def __init__(self, engine: Engine, threads: ThreadPoolExecutor) -> None:
        self._engine, self._threads = engine, threads

    async def run(self, work: Callable[[Connection], Result], *, writes: bool) -> Result:
        with _told_when_away():
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._do, work, writes)

    def _do(self, work: Callable[[Connection], Result], writes: bool) -> Result:
        with self._engine.connect() as connection:
            connection.execution_options(headrace_write=writes)
            with connection.begin():
                return work(connection)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        self._engine.dispose()


def _insert(is_sqlite: bool) -> Any:
    """The one of the dialect knows ON CONFLICT. The other dialect is not worth its import."""
    if is_sqlite:
        from sqlalchemy.dialects import sqlite

        return sqlite.insert
    from sqlalchemy.dialects import postgresql

    return postgresql.insert


def _prepare(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself: _begin_sqlite does
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    writes = connection.get_execution_options().get("headrace_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _told_when_away() -> Iterator[None]:
    try:
        yield
    except (UnicodeEncodeError, OverflowError, exc.DataError) as error:
        raise BadValue(f"the SQL store refuses a value: {_reason(error)}") from error
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError, OSError) as error:
        raise RecordUnavailable(f"the SQL store cannot be used now: {_reason(error)}") from error
    except exc.DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if state.startswith(BAD_VALUE):
            raise BadValue(f"the SQL store refuses a value: {_reason(error)}") from error
        if error.connection_invalidated or state.startswith(AWAY):
            raise RecordUnavailable(f"the SQL store cannot be used now: {_reason(error)}") from error
        raise


def _reason(error: BaseException) -> str:
    origin = getattr(error, "orig", None) or error
    return f"{type(origin).__name__}: {origin}".partition("\n")[0]
