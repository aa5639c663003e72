"""Messages that come twice, late, or in another order, wherever messages wait, in every partition.

What is fair? A message is a hint, so where work waits one may come again, even long after it was dealt with
(duplicated), may leave its place and come at the end (reordered), and may be away for a while (delayed). It must not be
gone for ever: a fault that takes a message out puts it back. From the results only what nobody was given yet is taken
out: what is pending belongs to its reader.

The events are an outbox: the id of an entry is what the next one calls its predecessor, so an entry that is put back
under a new id is another event, and the one that SQL waits for is lost. No server and no network does that. What does
happen there is that events are read again, older ones behind newer ones: copies are added at the end in any order
(duplicated, reordered). And that nobody reads them for a while: the archiver's duty is in the hands of one that hangs
(delayed).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.errors import StoreUnavailable
from headrace.hot import keys
from headrace.hot.wire import Refused
from tests.chaos.cluster import MOST_PARTITIONS, Cluster
from tests.chaos.faults.fault import Fault, Parameters
from tests.chaos.queues import Messages, Queue

COME_WITHIN_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.005
QUEUES = ("tasks:step", "tasks:step", "tasks:step_in_thread", "results", "results", "control")  # some more often
MOST = 10


def queue(cluster: Cluster, given: Parameters) -> Queue:
    return Queue(cluster.link, given["partition"] % cluster.partitions, given["target"])


async def duplicate(cluster: Cluster, given: Parameters) -> bool:
    """Copies of messages as they come, added after a while."""
    messages = await _until_some(lambda: queue(cluster, given).newest(given["most"]))
    await asyncio.sleep(given["seconds"])
    random.Random(given["order"]).shuffle(messages)
    return await _add(cluster, given, messages)


async def reorder(cluster: Cluster, given: Parameters) -> bool:
    """The first messages become the last, in the opposite order. One is enough where others come meanwhile."""
    return bool(await _until_some(lambda: _take(cluster, given, back=True)))


async def delay(cluster: Cluster, given: Parameters) -> bool:
    messages = await _until_some(lambda: _take(cluster, given, back=False))
    await asyncio.sleep(given["seconds"])
    return await _add(cluster, given, messages)


async def delay_events(cluster: Cluster, given: Parameters) -> bool:
    duty = keys.prefix(given["partition"] % cluster.partitions) + "duty:archive"
    try:
        await cluster.link.call("SET", duty, "one that hangs", "PX", round(given["seconds"] * 1000))
    except StoreUnavailable:
        return False
    await asyncio.sleep(given["seconds"])
    return True


async def _take(cluster: Cluster, given: Parameters, *, back: bool) -> Messages:
    async with cluster.valkey.changing:  # if the answer were lost, the messages would be too
        return await queue(cluster, given).take(given["most"], back=back)


async def _add(cluster: Cluster, given: Parameters, messages: Messages) -> bool:
    """Never given up half way: what was taken out must come back."""
    for message in messages:
        while True:
            try:
                await queue(cluster, given).add(message)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    return bool(messages)


async def _until_some(look: Callable[[], Awaitable[Messages]]) -> Messages:
    """Messages are gone in a moment: it looks often."""
    deadline = time.monotonic() + COME_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            if messages := await look():
                return messages
        except (StoreUnavailable, Refused):  # away; or no such stream yet
            await asyncio.sleep(0.05)
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return []


def _draw(*queues: str) -> Callable[[random.Random], dict[str, Any]]:
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "target": rng.choice(queues),
            "partition": rng.randrange(MOST_PARTITIONS),
            "most": rng.randint(1, MOST),
            "seconds": round(rng.choice((0.0, 0.5, 3.0)) * rng.random(), 2),
            "order": rng.randrange(1000),
        }

    return draw


def draw_duty(rng: random.Random) -> dict[str, Any]:
    return {"target": "events", "partition": rng.randrange(MOST_PARTITIONS), "seconds": round(rng.uniform(1.0, 8.0), 1)}


FAULTS = (
    Fault("duplicated", 40, duplicate, _draw(*QUEUES, "events"), longest_seconds=COME_WITHIN_SECONDS),
    Fault("reordered", 20, reorder, _draw(*QUEUES), longest_seconds=COME_WITHIN_SECONDS),
    Fault("delayed", 12, delay, _draw(*QUEUES), longest_seconds=COME_WITHIN_SECONDS),
    Fault("archiver_delayed", 2, delay_events, draw_duty),
)
