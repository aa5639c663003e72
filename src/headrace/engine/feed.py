"""Live events for whoever listens: one reader of each partition's outbox, as long as somebody does.

A listener hears what happens from the moment on when it began to listen. One that does not keep up, or has missed
something because the store was away, hears None: then it has to look for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Event

MOST_WAITING = 1_000
AWAY_SECONDS = 0.5

Queue = asyncio.Queue[Event | None]


class Feed:
    def __init__(self, store: HotStore) -> None:
        self._store = store
        self._listeners: dict[str | None, set[Queue]] = {}
        self._wanted = asyncio.Event()
        self._reading = [asyncio.Event() for _ in range(store.partitions)]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for partition in range(self._store.partitions):
                group.create_task(self._read(partition))

    @contextmanager
    def listen(self, execution_id: str | None = None) -> Iterator[Queue]:
        """What happens to one execution, or to all of them."""
        queue: Queue = asyncio.Queue(MOST_WAITING)
        self._listeners.setdefault(execution_id, set()).add(queue)
        self._wanted.set()
        try:
            yield queue
        finally:
            self._listeners[execution_id].discard(queue)
            if not self._listeners[execution_id]:
                del self._listeners[execution_id]
            if not self._listeners:
                self._wanted.clear()

    async def is_reading(self, execution_id: str) -> None:
        """Returns once everything that happens from now on will be heard."""
        await self._reading[self._store.partition_of(execution_id)].wait()

    async def _read(self, partition: int) -> None:
        while True:
            await self._wanted.wait()
            try:
                await self._read_while_wanted(partition)
            except StoreUnavailable:
                await asyncio.sleep(AWAY_SECONDS)
            finally:
                self._reading[partition].clear()
                for queues in self._listeners.values():
                    for queue in queues:
                        _put(queue, None)

    async def _read_while_wanted(self, partition: int) -> None:
        after = await self._store.last_event(partition)
        self._reading[partition].set()
        while self._wanted.is_set():
            for event_id, event in await self._store.read_events(partition, after):
                after = event_id
                for queue in (*self._listeners.get(event.execution_id, ()), *self._listeners.get(None, ())):
                    _put(queue, event)


def _put(queue: Queue, event: Event | None) -> None:
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        event = None
    queue.put_nowait(event)
