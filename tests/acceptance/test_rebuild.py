"""A thousand executions, and the hot store is lost in their middle: all of them end with the outputs that they should
have, and nothing that SQL knew to be complete runs again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import update

from headrace.embedded import EmbeddedValkey
from headrace.engine import recovery
from headrace.engine.opener import Opener
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Reservation
from headrace.model.state import ExecutionState
from headrace.record import layout
from headrace.record.database import Database
from headrace.record.openings import Openings, Wanted
from headrace.record.tables import executions, partitions
from tests.conformance.record.rows import row, rows
from tests.house import House, check, house, submitted
from tests.roles import definition, node, quick_settings, until

COUNT = 1000

Lose = Callable[[], Awaitable[object]]


@pytest.fixture(autouse=True)
def reservations_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody opens would be gone after half a minute; here it is in the way until somebody sees to it."""
    monkeypatch.setattr("headrace.hot.functions.RESERVATION_MS", 3_600_000)


async def lost_in_the_middle(made: House, lose: Lose, losses: int = 1) -> bool:
    """Whether anything ran again that SQL had when the store was lost."""
    graphs = await submitted(made.service, COUNT)
    nodes = sum(len(graph.nodes) for graph in graphs.values())
    known: list[tuple[int, set[tuple[str, str]]]] = []  # how many calls there had been, and what SQL had, at each loss
    for number in range(1, losses + 1):
        while len(complete := set(await made.outputs())) < nodes * number / (losses + 2):
            await asyncio.sleep(0.05)
        known.append((len(made.calls), complete))
        await lose()
    assert (await made.statuses(graphs))["RUNNING"] > COUNT / 10
    await made.ended(graphs)
    await check(made, graphs)
    return any(
        complete & {(execution_id, node) for execution_id, _, node, _ in made.calls[before:]}
        for before, complete in known
    )


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 3), ("postgresql", 1)], indirect=True)
async def test_flushed_twice(store: HotStore, database: Database) -> None:
    async with house(store, database, orchestrators=2) as made:
        assert not await lost_in_the_middle(made, lambda: store._link.call("FLUSHALL"), losses=2)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("cut_at", [0, 0.6], ids=["empty", "cut short"])
async def test_killed_and_back_with_less(tmp_path: Path, database: Database, cut_at: float) -> None:
    with EmbeddedValkey(tmp_path / "valkey") as server:
        store = HotStore(server.url)
        await store.prepare()

        def lose() -> None:
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
            cut(server.folder / "appendonlydir", cut_at)
            server.start()

        async with house(store, database) as made:
            ran_again = await lost_in_the_middle(made, lambda: asyncio.to_thread(lose))
        assert not ran_again
        assert server.set_aside is None
        await store.aclose()


def cut(folder: Path, share: float) -> None:
    """At whatever byte that is; nothing left of it: a new server."""
    if share:
        (last,) = folder.glob("*.incr.aof")
        os.truncate(last, round(last.stat().st_size * share))
    else:
        shutil.rmtree(folder)


