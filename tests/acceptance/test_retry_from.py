"""Retry from a node: what is asked for, and all that comes after it, runs again; nothing else does, whatever is lost.

An output names its node, the run that made it, and what it was made from, so that one that should not count shows.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import Fatal, handler
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.errors import Conflict, ExecutionNotFound, InvalidRequest
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.record.acceptance import Acceptance, Restart
from headrace.record.database import Database
from headrace.record.readings import Readings
from headrace.worker.registry import Context, Registry
from headrace.worker.worker import Worker
from tests.roles import definition, node, quick_settings, until

pytestmark = pytest.mark.parametrize("partitions", [1], indirect=True)

PARENTS = {"a": "", "b": "a", "c": "a", "d": "bc"}  # a diamond


class House:
    """`calls` are the effects: execution, run, node, attempt. What is in `broken` fails, what is in `held` waits."""

    def __init__(self, database: Database, service: Service) -> None:
        self.service, self.readings = service, Readings(database)
        self.calls: list[tuple[str, int, str, int]] = []
        self.keys: set[str] = set()
        self.broken: set[str] = set()
        self.held: set[str] = set()

    def registry(self) -> Registry:
        @handler("tell")
        async def tell(config: dict[str, Any], ctx: Context) -> dict[str, str]:
            self.calls.append((ctx.execution_id, ctx.run, ctx.node_id, ctx.attempt))
            self.keys.add(ctx.idempotency_key)
            while ctx.node_id in self.held:
                await asyncio.sleep(0.01)
            if ctx.node_id in self.broken:
                raise Fatal("broken")
            return {"text": told(ctx.node_id, ctx.run, config["parents"])}

        registry = Registry()
        registry.add(tell)
        return registry

    async def start(self, graph: Definition) -> str:
        return (await self.service.start(graph, None, actor="test")).execution_id

    async def retry(self, execution_id: str, *nodes: str) -> int:
        return await self.service.retry(execution_id, actor="test", from_nodes=nodes)

    async def ended(self, execution_id: str, status: str = "COMPLETED") -> dict[str, Any]:
        async def over() -> dict[str, Any] | None:
            stored = await self.readings.execution(execution_id)
            assert stored is not None
            return None if stored.status == "RUNNING" else await self.service.read(execution_id)

        found = await until(over, f"the end of {execution_id}")
        assert found and found["status"] == status
        return found

    async def knows(self, execution_id: str, name: str, run: int, state: str = "COMPLETED") -> None:
        """Until SQL has it in this state."""

        async def known() -> bool:
            latest = await self.readings.latest_attempts(execution_id, run)
            return name in latest and (latest[name].state, latest[name].run) == (state, run)

        await until(known, f"SQL to have {name} of run {run} {state}")

    def ran(self, run: int, execution_id: str = "") -> Counter[str]:
        return Counter(name for each, of, name, _ in self.calls if of == run and execution_id in ("", each))


def told(name: str, run: int, parents: Sequence[str]) -> str:
    return f"{name}{run}({','.join(parents)})"


def telling(parents: Mapping[str, Collection[str]], **fields: Any) -> Definition:
    reads = {name: "{{ [" + ", ".join(f"{each}.text" for each in parents[name]) + "] }}" for name in parents}
    nodes = [node(name, *parents[name], handler="tell", config={"parents": reads[name]}) for name in parents]
    return definition(*nodes, **fields)


DIAMOND = telling(PARENTS)


@asynccontextmanager
async def house(store: HotStore, database: Database) -> AsyncIterator[House]:
    settings = quick_settings(ORCHESTRATOR_RECONCILE_INTERVAL=0.3, ORCHESTRATOR_ARCHIVE_INTERVAL=0.02)
    service = Service(database, store, settings)
    made, stop = House(database, service), asyncio.Event()
    async with service, asyncio.TaskGroup() as group:
        group.create_task(orchestrate(store, settings, "o", stop, Recording(database, store, settings, "o")))
        group.create_task(Worker(store, made.registry(), settings, "w").run(stop))
        try:
            yield made
        finally:
            made.held.clear()
            stop.set()


async def test_after_completed(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        execution_id = await made.start(DIAMOND)
        first = await made.ended(execution_id)
        assert first["output"] == {"d": {"text": "d1(b1(a1()),c1(a1()))"}}
        with pytest.raises(Conflict):
            await made.retry(execution_id)
        assert await made.retry(execution_id, "b") == 2
        again = await made.ended(execution_id)
        assert (again["run"], again["output"]) == (2, {"d": {"text": "d2(b2(a1()),c1(a1()))"}})
        assert [each["status"] for each in again["nodes"]] == ["COMPLETED"] * 4
        assert made.ran(2) == {"b": 1, "d": 1}
        assert made.keys == {f"{execution_id}:1:{name}" for name in "abcd"} | {f"{execution_id}:2:{n}" for n in "bd"}
        b = await made.service.node(execution_id, "b")
        assert b["output"] == {"text": "b2(a1())"} and b["attempt"] == 1
        assert [(each["run"], each["attempt"], each["status"]) for each in b["attempts"]] == [
            (1, 1, "COMPLETED"), (2, 1, "COMPLETED"),
        ]  # fmt: skip
        for name, before in zip("ac", (first["nodes"][0], first["nodes"][2]), strict=True):
            assert next(each for each in again["nodes"] if each["id"] == name) == before  # untouched


@pytest.mark.parametrize("on_failure", ["fail_fast", "continue"])
async def test_after_failed_and_the_retry_of_the_retry(store: HotStore, database: Database, on_failure: str) -> None:
    async with house(store, database) as made:
        made.broken, made.held = {"c"}, {"c"}
        execution_id = await made.start(telling(PARENTS, on_failure=on_failure))
        await made.knows(execution_id, "b", 1)
        made.held = set()
        await made.ended(execution_id, "FAILED")
        made.broken = {"d"}
        await made.retry(execution_id, "b")  # which is complete; c is not, so it runs as in every retry
        failed = await made.ended(execution_id, "FAILED")
        assert failed["error"]["node"] == "d"
        made.broken = set()
        await made.retry(execution_id)  # what run 2 has completed is complete
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d3(b2(a1()),c2(a1()))"}}
        await made.retry(execution_id, "c", "b")
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d4(b4(a1()),c4(a1()))"}}
        await made.retry(execution_id, "a")
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d5(b5(a5()),c5(a5()))"}}
        ran = [made.ran(run) for run in range(1, 6)]
        assert ran == [Counter("abc"), Counter("bcd"), Counter("d"), Counter("bcd"), Counter("abcd")]


async def test_after_cancelled(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        made.held = {"d"}
        execution_id = await made.start(DIAMOND)
        await made.knows(execution_id, "d", 1, "RUNNING")
        await made.service.cancel(execution_id, actor="test")
        await made.ended(execution_id, "CANCELLED")
        made.held = set()
        await made.retry(execution_id, "c")
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d2(b1(a1()),c2(a1()))"}}


async def test_the_store_is_lost_before_it_hears_of_it(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        execution_id = await made.start(DIAMOND)
        await made.ended(execution_id)
        await Acceptance(database).retry(execution_id, "test", restart=Restart(["b"], ["b", "d"]))
        await store._link.call("FLUSHALL")
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d2(b2(a1()),c1(a1()))"}}
        assert made.ran(2) == {"b": 1, "d": 1}


@pytest.mark.parametrize(("held", "again"), [("b", {"b": 2, "d": 1}), ("d", {"b": 1, "d": 2})])
async def test_the_store_is_lost_while_the_new_run_is_under_way(
    store: HotStore, database: Database, held: str, again: dict[str, int]
) -> None:
    """What the new run has completed again is complete; the rest of it runs, and what it was not about does not."""
    async with house(store, database) as made:
        execution_id = await made.start(DIAMOND)
        await made.ended(execution_id)
        made.held = {held}
        await made.retry(execution_id, "b")
        await made.knows(execution_id, held, 2, "RUNNING")
        await store._link.call("FLUSHALL")
        await until(lambda: made.ran(2)[held] == 2, f"{held} to be tried again")
        made.held = set()
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d2(b2(a1()),c1(a1()))"}}
        assert made.ran(2) == again
        assert sorted(attempt for _, run, name, attempt in made.calls if (run, name) == (2, held)) == [1, 2]


async def test_results_of_the_earlier_run_that_come_late_do_not_count(store: HotStore, database: Database) -> None:
    """The next run waits for what still runs of a FAILED one. Until then, what will run again is not shown as done."""
    async with house(store, database) as made:
        made.broken, made.held = {"c"}, {"b"}
        execution_id = await made.start(DIAMOND)
        await made.ended(execution_id, "FAILED")
        made.broken = set()
        await made.retry(execution_id, "a")
        a = await made.service.node(execution_id, "a")
        assert (a["status"], a["output"]) == ("PENDING", None)
        assert (await made.service.node(execution_id, "b"))["config"] is None
        made.held = set()
        assert (await made.ended(execution_id))["output"] == {"d": {"text": "d2(b2(a2()),c2(a2()))"}}
        assert made.ran(2) == Counter("abcd")
        b = await made.service.node(execution_id, "b")
        assert [(each["run"], each["status"]) for each in b["attempts"]] == [(1, "COMPLETED"), (2, "COMPLETED")]


async def test_what_cannot_be_asked_for(store: HotStore, database: Database) -> None:
    async with house(store, database) as made:
        made.held = {"b"}
        execution_id = await made.start(DIAMOND)
        with pytest.raises(InvalidRequest, match="there is no node x; there is no node A: did you mean a"):
            await made.retry(execution_id, "a", "x", "A")
        with pytest.raises(Conflict, match="is RUNNING, not COMPLETED, FAILED or CANCELLED"):
            await made.retry(execution_id, "a")
        with pytest.raises(ExecutionNotFound):
            await made.retry("nobody", "a")
        made.held = set()
        assert (await made.ended(execution_id))["run"] == 1


async def test_many_at_random_with_losses(store: HotStore, database: Database) -> None:
    """Graphs, failures and nodes to begin from by chance; the store is wiped in the middle of each round."""
    chance = random.Random(20)
    async with house(store, database) as made:
        graphs = [random_graph(chance) for _ in range(10)]
        made.broken = {"n2"}
        ids = {await made.start(telling(parents, on_failure="continue")): parents for parents in graphs}
        complete: dict[str, dict[str, str]] = {each: {} for each in ids}
        wanted = {each: set(parents) for each, parents in ids.items()}
        for run in range(1, 5):
            if run > 1:
                made.broken = {f"n{chance.randrange(7)}"} if run < 4 else set()
                wanted = {each: await retried(made, chance, each, ids[each], complete[each]) for each in ids}
            await until(lambda run=run: len(made.ran(run)), "something to run")
            await store._link.call("FLUSHALL")
            for each, parents in ids.items():
                ended = await made.ended(each, "FAILED" if made.broken & wanted[each] else "COMPLETED")
                assert ended["run"] == run
                assert set(made.ran(run, each)) <= wanted[each]
                rest = set(parents) - wanted[each]
                found = await outputs(made, each, parents)
                assert {name: found[name] for name in rest} == {name: complete[each][name] for name in rest}
                for name in found.keys() - rest:
                    assert found[name] == told(name, run, [found[parent] for parent in parents[name]])
                complete[each] = found
        assert all(set(found) == set(ids[each]) for each, found in complete.items())


def random_graph(chance: random.Random) -> dict[str, list[str]]:
    graph: dict[str, list[str]] = {}
    for name in [f"n{i}" for i in range(chance.randint(2, 7))]:
        graph[name] = sorted(chance.sample(sorted(graph), min(len(graph), chance.randint(0, 3))))
    return graph


async def retried(
    made: House, chance: random.Random, execution_id: str, parents: Mapping[str, list[str]], complete: Collection[str]
) -> set[str]:
    """What is to run now."""
    asked = chance.sample(sorted(parents), chance.randint(1, 2))
    await made.retry(execution_id, *asked)
    return below(parents, asked) | (set(parents) - set(complete))


def below(parents: Mapping[str, list[str]], asked: Collection[str]) -> set[str]:
    found = set(asked)
    for name, above in parents.items():  # parents come first
        if found & set(above):
            found.add(name)
    return found


async def outputs(made: House, execution_id: str, names: Collection[str]) -> dict[str, str]:
    shown = {name: (await made.service.node(execution_id, name))["output"] for name in names}
    return {name: output["text"] for name, output in shown.items() if output is not None}
