"""One run of the fault machine: start, load, faults by plan, heal, wait for the end of everything, check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import StoreUnavailable
from headrace.hot import keys
from tests.chaos.checker import check
from tests.chaos.cluster import MOST_PARTITIONS, Cluster, cluster
from tests.chaos.faults import FAULTS
from tests.chaos.load import Load
from tests.chaos.plan import Planned, plan
from tests.chaos.run import Run, append
from tests.chaos.violation import Violation
from tests.chaos.watcher import watch

TOGETHER = 96  # executions under way
READY_WITHIN_SECONDS = 60.0
END_WITHIN_SECONDS = 120.0  # the checker is stricter; here it is only not to wait for ever
FORGOTTEN_WITHIN_SECONDS = 30.0
TRIES = 5


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    seed: int
    minutes: float
    database: str
    only: Collection[str] = ()


@dataclass
class Done:
    """What became of it, besides what is in the run's files."""

    run: Run
    planned: list[Planned]
    fired: dict[str, int] = field(default_factory=dict)  # kind of fault -> how often
    losses: int = 0
    repeated: int = 0
    healed_at: float = 0.0
    seconds: float = 0.0  # while faults came
    ends: dict[str, int] = field(default_factory=dict)  # status -> executions
    violations: list[Violation] = field(default_factory=list)


async def perform(wish: Wish, folder: Path) -> Done:
    planned = plan(wish.seed, wish.minutes * 60, wish.database, wish.only)
    partitions = 1 + wish.seed % MOST_PARTITIONS  # workers claim in another way where there is only one
    async with cluster(folder, wish.database, partitions) as made:
        done = Done(made.run, planned, dict.fromkeys((one.kind for one in planned), 0))
        load = Load(made.api_url, wish.seed, made.sql.running, together=TOGETHER)
        stop_load, stop_watching = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(made.run, stop_watching))
            async with asyncio.timeout(READY_WITHIN_SECONDS):
                await load.ready()
                await made.sql.knows_handlers()
            loading = group.create_task(load.run(stop_load))
            try:
                await _break(made, done, wish.minutes * 60)
                stop_load.set()
                await _heal(made, done)
                await asyncio.wait((loading,), timeout=END_WITHIN_SECONDS)
                await _quiet(made)
            finally:
                load.write(made.run.accepted)
                done.repeated = load.repeated
                loading.cancel()
                await made.stop()
                stop_watching.set()
        await load.aclose()
        done.losses = made.losses
        done.ends = await made.sql.ends()
        done.violations = await check(made.run, done.healed_at)
        done.violations += [Violation("clients are told what is wrong", complaint) for complaint in load.complaints]
        return done


async def _break(made: Cluster, done: Done, seconds: float) -> None:
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for one in done.planned:
            await asyncio.sleep(max(0.0, start + one.at - time.monotonic()))
            group.create_task(_inject(made, done, one))
        await asyncio.sleep(max(0.0, start + seconds - time.monotonic()))
    done.seconds = time.monotonic() - start


async def _inject(made: Cluster, done: Done, one: Planned) -> None:
    """What could not be done at this moment, because its target was just down, is tried again."""
    at, fired = time.time(), False
    for _ in range(TRIES):
        at = time.time()
        fired = await FAULTS[one.fault].inject(made, one.parameters)
        if fired or time.time() - at > 1.0:
            break
        await asyncio.sleep(0.5)
    done.fired[one.kind] += fired
    line = {"at": at, "fault": one.fault, "target": one.target, "parameters": one.parameters, "fired": fired}
    append(made.run.faults, {**line, "healed_at": time.time()})


async def _heal(made: Cluster, done: Done) -> None:
    """Each fault has healed what it did; here is only made sure that all roles are up."""
    for role in made.roles.values():
        while not role.pid:
            await asyncio.sleep(0.02)
    done.healed_at = time.time()


async def _quiet(made: Cluster) -> None:
    """Until SQL has every end, and the hot store holds no execution."""
    try:
        async with asyncio.timeout(FORGOTTEN_WITHIN_SECONDS):
            while await made.sql.running() or await is_held(made):
                await asyncio.sleep(0.25)
    except (TimeoutError, OSError):
        return  # the checker will say what is left


async def is_held(made: Cluster) -> bool:
    for partition in range(made.partitions):
        pattern = keys.execution(partition, "*").replace("{", "\\{").replace("}", "\\}")
        try:
            if await made.link.call("KEYS", pattern):
                return True
        except StoreUnavailable:
            return True
    return False
