"""The watcher: writes down every event of the hot store while a run lasts, as the store says it and past any proxy.

The checker needs the whole history, and the store keeps only a minute of it. What the store says and then forgets
before the watcher has read it leaves a hole in the chain of an execution's events; the checker knows when that may be.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import IO, Any

import msgspec

from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Change, Event
from headrace.model.state import NodeState
from tests.chaos.run import Run

BLOCK_MS = 200
AWAY_SECONDS = 0.02


async def watch(run: Run, stop: asyncio.Event) -> None:
    """Until told to stop; what is there at that moment is still read."""
    store = HotStore(run.valkey_url, partitions=run.partitions, block_ms=BLOCK_MS)
    try:
        with run.events.open("a", buffering=1 << 16) as file:
            async with asyncio.TaskGroup() as group:
                for partition in range(run.partitions):
                    group.create_task(_watch(store, partition, file, stop))
    finally:
        await store.aclose()


async def _watch(store: HotStore, partition: int, file: IO[str], stop: asyncio.Event) -> None:
    after = "0-0"
    while True:
        stopping = stop.is_set()
        try:
            entries = await store.read_events(partition, after, block=not stopping)
        except StoreUnavailable:
            if stopping:
                return
            await asyncio.sleep(AWAY_SECONDS)
            continue
        for entry_id, event in entries:
            file.write(json.dumps(line_of(partition, entry_id, event)) + "\n")
        file.flush()
        if entries:
            after = entries[-1][0]
        elif stopping:
            return


def line_of(partition: int, entry_id: str, event: Event) -> dict[str, Any]:
    return {
        "partition": partition,
        "id": entry_id,
        "execution": event.execution_id,
        "epoch": event.epoch,
        "run": event.run,
        "seq": event.seq,
        "previous": event.previous,
        "at_ms": event.at_ms,
        "status": event.status,
        "changes": [[each.node, each.state, each.attempt, _detail(each), each.due_ms] for each in event.changes],
    }


def _detail(change: Change) -> str:
    """Of an output its digest, of a failure its code, of a running node its worker."""
    match NodeState(change.state):
        case NodeState.COMPLETED:
            return digest(change.detail)
        case NodeState.RETRYING | NodeState.FAILED:
            return code_of(change.detail)
        case _:
            return change.detail


def digest(output: str) -> str:
    return hashlib.blake2b(output.encode(), digest_size=8).hexdigest()


def code_of(failure: str | None) -> str:
    try:
        return str(msgspec.json.decode(failure or "{}")["code"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""
