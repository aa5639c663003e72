"""`python -m tests.chaos.mutants.directed SCENARIO FOLDER`: one short run, and what the checker says, as JSON lines.

It uses the engine that PYTHONPATH names, so a mutated copy of it as well.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from headrace.process import run_loop
from tests.chaos.checker import check
from tests.chaos.cluster import Cluster, cluster
from tests.chaos.faults import FAULTS
from tests.chaos.load import Load
from tests.chaos.machine import is_held
from tests.chaos.mutants.scenarios import SCENARIOS, Blow, Scenario, orders
from tests.chaos.run import append
from tests.chaos.violation import Violation
from tests.chaos.watcher import watch

TOGETHER = 48
READY_WITHIN_SECONDS = 60.0
BLOW_WITHIN_SECONDS = 6.0
STUCK_AFTER_SECONDS = 10.0  # without any event: what heals by itself does so every five seconds or oftener
END_WITHIN_SECONDS = 45.0
FORGOTTEN_WITHIN_SECONDS = 15.0


async def perform(scenario: Scenario, folder: Path) -> list[Violation]:
    async with cluster(folder, "sqlite") as made:
        load = Load(made.api_url, 1, made.sql.running, together=TOGETHER)
        load._orders = orders(1)
        stop_load, stop_watching = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(made.run, stop_watching))
            async with asyncio.timeout(READY_WITHIN_SECONDS):
                await load.ready()
            loading = group.create_task(load.run(stop_load))
            await _strike(made, scenario)
            stop_load.set()
            healed_at = time.time()
            await _settled(made, loading)
            load.write(made.run.accepted)
            loading.cancel()
            await made.stop()
            stop_watching.set()
        await load.aclose()
        return await check(made.run, healed_at)


async def _strike(made: Cluster, scenario: Scenario) -> None:
    started = time.monotonic()
    for blows in scenario.rounds:
        await asyncio.sleep(scenario.pause)
        await asyncio.gather(*(_inject(made, blow) for blow in blows))
    await asyncio.sleep(max(0.5, started + scenario.seconds - time.monotonic()))


async def _inject(made: Cluster, blow: Blow) -> None:
    name, given = blow
    await asyncio.sleep(given.get("after", 0.0))
    at, fired = time.time(), False
    with suppress(TimeoutError):  # a mutant may have stopped all that would come by
        async with asyncio.timeout(BLOW_WITHIN_SECONDS):
            fired = await FAULTS[name].inject(made, given)
    line = {"at": at, "fault": name, "target": given.get("target", ""), "parameters": dict(given), "fired": fired}
    append(made.run.faults, {**line, "healed_at": time.time()})


async def _settled(made: Cluster, loading: asyncio.Task[None]) -> None:
    """Until everything has ended and is forgotten, or nothing moves any more."""
    size, moved, started = -1, time.monotonic(), time.monotonic()
    while time.monotonic() - started < END_WITHIN_SECONDS and not loading.done():
        now = made.run.events.stat().st_size
        if now != size:
            size, moved = now, time.monotonic()
        if time.monotonic() - moved > STUCK_AFTER_SECONDS:
            return
        await asyncio.sleep(0.2)
    with suppress(TimeoutError):
        async with asyncio.timeout(FORGOTTEN_WITHIN_SECONDS):
            while await is_held(made):
                await asyncio.sleep(0.2)


def main() -> None:
    scenario, folder = SCENARIOS[sys.argv[1]], Path(sys.argv[2])
    for violation in run_loop(perform(scenario, folder)):
        print(json.dumps({"rule": violation.rule, "says": str(violation)}))


if __name__ == "__main__":
    main()