class Counting(Openings):
    """Counts the compare-and-sets that are won, by execution."""

    won: ClassVar[Counter[str]] = Counter()

    async def take(self, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
        taken = await super().take(changes)
        self.won.update(list(taken))
        return taken


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1), ("postgresql", 3)], indirect=True)
async def test_of_many_that_start_at_once_one_opens_each_execution(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of eight orchestrators on an empty store, and all eight reconcile without waiting for their turn."""
    monkeypatch.setattr("headrace.engine.recording.Openings", Counting)
    Counting.won.clear()
    graphs = await accepted(store, database, 300)
    settings = quick_settings(ORCHESTRATOR_RECONCILE_INTERVAL=0.3, ORCHESTRATOR_ARCHIVE_INTERVAL=0.02)
    eight = [Recording(database, store, settings, f"o{number}") for number in range(8)]
    for partition in range(store.partitions):
        await asyncio.gather(*(each.reconciler.reconcile(partition) for each in eight))
    assert Counting.won == dict.fromkeys(graphs, 1)
    async with house(store, database) as made, asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        for number, recording in enumerate(eight):
            group.create_task(orchestrate(store, settings, f"o{number}", stop, recording))
        await made.ended(graphs)
        await check(made, graphs)
        stop.set()
    assert Counting.won == dict.fromkeys(graphs, 1)
    assert len(made.calls) == sum(len(graph.nodes) for graph in graphs.values())


async def accepted(store: HotStore, database: Database, count: int) -> dict[str, Definition]:
    """Executions that were opened, and that the store has lost since."""
    async with Service(database, store, quick_settings()) as service:
        graphs = await submitted(service, count)
        await until(lambda: _opened(database), "all to be opened")
    await store._link.call("FLUSHALL")
    return graphs


async def _opened(database: Database) -> bool:
    return all(each["epoch"] for each in await rows(database, executions))


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_whoever_has_the_epoch_opens_though_the_store_was_wiped_and_another_has_reserved(
    store: HotStore, database: Database
) -> None:
    class Wiped(Openings):
        is_wiped = False

        async def take(self, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
            taken = await super().take(changes)
            if self.is_wiped:
                return taken
            self.is_wiped = True
            await store._link.call("FLUSHALL")
            other = [Reservation(one.execution_id, "other", "", "", one.run, again=False) for one, _ in changes[1:]]
            assert await store.reserve(0, other, definition_ttl_seconds=60) == ["reserved"] * len(other)
            return taken

    graphs = await accepted(store, database, 3)
    assert await Opener(store, Wiped(database), quick_settings()).open(dict.fromkeys(graphs, "")) == 3
    await open_as_recorded(store, database, graphs)


async def open_as_recorded(store: HotStore, database: Database, graphs: Iterable[str]) -> None:
    for execution_id in graphs:
        stored, there = await row(database, executions, id=execution_id), await store.execution(execution_id)
        assert there is not None
        assert (there.status, there.epoch) == (ExecutionState.RUNNING, stored["epoch"])


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_of_two_openers_the_one_whose_epoch_was_taken_over_opens_nothing(
    store: HotStore, database: Database
) -> None:
    """The store is wiped behind the first one's back, and a second one takes its epoch: each turn of theirs counts."""
    taken, passed = asyncio.Event(), asyncio.Event()

    class Second(Openings):
        async def take(self, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
            result = await super().take(changes)
            taken.set()
            await passed.wait()
            return result

    class First(Openings):
        second: asyncio.Task[int] | None = None

        async def take(self, changes: Sequence[tuple[Wanted, str]]) -> dict[str, str]:
            result = await super().take(changes)
            if self.second is None:
                await store._link.call("FLUSHALL")
                other = Opener(store, Second(database), quick_settings())
                self.second = asyncio.create_task(other.open(dict.fromkeys(graphs, "")))
                await taken.wait()
            return result

    graphs = await accepted(store, database, 3)
    first = First(database)
    await Opener(store, first, quick_settings()).open(dict.fromkeys(graphs, ""))
    passed.set()
    assert first.second is not None
    assert await first.second == 3
    await open_as_recorded(store, database, graphs)


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_an_opener_that_died_after_it_took_the_epoch_is_not_waited_for(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reservation is still there."""
    monkeypatch.setattr(recovery, "OPENED_WITHIN_SECONDS", 0.1)

    async def dies(*_: object) -> None:
        raise StoreUnavailable("just now")

    with monkeypatch.context() as patched:
        patched.setattr(HotStore, "open", dies)
        async with Service(database, store, quick_settings()) as service:
            graphs = await submitted(service, 3)
            await until(lambda: _opened(database), "the epochs to be taken")
    async with house(store, database) as made:
        await made.ended(graphs)
        await check(made, graphs)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_what_was_accepted_with_more_partitions_is_opened_with_fewer(valkey_url: str, database: Database) -> None:
    """As docs/operations.md tells an operator to change their number."""
    before = HotStore(valkey_url, partitions=4)
    await before._link.call("FLUSHALL")
    await layout.agree(database, 4)
    graphs = await accepted(before, database, 40)
    assert len({each["partition"] for each in await rows(database, executions)}) == 4
    await before.aclose()
    async with database.write() as connection:
        await connection.execute(partitions.delete())
    store = HotStore(valkey_url, partitions=2)
    await store.prepare()
    await layout.agree(database, 2)
    async with house(store, database) as made:
        await made.ended(graphs)
        await check(made, graphs)
    await store.aclose()


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_a_run_that_is_opened_again_began_when_it_began(store: HotStore, database: Database) -> None:
    """So its deadline does not begin anew: it is long over here."""
    graph = definition(node("a", handler="nobody", config={}), timeout_seconds=3600)
    async with house(store, database) as made:
        execution_id = (await made.service.start(graph, None, actor="test")).execution_id
        await until(lambda: _began(database), "its start")
        async with database.write() as connection:
            await connection.execute(update(executions).values(started_ms=1000))
        await store._link.call("FLUSHALL")
        await made.ended([execution_id], "FAILED")
        stored = await row(database, executions)
        assert stored["started_ms"] == 1000
        await made.service.retry(execution_id, actor="test")
        await until(lambda: _began(database), "the start of the next run")
        assert (await row(database, executions))["started_ms"] > stored["finished_ms"]


async def _began(database: Database) -> bool:
    return bool((await row(database, executions))["started_ms"])
