"""The record and the hot store against each other: what was accepted ends, whatever the hot store forgets meanwhile."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from headrace import Fatal, handler
from headrace.embedded import EmbeddedValkey
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.errors import Conflict, RecordUnavailable
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.record import migrations
from headrace.record.database import Database
from headrace.record.readings import Readings
from headrace.record.tables import attempts, executions
from headrace.settings import Settings
from headrace.worker.registry import Context, Registry
from headrace.worker.worker import Worker
from tests.databases import Postgres
from tests.roles import definition, node, quick_settings, until

COUNT = 60


class House:
    """A service with roles of its own on one event loop; its handlers write down every call."""

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

    async def statuses(self, ids: list[str]) -> Counter[str]:
        found = [await self.readings.execution(one) for one in ids]
        return Counter(one.status for one in found if one)

    async def ended(self, ids: list[str], status: str = "COMPLETED") -> None:
        async def over() -> bool:
            return (await self.statuses(ids))[status] == len(ids)

        await until(over, f"{len(ids)} executions to be {status}")


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
    """A random graph of up to 12 nodes; each adds its own number to what its parents gave."""
    chance = random.Random(seed)
    nodes: list[dict[str, Any]] = []
    for i in range(chance.randint(1, 12)):
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


async def check(made: House, graphs: dict[str, Definition]) -> None:
    for execution_id, graph in graphs.items():
        outputs = await made.readings.outputs(execution_id, [each.id for each in graph.nodes])
        assert outputs == {name: f'{{"sum":{value}}}' for name, value in oracle(graph).items()}


async def started(made: House, count: int = COUNT) -> dict[str, Definition]:
    graphs = [layered(seed) for seed in range(count)]
    submitted = await asyncio.gather(*(made.service.start(graph, None, actor="test") for graph in graphs))
    return {each.execution_id: graph for each, graph in zip(submitted, graphs, strict=True)}


async def known_complete(made: House, graphs: dict[str, Definition]) -> set[tuple[str, str]]:
    return {
        (execution_id, name)
        for execution_id, graph in graphs.items()
        for name in await made.readings.outputs(execution_id, [each.id for each in graph.nodes])
    }


@pytest.mark.parametrize("orchestrators", [1, 4])
async def test_a_wiped_store_is_rebuilt_from_the_record(
    store: HotStore, database: Database, orchestrators: int
) -> None:
    async with house(store, database, orchestrators=orchestrators) as made:
        graphs = await started(made)
        ids = list(graphs)
        for share in (4, 2):

            async def some_ended(share: int = share) -> bool:
                return (await made.statuses(ids))["COMPLETED"] >= COUNT // share

            await until(some_ended, "some to end")
            complete = await known_complete(made, graphs)
            before = len(made.calls)
            await store._link.call("FLUSHALL")
            again = {(call[0], call[2]) for call in made.calls[before:]}
            assert not again & complete
        await made.ended(ids)
        await check(made, graphs)


async def test_what_sql_knows_to_be_complete_does_not_run_again(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        graphs = await started(made, 20)
        await until(lambda: len(made.calls) > 40, "work")
        await store._link.call("FLUSHALL")
        complete, before = await known_complete(made, graphs), len(made.calls)
        await made.ended(list(graphs))
        assert not complete & {(call[0], call[2]) for call in made.calls[before:]}
        await check(made, graphs)


async def test_a_store_that_went_back_in_time_is_overruled(tmp_path: Path, database: Database) -> None:
    folder, copy = tmp_path / "valkey", tmp_path / "copy"
    with EmbeddedValkey(folder) as server:
        url = server.url
        store = HotStore(url)
        await store.prepare()
        async with house(store, database) as made:
            graphs = await started(made)

            async def some_ended() -> bool:
                return (await made.statuses(list(graphs)))["COMPLETED"] >= COUNT // 4

            await until(some_ended, "some to end")
            await asyncio.to_thread(server.stop)
            shutil.copytree(folder / "appendonlydir", copy)
            await asyncio.to_thread(server.start)
            await until(lambda: _more(made, graphs), "more to end")
            await asyncio.to_thread(server.stop)
            shutil.rmtree(folder / "appendonlydir")
            shutil.move(copy, folder / "appendonlydir")
            await asyncio.to_thread(server.start)
            await made.ended(list(graphs))
            await check(made, graphs)
        await store.aclose()


async def _more(made: House, graphs: dict[str, Definition]) -> bool:
    return (await made.statuses(list(graphs)))["COMPLETED"] >= COUNT // 2


async def test_with_the_store_away_requests_are_accepted_and_take_effect_later(
    tmp_path: Path, database: Database
) -> None:
    with EmbeddedValkey(tmp_path) as server:
        store = HotStore(server.url, socket_timeout=1.0)
        await store.prepare()
        async with house(store, database) as made:
            made.broken = True
            failed = (await made.service.start(layered(1), None, actor="test")).execution_id
            await made.ended([failed], "FAILED")
            made.broken = False
            waiting = (await made.service.submit(layered(2), actor="test")).execution_id
            await asyncio.to_thread(server.stop)
            fresh = (await made.service.start(layered(3), None, actor="test")).execution_id
            doomed = (await made.service.start(layered(4), None, actor="test")).execution_id
            assert await made.service.trigger(waiting, None, actor="test") == 1
            assert await made.service.retry(failed, actor="test") == 2
            await made.service.cancel(doomed, actor="test")
            assert (await made.service.read(fresh))["status"] == "RUNNING"
            with pytest.raises(Conflict):
                await made.service.trigger(fresh, None, actor="test")
            await asyncio.to_thread(server.start)
            await made.ended([failed, waiting, fresh])
            await made.ended([doomed], "CANCELLED")
            assert not [call for call in made.calls if call[0] == doomed]
        await store.aclose()


async def test_the_next_run_keeps_what_is_complete(store: HotStore, database: Database) -> None:
    graph = definition(
        node("good", handler="add", config={"own": 1, "parents": []}),
        node("bad", "good", handler="add", config={"own": 2, "parents": "{{ [good.sum] }}", "breaks": True}),
        node("last", "bad", handler="add", config={"own": 3, "parents": "{{ [bad.sum] }}"}),
    )
    async with house(store, database) as made:
        made.broken = True
        execution_id = (await made.service.start(graph, None, actor="test")).execution_id
        await made.ended([execution_id], "FAILED")
        view = await made.service.read(execution_id)
        assert [each["status"] for each in view["nodes"]] == ["COMPLETED", "FAILED", "SKIPPED"]
        made.broken = False
        assert await made.service.retry(execution_id, actor="test") == 2
        await made.ended([execution_id])
        assert [call[1:] for call in made.calls] == [(1, "good", 1), (1, "bad", 1), (2, "bad", 1), (2, "last", 1)]
        view = await made.service.read(execution_id)
        assert (view["run"], view["output"]) == (2, {"last": {"sum": 6}})
        bad = await made.service.node(execution_id, "bad")
        assert [(each["run"], each["status"]) for each in bad["attempts"]] == [(1, "FAILED"), (2, "COMPLETED")]
        assert bad["config"] == {"own": 2, "parents": [1], "breaks": True}


async def test_following_ends_with_what_sql_has(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        execution_id = (await made.service.start(layered(7), None, actor="test")).execution_id
        kinds, last = [], ""
        data: dict[str, Any] = {}
        async for event_id, kind, data in made.service.follow(execution_id):  # noqa: B007 (the last one counts)
            kinds.append(kind)
            last = event_id
        assert (kinds[0], kinds[-1], data["status"]) == ("snapshot", "end", "COMPLETED")
        assert last
        assert [kind async for _, kind, _ in made.service.follow(execution_id)] == ["end"]


async def test_nothing_is_left_in_the_store(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        graphs = await started(made, 20)
        await made.ended(list(graphs))

        async def forgotten() -> bool:
            pages = [await store.held_executions(partition, "0") for partition in range(store.partitions)]
            return not any(ids for _, ids in pages)

        await until(forgotten, "the store to forget what has ended")
        assert await store._link.call("ZCARD", "hr:{0}:timers") == 0


async def test_a_record_that_went_back_in_time_is_followed(store: HotStore, database: Database) -> None:
    """As after a restored backup whose events are gone: SQL is older than the store, and it is what counts."""
    graph = definition(
        node("a", handler="add", config={"own": 1, "parents": []}),
        node("b", "a", handler="add", config={"own": 2, "parents": "{{ [a.sum] }}"}),
        node("c", "b", handler="nobody_yet", config={}),
    )
    async with house(store, database) as made:
        execution_id = (await made.service.start(graph, None, actor="test")).execution_id
        await until(lambda: _knows(made, execution_id, "b"), "SQL to have b")
        async with database.write() as connection:
            await connection.execute(delete(attempts).where(attempts.c.execution_id == execution_id))
            before = update(executions).where(executions.c.id == execution_id)
            await connection.execute(before.values(last_event="1-1"))
        await until(lambda: Counter(call[2] for call in made.calls) == {"a": 2, "b": 2}, "both to run again")
        await until(lambda: _knows(made, execution_id, "b"), "SQL to have b again")
        await made.service.cancel(execution_id, actor="test")
        await made.ended([execution_id], "CANCELLED")


async def _knows(made: House, execution_id: str, name: str) -> bool:
    return name in await made.readings.outputs(execution_id, [name])


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """One that may be stopped."""
    with Postgres() as server:
        yield server


async def test_with_sql_away_what_runs_goes_on_and_can_be_read(valkey_url: str, own_postgres: Postgres) -> None:
    def graph(gate: str) -> Definition:
        config = {"own": 1, "parents": [], "gate": gate}
        return definition(node("a", handler="add", config=config), node("b", "a", handler="add", config=config))

    store = HotStore(valkey_url)
    await store._link.call("FLUSHALL")
    await store.prepare()
    database = Database(own_postgres.url(await asyncio.to_thread(own_postgres.create)), answer_seconds=2)
    await migrations.upgrade(database)
    async with house(store, database) as made:
        made.closed = True
        execution_id = (await made.service.start(graph("shut"), None, actor="test")).execution_id
        await until(lambda: len(made.calls) == 1, "a runs")
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises(RecordUnavailable):
            await made.service.start(graph("shut"), None, actor="test")
        view = await made.service.read(execution_id)
        assert (view["status"], [each["status"] for each in view["nodes"]]) == ("RUNNING", ["RUNNING", "PENDING"])
        made.closed = False
        await until(lambda: len(made.calls) == 2, "b runs")
        await asyncio.to_thread(own_postgres.start)
        await made.ended([execution_id])
    await database.aclose()
    await store.aclose()
