"""B and C finish in the same instant, and four orchestrators take their results: D is dispatched once, 1,000 times."""

from __future__ import annotations

from collections import Counter

from headrace.engine.engine import Engine
from headrace.hot.store import HotStore
from headrace.model.messages import Event, Report, Task
from tests.roles import Processes, definition, node, quick_settings, until

REPETITIONS = 1000
LEASE_MS = 600_000


async def test_fan_in_is_dispatched_once(cluster: Processes, store: HotStore) -> None:
    for _ in range(4):
        cluster.orchestrator(ORCHESTRATOR_BATCH="1")
    diamond = definition(
        *(node(name, *parents, handler="h") for name, parents in (("A", ""), ("B", "A"), ("C", "A"), ("D", "BC")))
    )
    ids = await Engine(store, quick_settings()).start_many(diamond, [{} for _ in range(REPETITIONS)])
    claimed: Counter[tuple[str, str, int]] = Counter()
    waiting: dict[str, Task] = {}

    async def work(partition: int) -> None:
        """A worker that holds the first of B and C back, and reports both with one call."""
        tasks, _ = await store.claim(partition, "w", 200, LEASE_MS, ["h"])
        reports = []
        for task in tasks:
            claimed[task.execution_id, task.node, task.attempt] += 1
            together = [task]
            if task.node in "BC":
                other = waiting.pop(task.execution_id, None)
                if other is None:
                    waiting[task.execution_id] = task
                    continue
                together.append(other)
            reports += [Report(each.token, '{"output":"{}"}') for each in together]
        if reports:
            assert await store.report(partition, reports) == []

    async def all_ended() -> bool:
        for partition in range(store.partitions):
            await work(partition)
        return sum(claimed.values()) >= 4 * REPETITIONS and await ended_everywhere()

    async def ended_everywhere() -> bool:
        statuses = {execution.status for each in ids if (execution := await store.execution(each))}
        return statuses == {"C"}

    await until(all_ended, "all of them", within=120)
    for partition in range(store.partitions):
        await work(partition)
    assert claimed == Counter({(execution_id, name, 1): 1 for execution_id in ids for name in "ABCD"})
    queued: Counter[tuple[str, str]] = Counter()
    for partition in range(store.partitions):
        for event in await _events(store, partition):
            queued.update((event.execution_id, change.node) for change in event.changes if change.state == "Q")
    assert queued == Counter({(execution_id, name): 1 for execution_id in ids for name in "ABCD"})


async def _events(store: HotStore, partition: int) -> list[Event]:
    events: list[Event] = []
    after = "0-0"
    while read := await store.read_events(partition, after, block=False):
        events += [event for _, event in read]
        after = read[-1][0]
    return events
