"""One execution as it happens, for server-sent events: how it stands, then each change, then its end.

An id is epoch and sequence number of an event; what SQL shows has no event, so its id is made of run and status. Who
comes back with the id of the newest one goes on from there; with any other he is told how it stands now. The end is
told when SQL has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from headrace.engine.feed import Feed
from headrace.engine.reading import ENDED, Reader, Snapshot
from headrace.engine.view import timestamp
from headrace.errors import RecordUnavailable
from headrace.model.messages import Change, Event
from headrace.model.state import TERMINAL_EXECUTIONS, NodeState

LOOK_AGAIN_SECONDS = 2.0  # also without an event: the store may be away
ARCHIVED_WITHIN_SECONDS = 0.05

Told = tuple[str, str, dict[str, Any]]  # id, kind, data


async def follow(reader: Reader, feed: Feed, execution_id: str, last_id: str | None) -> AsyncIterator[Told]:
    with feed.listen(execution_id) as queue:
        epoch, seq = "", -1
        while True:
            snapshot = await reader.snapshot(execution_id)
            position = _position(snapshot)
            epoch, seq = snapshot.held.epoch, snapshot.held.seq
            is_over = snapshot.stored.status in ENDED
            if is_over or position != last_id:
                yield position, "end" if is_over else "snapshot", await reader.shown(snapshot)
            if is_over:
                return
            last_id = position
            while (event := await _next(queue)) is not None:
                if event.epoch == epoch and event.seq <= seq:
                    continue  # the snapshot had it already
                if event.epoch != epoch:
                    break  # it was opened anew: look again
                seq = event.seq
                last_id = f"{epoch}.{seq}"
                if event.status and event.status in TERMINAL_EXECUTIONS:
                    await _archived(reader, execution_id, event.run)
                    break
                if event.changes:
                    yield last_id, "change", _shown(event)


def _position(seen: Snapshot) -> str:
    at = str(seen.held.seq) if seen.held.seq else f"{seen.stored.run}-{seen.stored.status}"
    return f"{seen.held.epoch}.{at}"


async def _next(queue: asyncio.Queue[Event | None]) -> Event | None:
    try:
        return await asyncio.wait_for(queue.get(), LOOK_AGAIN_SECONDS)
    except TimeoutError:
        return None


async def _archived(reader: Reader, execution_id: str, run: int) -> None:
    while True:
        try:
            stored = await reader.stored(execution_id)
            if stored.run != run or stored.status in ENDED:
                return
        except RecordUnavailable:
            pass
        await asyncio.sleep(ARCHIVED_WITHIN_SECONDS)


def _shown(event: Event) -> dict[str, Any]:
    return {
        "execution_id": event.execution_id,
        "run": event.run,
        "at": timestamp(event.at_ms),
        "nodes": [_change(change) for change in event.changes],
    }


def _change(change: Change) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": change.node, "status": NodeState(change.state).name, "attempt": change.attempt}
    match NodeState(change.state):
        case NodeState.RUNNING:
            shown["worker"] = change.detail
        case NodeState.RETRYING:
            shown |= {"error": msgspec.json.decode(change.detail), "next_attempt_at": timestamp(change.due_ms)}
        case NodeState.FAILED:
            shown["error"] = msgspec.json.decode(change.detail)
        case NodeState.SKIPPED:
            shown["reason"] = "upstream_failed"
        case _:
            pass
    return shown
