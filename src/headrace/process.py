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
from typing import Any, TypeVar

import structlog

from headrace.engine.role import orchestrate
from headrace.hot.store import HotStore
from headrace.settings import Settings
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
async def connected(url: str, settings: Settings) -> AsyncIterator[HotStore]:
    """A hot store that is fit to run on."""
    store = HotStore(
        url,
        partitions=settings.redis_partitions,
        socket_timeout=settings.redis_socket_timeout,
        block_ms=settings.redis_stream_block_ms,
    )
    try:
        await store.prepare()
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def roles_running(store: HotStore, settings: Settings, registry: Registry) -> AsyncIterator[Worker]:
    """An orchestrator and a worker beside the caller. The worker stops first, so that its last reports are applied."""
    stop_worker, stop_orchestrator = asyncio.Event(), asyncio.Event()
    worker = Worker(store, registry, settings, process_name("worker"))
    async with asyncio.TaskGroup() as group:
        group.create_task(orchestrate(store, settings, process_name("orchestrator"), stop_orchestrator))
        working = group.create_task(worker.run(stop_worker))
        try:
            yield worker
        finally:
            stop_worker.set()
            await asyncio.wait((working,))
            stop_orchestrator.set()


async def serve(
    role: str, settings: Settings, url: str, body: Callable[[HotStore, str, asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    """One role as the whole process, until a signal comes."""
    stop = asyncio.Event()
    name = process_name(role)
    async with on_signals(stop.set), connected(url, settings) as store:
        log.info("started", role=role, name=name)
        await body(store, name, stop)
    log.info("stopped", role=role, name=name)
