"""A service with its roles on one event loop, and executions whose outputs can be told beforehand."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select

from headrace import Fatal, handler
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.record.database import Database
from headrace.record.readings import Readings
from headrace.record.tables import attempts, executions
from headrace.settings import Settings
from headrace.worker.registry import Context, Registry
from headrace.worker.worker import Worker
from tests.roles import definition, node, quick_settings, until


class House:
    """Its handlers write down every call: execution, run, node, attempt."""

    def __init__(self, store: HotStore, database: Database, settings: Settings) -> None:
        self.store, self.database, self.settings = store, database, settings
        self.calls: list[tuple[str, int, str, int]] = []
        self.broken = False
        self.closed = False
        self.readings = Readings(database)
        self.service = Service(database, store, settings)

    def registry(self) -> Registry:
        registry = Registry()

        @handler("add")
        async def add(config: dict[str, Any], ctx: Context) -> dict[str, int]:
            self.calls.append((ctx.execution_id, ctx.run, ctx.node_id, ctx.attempt))
            await asyncio.sleep(random.random() * 0.02)
            while self.closed and config.get("gate"):
                await asyncio.sleep(0.01)
            if self.broken and config.get("breaks"):
                raise Fatal("broken")
            return {"sum": config["own"] + sum(config["parents"])}

        registry.add(add)
        return registry

    async def statuses(self, ids: Collection[str]) -> Counter[str]:
        query = select(executions.c.id, executions.c.status)
        async with self.database.read() as connection:
            return Counter(status for name, status in await connection.execute(query) if name in ids)

    async def ended(self, ids: Collection[str], status: str = "COMPLETED", share: float = 1) -> None:
        async def over() -> bool:
            return (await self.statuses(ids))[status] >= share * len(ids)

        await until(over, f"{len(ids)} executions to be {status}")

    async def outputs(self) -> dict[tuple[str, str], str]:
        """(execution, node) -> output, of all that SQL knows to be complete."""
        table = attempts.c
        query = select(table.execution_id, table.node, table.output).where(table.state == "COMPLETED")
        async with self.database.read() as connection:
            return {(name, each): output for name, each, output in await connection.execute(query)}


@asynccontextmanager
async def house(
    store: HotStore, database: Database, *, orchestrators: int = 1, **settings: Any
) -> AsyncIterator[House]:
    quick = quick_settings(ORCHESTRATOR_RECONCILE_INTERVAL=0.3, ORCHESTRATOR_ARCHIVE_INTERVAL=0.02, **settings)
    made = House(store, database, quick)
    stop = asyncio.Event()
    async with made.service, asyncio.TaskGroup() as group:
        for number in range(orchestrators):
            recording = Recording(database, store, quick, f"o{number}")
            group.create_task(orchestrate(store, quick, f"o{number}", stop, recording))
        group.create_task(Worker(store, made.registry(), quick, "w").run(stop))
        try:
            yield made
        finally:
            stop.set()


def layered(seed: int) -> Definition:
    """A random graph of up to 7 nodes; each adds its own number to what its parents gave."""
    chance = random.Random(seed)
    nodes: list[dict[str, Any]] = []
    for i in range(chance.randint(1, 7)):
        parents = chance.sample(range(i), min(i, chance.randint(0, 3)))
        reads = ", ".join(f"n{parent}.sum" for parent in parents)
        config = {"own": chance.randint(1, 100), "parents": f"{{{{ [{reads}] }}}}", "breaks": i == 0}
        nodes.append(node(f"n{i}", *(f"n{parent}" for parent in parents), handler="add", config=config))
    return definition(*nodes)


def oracle(graph: Definition) -> dict[str, int]:
    """What each node gives, one after the other."""
    sums: dict[str, int] = {}
    for each in graph.nodes:
        sums[each.id] = each.config["own"] + sum(sums[parent] for parent in each.dependencies)
    return sums


async def check(made: House, graphs: Mapping[str, Definition]) -> None:
    """Every output is what the oracle says, and there are no others."""
    wanted = {
        (execution_id, name): f'{{"sum":{value}}}'
        for execution_id, graph in graphs.items()
        for name, value in oracle(graph).items()
    }
    assert await made.outputs() == wanted


async def submitted(service: Service, count: int, kinds: int = 20) -> dict[str, Definition]:
    """So many executions, of so many different graphs."""
    graphs = [layered(seed) for seed in range(kinds)]
    wanted = [graphs[number % kinds] for number in range(count)]
    accepted = await asyncio.gather(*(service.start(graph, None, actor="test") for graph in wanted))
    return {each.execution_id: graph for each, graph in zip(accepted, wanted, strict=True)}
