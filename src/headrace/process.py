"""Roles as processes: the event loop, signals, and the ordered start and stop of what runs together."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore

if TYPE_CHECKING:  # a role imports what it runs: SQL takes half a second, and templates a tenth
    from headrace.engine.recording import Recording
    from headrace.record.database import Database
    from headrace.settings import Settings
    from headrace.tracing import Tracer
    from headrace.worker.registry import Registry
    from headrace.worker.worker import Worker

NEW_OBJECTS_BEFORE_COLLECTING = 20_000  # batches make thousands of objects that live for a moment

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    gc.freeze()  # what was imported stays: the collector need not look at it again and again
    gc.set_threshold(NEW_OBJECTS_BEFORE_COLLECTING, 20, 50)
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on this platform
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def process_name(role: str) -> str:
    """Unique for every start of a process, and telling where it runs."""
    return f"{role}@{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


@asynccontextmanager
async def on_signals(react: Callable[[], None]) -> AsyncIterator[None]:
    """SIGINT and SIGTERM call `react`; a second SIGINT ends the process the hard way."""
    loop = asyncio.get_running_loop()
    seen = 0

    def received(number: int) -> None:
        nonlocal seen
        seen += number == signal.SIGINT
        if seen > 1:
            os._exit(130)
        react()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def connected(url: str, settings: Settings, *, needed: bool = True) -> AsyncIterator[HotStore]:
    """A hot store that is fit to run on; if it is not `needed` at once, one that may be away now."""
    store = HotStore(
        url,
        partitions=settings.redis_partitions,
        socket_timeout=settings.redis_socket_timeout,
        block_ms=settings.redis_stream_block_ms,
    )
    try:
        try:
            await store.prepare()
        except StoreUnavailable as error:
            if needed:
                raise
            log.warning("started while the store is away", error=str(error))
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def recorded(settings: Settings) -> AsyncIterator[Database]:
    """The SQL store, with its schema up to date, for as many partitions as are set. A SQLite file is made and brought
    up to date by whoever comes first; a server belongs to an operator, who decides when (`headrace migrate`)."""
    from headrace.record import layout, migrations
    from headrace.record.database import Database

    database = Database(settings.sql_url)
    try:
        if database.is_sqlite:
            settings.headrace_home.mkdir(parents=True, exist_ok=True)
        if (found := await migrations.current(database)) != migrations.newest():
            if not database.is_sqlite:
                raise RecordUnavailable(
                    f"the schema of the SQL store is at revision {found or 'none'}, and this version needs "
                    f"{migrations.newest()}: run `headrace migrate`"
                )
            await migrations.upgrade(database)
        await layout.agree(database, settings.redis_partitions)
        yield database
    finally:
        await database.aclose()


@asynccontextmanager
async def traced(settings: Settings, name: str) -> AsyncIterator[Tracer | None]:
    """What makes spans, where an endpoint for them is set. Whatever is wrong with that, everything else runs."""
    tracer = _tracer(name) if settings.sends_traces else None
    try:
        yield tracer
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)


def _tracer(name: str) -> Tracer | None:
    try:
        from headrace.tracing import Tracer
    except ImportError:
        log.warning("no traces: an OTLP endpoint is set, and headrace[otel] is not installed")
        return None
    try:
        return Tracer(name)
    except Exception as error:
        log.warning("no traces: the OTEL_ variables cannot be used", error=str(error))
        return None


@asynccontextmanager
async def roles_running(
    store: HotStore,
    settings: Settings,
    registry: Registry,
    database: Database | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Worker]:
    """An orchestrator and a worker beside the caller. The worker stops first, so that its last reports are applied."""
    from headrace.engine.role import orchestrate
    from headrace.worker.worker import Worker

    stop_worker, stop_orchestrator = asyncio.Event(), asyncio.Event()
    worker = Worker(store, registry, settings, process_name("worker"), tracer)
    name = process_name("orchestrator")
    recording = recording_on(database, store, settings, name, tracer) if database is not None else None
    async with asyncio.TaskGroup() as group:
        group.create_task(orchestrate(store, settings, name, stop_orchestrator, recording))
        working = group.create_task(worker.run(stop_worker))
        try:
            yield worker
        finally:
            stop_worker.set()
            await asyncio.wait((working,))
            stop_orchestrator.set()


def recording_on(
    database: Database, store: HotStore, settings: Settings, name: str, tracer: Tracer | None = None
) -> Recording:
    from headrace.engine.recording import Recording

    return Recording(database, store, settings, name, tracer)


async def serve(
    role: str,
    settings: Settings,
    url: str,
    body: Callable[[HotStore, str, asyncio.Event], Coroutine[Any, Any, None]],
    *,
    needs_store: bool = True,
) -> None:
    """One role as the whole process, until a signal comes."""
    stop = asyncio.Event()
    name = process_name(role)
    async with on_signals(stop.set), connected(url, settings, needed=needs_store) as store:
        log.info("started", role=role, name=name)
        await body(store, name, stop)
    log.info("stopped", role=role, name=name)
