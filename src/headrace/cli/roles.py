"""`headrace orchestrator` and `headrace worker`: one production role each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from headrace import logs
from headrace.cli.startup import USAGE, load_registry, load_settings
from headrace.errors import HeadraceError, RecordUnavailable, StoreUnavailable, StoreUnsupported
from headrace.hot.store import HotStore
from headrace.process import recorded, recording_on, run_loop, serve, traced
from headrace.settings import Settings

UNREACHABLE = 3

log = structlog.get_logger(__name__)


def run_orchestrator() -> int:
    from headrace.engine.role import orchestrate

    settings = load_settings()

    async def work(store: HotStore, name: str, stop: asyncio.Event) -> None:
        async with recorded(settings) as database, traced(settings, name) as tracer:
            await orchestrate(store, settings, name, stop, recording_on(database, store, settings, name, tracer))

    return _serve("orchestrator", settings, work)


def run_worker(modules: Sequence[str]) -> int:
    from headrace.worker.worker import Worker

    settings = load_settings()
    registry = load_registry([*settings.worker_handlers, *modules], settings)

    async def work(store: HotStore, name: str, stop: asyncio.Event) -> None:
        async with traced(settings, name) as tracer:
            worker = Worker(store, registry, settings, name, tracer)
            await worker.run(stop)
        if worker.is_stuck:
            log.warning("stopped; handlers that do not listen are left behind", name=name)
            sys.stderr.flush()
            os._exit(0)  # the event loop and the interpreter would wait for them

    return _serve("worker", settings, work)


def run_api() -> int:
    from headrace.api.app import create_app
    from headrace.api.server import serve as serve_http
    from headrace.engine.service import Service

    settings = load_settings()

    async def work(store: HotStore, name: str, stop: asyncio.Event) -> None:
        async with recorded(settings) as database, Service(database, store, settings) as service:
            app = create_app(service, database, store, settings)
            await serve_http(app, settings, stop, listening=lambda address: log.info("listening", address=address))

    return _serve("api", settings, work, needs_store=False)


def _serve(
    role: str,
    settings: Settings,
    body: Callable[[HotStore, str, asyncio.Event], Coroutine[Any, Any, None]],
    *,
    needs_store: bool = True,
) -> int:
    logs.configure()
    url = settings.valkey_url
    if url is None:
        print(f"headrace {role}: set REDIS_URL (or REDIS_HOST) to the Valkey that all roles share", file=sys.stderr)
        return USAGE
    return exit_code(role, lambda: run_loop(serve(role, settings, url, body, needs_store=needs_store)))


def exit_code(role: str, run: Callable[[], None]) -> int:
    """Runs a role to its end and says what went wrong, if anything did."""
    try:
        run()
    except* (StoreUnavailable, StoreUnsupported, RecordUnavailable) as group:
        print(f"headrace {role}: {_first(group)}", file=sys.stderr)
        return_code = UNREACHABLE
    except* HeadraceError as group:
        print(f"headrace {role}: {_first(group)}", file=sys.stderr)
        return_code = USAGE
    else:
        return_code = 0
    return return_code


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
