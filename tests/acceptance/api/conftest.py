"""The API as clients meet it: over HTTP, on a port of its own, with real stores and real roles behind it.

`remote` is an installation of separate processes, which the tests of this folder share. `api` and `served` run in the
process of the test, for what has to look behind the door.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from headrace.api.app import create_app
from headrace.api.server import serve
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.hot.store import HotStore
from headrace.record.database import Database
from headrace.worker.registry import Registry
from headrace.worker.worker import Worker
from tests.acceptance.api.client import Api, Remote
from tests.acceptance.api.house import House
from tests.databases import Postgres, migrate
from tests.roles import quick_settings

Served = Callable[..., AbstractAsyncContextManager[Api]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "calls(*calls): the rows of the contract's REST table that this test is about")


@pytest.fixture(scope="package")
def houses() -> Iterator[dict[str, House]]:
    made: dict[str, House] = {}
    yield made
    for house in made.values():
        house.close()


@pytest.fixture
def house(
    kind: str, houses: dict[str, House], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> House:
    if kind not in houses:
        folder = tmp_path_factory.mktemp(kind)
        url = f"sqlite:///{folder / 'record.db'}"
        if kind == "postgresql":
            postgres: Postgres = request.getfixturevalue("postgres")
            url = postgres.url(postgres.create())
            migrate(url)
        houses[kind] = House(folder, url)
    return houses[kind]


@pytest.fixture
async def remote(house: House, request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    async with httpx2.AsyncClient(base_url=await house.address(), timeout=30) as http:
        client = Remote(http, f"t{uuid.uuid4().hex[:12]}")
        http.event_hooks = {"response": [client.note]}
        await client.handlers_known("note", "input", "output")
        yield client
    print(house.processes.logs())  # pytest shows it if the test failed
    declared = {call for mark in request.node.iter_markers("calls") for call in mark.args}
    assert {call for call in declared if not client.has_answered(call)} == set(), "the test is not about what it says"


@pytest.fixture
def partitions() -> int:
    return 1


@pytest.fixture
def served(store: HotStore, database: Database, registry: Registry) -> Served:
    """Opens an API with these settings; `works` says whether an orchestrator and a worker are there."""

    @asynccontextmanager
    async def opened(
        *, works: bool = True, store: HotStore = store, database: Database = database, **more: Any
    ) -> AsyncIterator[Api]:
        settings = quick_settings(
            **{"API_PORT": 0, "ORCHESTRATOR_ARCHIVE_INTERVAL": 0.02, "ORCHESTRATOR_RECONCILE_INTERVAL": 0.3, **more}
        )
        stop, stop_roles = asyncio.Event(), asyncio.Event()
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with Service(database, store, settings) as service, asyncio.TaskGroup() as group:
            app = create_app(service, database, store, settings)
            serving = group.create_task(serve(app, settings, stop, listening=listening.set_result))
            if works:
                recording = Recording(database, store, settings, "o1")
                group.create_task(orchestrate(store, settings, "o1", stop_roles, recording))
                group.create_task(Worker(store, registry, settings, "w1").run(stop_roles))
            await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            async with httpx2.AsyncClient(base_url=listening.result(), timeout=30) as http:
                api = Api(http, app, service)
                if works:
                    await api.handlers_known("note", "input", "output")
                yield api
                stop.set()
                await serving
            stop_roles.set()

    return opened


@pytest.fixture
async def api(served: Served) -> AsyncIterator[Api]:
    async with served() as opened:
        yield opened
