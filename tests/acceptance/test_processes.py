"""Roles as real processes, killed, stopped and continued: nothing is lost, nothing is doubled."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.hot.store import HotStore
from tests import ledger as book
from tests.roles import QUICK, Processes, definition, node, quick_settings, until


def noted(ledger: Path, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"ledger": str(ledger), "value": value, **more}


def diamond(ledger: Path) -> Any:
    return definition(
        node("A", config=noted(ledger, 1)),
        node("B", "A", config=noted(ledger, "{{ A.value + 1 }}")),
        node("C", "A", config=noted(ledger, "{{ A.value + 2 }}")),
        node("D", "B", "C", config=noted(ledger, "{{ B.value + C.value }}")),
    )


@pytest.fixture
def engine(store: HotStore) -> Engine:
    return Engine(store, quick_settings())


async def ended(engine: Engine, execution_id: str) -> dict[str, Any]:
    async def over() -> dict[str, Any] | None:
        view = await engine.read(execution_id)
        settled = view["status"] != "RUNNING" and not await engine.under_way(execution_id)
        return view if settled else None

    view = await until(over, f"the end of {execution_id}")
    assert view is not None
    return view


@pytest.mark.parametrize("count", [1, 2])
async def test_orchestrators_and_workers_as_processes(
    cluster: Processes, engine: Engine, ledger: Path, count: int
) -> None:
    cluster.command_line = True  # as users start them, with all that this imports
    for _ in range(count):
        cluster.orchestrator()
        cluster.worker()
    ids = await engine.start_many(diamond(ledger), [{} for _ in range(50)])
    for execution_id in ids:
        view = await ended(engine, execution_id)
        assert view["output"] == {"D": {"value": 5}}
    calls = Counter((call["execution"], call["node"]) for call in book.read(ledger))
    assert calls == Counter({(execution_id, name): 1 for execution_id in ids for name in "ABCD"})


async def test_a_worker_killed_inside_a_handler(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    first = cluster.worker()
    execution_id = await engine.start(definition(node("A", config=noted(ledger, "x", gate=str(gate)))))
    await until(lambda: book.read(ledger), "A runs")
    cluster.worker()
    first.kill()
    gate.touch()
    view = await ended(engine, execution_id)
    assert view["status"] == "COMPLETED"
    one, two = book.read(ledger)
    assert (one["attempt"], two["attempt"]) == (1, 2)
    assert one["pid"] == first.pid != two["pid"]
    assert one["key"] == two["key"]


async def test_a_lost_worker_costs_no_retry_but_three_are_final(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    cluster.orchestrator()
    poison = definition(node("A", config=noted(ledger, gate=str(tmp_path / "never")), retry_config={"max_retries": 0}))
    execution_id = await engine.start(poison)
    for deaths in range(1, 4):
        worker = cluster.worker()
        await until(lambda deaths=deaths: len(book.read(ledger)) == deaths, f"attempt {deaths} runs")
        worker.kill()
    view = await ended(engine, execution_id)
    assert view["status"] == "FAILED"
    assert view["error"]["code"] == "worker_lost"
    assert [call["attempt"] for call in book.read(ledger)] == [1, 2, 3]


async def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_comes_back(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    sleeper = cluster.worker()
    graph = definition(
        node("A", config=noted(ledger, "x", gate=str(gate))), node("B", "A", config=noted(ledger, "{{ A.value }}y"))
    )
    execution_id = await engine.start(graph)
    await until(lambda: book.read(ledger), "A runs")
    sleeper.send(signal.SIGSTOP)
    other = cluster.worker()
    await until(lambda: len(book.read(ledger)) == 2, "A runs again elsewhere")
    gate.touch()
    view = await ended(engine, execution_id)
    sleeper.send(signal.SIGCONT)
    await until(
        lambda: any(line["pid"] == sleeper.pid for line in book.read(ledger, "done") + book.read(ledger, "cancelled")),
        "the sleeper's handler ends",
    )
    again = await engine.start(definition(node("Z", config=noted(ledger))))
    await ended(engine, again)
    assert await engine.read(execution_id) == view
    assert view["output"] == {"B": {"value": "xy"}}
    assert [call["pid"] for call in book.read(ledger) if call["node"] == "A"] == [sleeper.pid, other.pid]
    assert len([call for call in book.read(ledger) if call["node"] == "B"]) == 1


@pytest.mark.parametrize(
    "crash",
    ["BEFORE dispatch 1", "BEFORE dispatch 2", "AFTER dispatch 1"]
    + [f"{when} advance {at}" for when in ("BEFORE", "AFTER") for at in (1, 2)],
)
async def test_an_orchestrator_killed_around_advance_and_dispatch(
    cluster: Processes, engine: Engine, ledger: Path, crash: str
) -> None:
    cluster.worker(WORKER_PLAN_BYTES="0")  # it leaves every step to the orchestrator
    when, call, at = crash.split()
    environment = {f"CRASH_{when}": call, "CRASH_AT": at}
    crashing = cluster.orchestrator("tests.acceptance.crashing_orchestrator", **environment)
    execution_id = await engine.start(diamond(ledger))
    await until(lambda: crashing.process.poll() is not None, "it kills itself")
    assert (await engine.read(execution_id))["status"] == "RUNNING"
    cluster.orchestrator()
    view = await ended(engine, execution_id)
    assert view["output"] == {"D": {"value": 5}}
    assert Counter(call["node"] for call in book.read(ledger)) == dict.fromkeys("ABCD", 1)


@pytest.mark.parametrize(("before", "at"), [("advance", 4), ("advance", 9), ("dispatch", 5), ("dispatch", 10)])
async def test_an_orchestrator_killed_inside_a_sliced_advance(
    cluster: Processes, engine: Engine, before: str, at: int
) -> None:
    names = [f"n{i}" for i in range(10_000)]
    fan = definition(
        node("root", handler="output", config={"x": 1}),
        *(node(name, "root", handler="output", config={}) for name in names),
        node("end", *names, handler="output", config={"sum": "{{ root.x }}"}),
    )
    cluster.worker()
    crashing = cluster.orchestrator("tests.acceptance.crashing_orchestrator", CRASH_BEFORE=before, CRASH_AT=str(at))
    execution_id = await engine.start(fan)
    await until(lambda: crashing.process.poll() is not None, "it kills itself")
    cluster.orchestrator()
    view = await ended(engine, execution_id)
    assert view["status"] == "COMPLETED"
    assert Counter(each["attempt"] for each in view["nodes"]) == {1: 10_002}, "nothing lost, nothing doubled"


async def test_sigterm_finishes_what_runs(cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    worker = cluster.worker()
    graph = definition(node("A", config=noted(ledger, 1, gate=str(gate))), node("B", "A", config=noted(ledger)))
    execution_id = await engine.start(graph)
    await until(lambda: book.read(ledger), "A runs")
    worker.send(signal.SIGTERM)
    await until(lambda: "taking no more work" in cluster.logs(), "it drains")
    gate.touch()
    await until(lambda: worker.process.poll() is not None, "the worker ends")
    assert worker.process.returncode == 0
    assert [line["node"] for line in book.read(ledger, "done")] == ["A"], "A finished, B was not taken"
    cluster.worker()
    view = await ended(engine, execution_id)
    assert [each["attempt"] for each in view["nodes"]] == [1, 1]


async def test_sigterm_gives_back_what_does_not_finish(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    worker = cluster.worker(WORKER_GRACEFUL_SHUTDOWN_TIMEOUT="0.2", WORKER_LEASE_SECONDS="600")
    execution_id = await engine.start(
        definition(node("A", config=noted(ledger, 1, gate=str(gate)), retry_config={"max_retries": 0}))
    )
    await until(lambda: book.read(ledger), "A runs")
    worker.send(signal.SIGTERM)
    await until(lambda: worker.process.poll() is not None, "the worker ends")
    gate.touch()
    cluster.worker()
    view = await ended(engine, execution_id)
    assert view["status"] == "COMPLETED", "given back at once: its lease would have lasted ten minutes"
    assert [call["attempt"] for call in book.read(ledger)] == [1, 2]
    assert len(book.read(ledger, "cancelled")) == 1


async def test_sigterm_ends_a_worker_whose_handler_does_not_listen(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    worker = cluster.worker(WORKER_GRACEFUL_SHUTDOWN_TIMEOUT="0.1", WORKER_LEASE_SECONDS="600")
    execution_id = await engine.start(definition(node("A", handler="deaf", config=noted(ledger, 1, gate=str(gate)))))
    await until(lambda: book.read(ledger), "A runs")
    worker.send(signal.SIGTERM)
    await until(lambda: worker.process.poll() is not None, "the worker ends all the same")
    assert worker.process.returncode == 0
    gate.touch()
    cluster.worker()
    assert (await ended(engine, execution_id))["status"] == "COMPLETED"
    assert [call["attempt"] for call in book.read(ledger)] == [1, 2]


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    cluster.worker()
    cluster.worker()
    execution_id = await engine.start(
        definition(node("A", handler="block_the_loop", config=noted(ledger, 1, gate=str(gate))))
    )
    [call] = await until(lambda: book.read(ledger), "A blocks")
    lease = QUICK["WORKER_LEASE_SECONDS"]
    started = await engine._store.now_ms()

    async def three_leases_later() -> bool:
        return await engine._store.now_ms() > started + 3000 * lease

    await until(three_leases_later)
    assert len(book.read(ledger)) == 1, "nobody else got it: the heartbeat went on"
    gate.touch()
    view = await ended(engine, execution_id)
    assert view["status"] == "COMPLETED"
    assert call["attempt"] == view["nodes"][0]["attempt"] == 1


async def test_a_handler_that_blocks_the_loop_is_ended_by_its_timeout(
    cluster: Processes, engine: Engine, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cluster.orchestrator()
    first = cluster.worker()
    graph = definition(
        node("A", handler="block_the_loop", config=noted(ledger, 1, gate=str(gate)), timeout_seconds=0.2)
    )
    execution_id = await engine.start(graph)
    await until(lambda: book.read(ledger), "A blocks the first worker")
    cluster.worker()
    await until(lambda: len(book.read(ledger)) == 2, "the next attempt runs on the other worker")
    gate.touch()
    assert (await ended(engine, execution_id))["status"] == "COMPLETED"
    assert len({call["pid"] for call in book.read(ledger)}) == 2
    assert book.read(ledger)[0]["pid"] == first.pid
