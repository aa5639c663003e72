"""The record and the hot store against each other: what was accepted ends, whatever the hot store forgets meanwhile."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from headrace.embedded import EmbeddedValkey
from headrace.engine.service import Service
from headrace.errors import Conflict, RecordUnavailable
from headrace.hot import keys
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.record import migrations
from headrace.record.database import Database
from headrace.record.tables import attempts, executions
from tests.databases import Postgres
from tests.house import House, check, house, layered, submitted
from tests.roles import definition, node, quick_settings, until

COUNT = 60


async def test_a_store_that_went_back_in_time_is_overruled(tmp_path: Path, database: Database) -> None:
    folder, copy = tmp_path / "valkey", tmp_path / "copy"
    with EmbeddedValkey(folder) as server:
        url = server.url
        store = HotStore(url)
        await store.prepare()
        async with house(store, database) as made:
            graphs = await submitted(made.service, COUNT)

            await made.ended(graphs, share=0.25)
            await asyncio.to_thread(server.stop)
            shutil.copytree(folder / "appendonlydir", copy)
            await asyncio.to_thread(server.start)
            await made.ended(graphs, share=0.5)
            await asyncio.to_thread(server.stop)
            complete, before = await made.outputs(), len(made.calls)
            shutil.rmtree(folder / "appendonlydir")
            shutil.move(copy, folder / "appendonlydir")
            await asyncio.to_thread(server.start)
            await made.ended(graphs)
            await check(made, graphs)
            again = {(execution_id, name) for execution_id, _, name, _ in made.calls[before:]} & complete.keys()
            assert not again, "what the record knew to be complete ran again"
        await store.aclose()


async def test_a_definition_that_is_lost_or_damaged_in_the_store_comes_back(
    store: HotStore, database: Database
) -> None:
    graph = definition(
        node("a", handler="add", config={"own": 1, "parents": []}),
        node("b", "a", handler="add", config={"own": 1, "parents": ["{{ a.sum }}"]}),
    )
    ids: list[str] = []
    for damage in (None, b"\xff" * 20, b'{"name": "other", "nodes": []}'):
        async with Service(database, store, quick_settings()) as service:  # opens it; nobody works on it yet
            ids.append((await service.start(graph, {}, actor="me")).execution_id)
            await until(lambda: store.execution(ids[-1]), "it to be open")
        key = keys.definition(store.partition_of(ids[-1]), graph.content_hash)
        await (store._link.call("DEL", key) if damage is None else store._link.call("SET", key, damage))
        async with house(store, database) as made:
            await made.ended(ids)


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
        graphs = await submitted(made.service, 20)
        await made.ended(graphs)

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
