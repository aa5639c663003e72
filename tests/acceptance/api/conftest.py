"""The API as clients meet it: over HTTP, on a port of its own, with real stores and real roles behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
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
from tests.acceptance.api.client import Api
from tests.roles import quick_settings

Served = Callable[..., AbstractAsyncContextManager[Api]]


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
