"""Celery on the Redis protocol: the diamond as a chain with a chord in it, the fan as a chord of a thousand.

As durable as ours: the broker has its append-only file on, and a task is acknowledged after it has run (`acks_late`).
A large prefetch, as the guide advises for many short tasks (https://docs.celeryq.dev/en/stable/userguide/optimizing.html),
no events and no rate limits, the broker on a socket as in
https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html. Threads run the no-ops, which spares
Celery the pipes to its child processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord, group  # type: ignore[import-untyped]

from bench.peers.driver import process, script

SLOTS = 4

_socket = os.environ.get("PEER_VALKEY_SOCKET", "")
app = Celery("peer", broker=f"redis+socket://{_socket}", backend=f"redis+socket://{_socket}")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_serializer="json",
    worker_prefetch_multiplier=64,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
)


@app.task  # type: ignore[untyped-decorator]
def noop(before: Any = None) -> list[int]:
    """When it and those before it in a chain were called."""
    past = before if isinstance(before, list) and all(isinstance(each, int) for each in before) else []
    return [*past, time.monotonic_ns()]


class Peer:
    def diamonds(self, count: int) -> None:
        """Started one after the other, as `apply_async` is; then all are waited for."""
        diamond = chain(noop.si(), group(noop.s(), noop.s(), noop.s()), noop.si())
        for result in [diamond.apply_async() for _ in range(count)]:
            result.get(timeout=60)

    def chain(self, length: int) -> list[int]:
        found: list[int] = chain(noop.si(), *(noop.s() for _ in range(length - 1))).apply_async().get(timeout=60)
        return found

    def fan(self, width: int) -> None:
        (noop.si() | chord([noop.si() for _ in range(width)], noop.si())).apply_async().get(timeout=120)


@contextmanager
def running(folder: Path) -> Iterator[Peer]:
    command = [script("celery"), "-A", "bench.peers.celery_peer", "worker", "--pool", "threads"]
    options = ["--concurrency", str(SLOTS), "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    with process([*command, *options], folder / "worker.log"):
        noop.delay().get(timeout=60)
        yield Peer()
