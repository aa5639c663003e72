"""What the hot store is opened from: the epoch goes to one taker, and a history tells all that still counts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from sqlalchemy import update

from headrace.model.messages import Change
from headrace.record.acceptance import Acceptance, Restart
from headrace.record.database import Database
from headrace.record.openings import NodeHistory, Openings
from headrace.record.readings import Readings
from headrace.record.tables import attempts, executions
from tests.conformance.record.chains import Chain, failure
from tests.conformance.record.rows import definition, history, opened, put, row, started

TAKERS = 20


async def test_one_taker_gets_the_epoch(database: Database) -> None:
    ids = [await started(database) for _ in range(3)]
    wanted = await Openings(database).wanted(ids)
    takers = [Openings(database) for _ in range(TAKERS)]
    answers = await asyncio.gather(
        *(each.take([(one, f"epoch {n}") for one in wanted]) for n, each in enumerate(takers))
    )
    for execution_id in ids:
        (winner,) = [n for n, taken in enumerate(answers) if execution_id in taken]
        stored = await row(database, executions, id=execution_id)
        assert (stored["epoch"], stored["last_event"]) == (f"epoch {winner}", "")


async def test_an_epoch_is_not_taken_from_what_has_changed_meanwhile(database: Database) -> None:
    openings = Openings(database)
    for change in ({"status": "COMPLETED"}, {"run": 2}, {"epoch": "other"}):
        execution_id = await started(database)
        (wanted,) = await openings.wanted([execution_id])
        async with database.write() as connection:
            await connection.execute(update(executions).where(executions.c.id == execution_id).values(change))
        before = await row(database, executions, id=execution_id)
        assert await openings.take([(wanted, "mine")]) == {}
        assert await row(database, executions, id=execution_id) == before


async def test_what_should_run_is_listed_by_partition_and_in_pages(database: Database) -> None:
    openings = Openings(database)
    ids = [await started(database) for _ in range(7)]
    elsewhere, ended, pending = ids[1], ids[3], ids[5]
    for execution_id, change in (
        (elsewhere, {"partition": 1}),
        (ended, {"status": "FAILED"}),
        (pending, {"status": "PENDING"}),
    ):
        async with database.write() as connection:
            await connection.execute(update(executions).where(executions.c.id == execution_id).values(change))
    await Acceptance(database).cancel(ids[0], "ann")
    found, after = [], ""
    while page := await openings.running(0, 2, after, 2):
        assert len(page) <= 2
        found += page
        after = page[-1].execution_id
    assert [one.execution_id for one in found] == [ids[0], ids[2], ids[4], ids[6]]
    assert [one.is_cancelled for one in found] == [True, False, False, False]
    assert [one.execution_id for one in await openings.running(1, 2)] == [elsewhere]
    assert {one.execution_id for one in await openings.wanted(ids)} == {ids[0], elsewhere, ids[2], ids[4], ids[6]}


async def test_many_are_taken_and_read_together(database: Database) -> None:
    """More than go into one statement."""
    wanted_definition = definition()
    first = await started(database, wanted_definition)
    pattern = await row(database, executions, id=first)
    ids = [f"x{n:04}" for n in range(1200)]
    await put(database, executions, *(pattern | {"id": each} for each in ids))
    openings = Openings(database)
    wanted = await openings.wanted(ids)
    assert await openings.take([(one, "e") for one in wanted]) == dict.fromkeys(ids, "{}")
    chosen = [
        attempt | {"execution_id": each} for each in ids[::3] for attempt in _attempts(700 if each == ids[3] else 2)
    ]
    await put(database, attempts, *chosen)
    async with aclosing(openings.histories(dict.fromkeys(ids, 1))) as histories:
        found = [(execution_id, len(nodes)) async for execution_id, nodes in histories]
    assert len(found) == len(ids)
    assert dict(found) == dict.fromkeys(ids, 0) | dict.fromkeys(ids[::3], 2) | {ids[3]: 700}
    texts = await openings.definitions([one.definition_id for one in wanted])
    assert texts == {pattern["definition_id"]: wanted_definition.to_json()}


def _attempts(count: int) -> list[dict[str, Any]]:
    return [{"node": f"n{n}", "run": 1, "attempt": 1, "state": "COMPLETED", "output": "1"} for n in range(count)]


@pytest.mark.parametrize("code", ["error", "worker_lost"])
async def test_a_history_counts_failures_and_lost_leases_of_this_run(database: Database, code: str) -> None:
    execution_id = await started(database)
    await opened(database, execution_id, "e1")
    chain = Chain(database, execution_id, "e1")
    failed = failure(code, retryable=True)
    await chain.add(Change("a", "R", 1, "worker 1"))
    await chain.add(Change("a", "T", 1, failed, 99), Change("b", "C", 1, '{"x":1}'), at_ms=50)
    await chain.add(Change("a", "R", 2, "worker 2"))
    await chain.add(Change("a", "T", 2, failed))
    await chain.add(Change("a", "R", 3, "worker 3"), Change("c", "Q", 1), Change("d", "S", 0, "x"), at_ms=70)
    nodes = await history(database, execution_id, 1)
    lost = 2 if code == "worker_lost" else 0
    assert nodes["a"] == NodeHistory("PENDING", 3, retries=2 - lost, lost=lost, started_ms=70, worker="worker 3")
    assert nodes["b"] == NodeHistory("COMPLETED", 1, finished_ms=50, output='{"x":1}')
    assert nodes["c"] == NodeHistory("PENDING", 1, queued_ms=70)
    assert nodes["d"] == NodeHistory("SKIPPED", 0, finished_ms=70, owner="x")


async def test_a_history_has_the_completions_of_all_runs_and_the_failures_of_this_one(database: Database) -> None:
    execution_id = await started(database)
    await opened(database, execution_id, "e1")
    chain = Chain(database, execution_id, "e1")
    fatal = failure("fatal")
    await chain.add(Change("first", "C", 2, "1"), Change("again", "T", 1, failure("error", retryable=True)))
    await chain.add(Change("again", "F", 2, fatal), status="F", error=fatal)
    await Acceptance(database).retry(execution_id, "ann")
    await chain.add(Change("late", "C", 1, "2"))  # it was still running when its run failed
    await opened(database, execution_id, "e2")
    later = Chain(database, execution_id, "e2", run=2)
    await later.add(Change("other", "F", 1, fatal), Change("third", "C", 1, "3"))
    nodes = await history(database, execution_id, 2)
    assert {name: (node.state, node.attempt, node.output) for name, node in nodes.items()} == {
        "first": ("COMPLETED", 2, "1"),
        "late": ("COMPLETED", 1, "2"),
        "other": ("FAILED", 1, None),
        "third": ("COMPLETED", 1, "3"),
    }
    assert nodes["other"].error == fatal


async def test_a_history_has_no_completion_from_before_a_restart(database: Database) -> None:
    """Whenever it was archived, and in every run that follows."""
    execution_id = await started(database)
    acceptance, readings = Acceptance(database), Readings(database)
    await opened(database, execution_id, "e1")
    chain = Chain(database, execution_id, "e1")
    fatal = failure("fatal")
    await chain.add(Change("a", "C", 1, '"a1"'), Change("b", "C", 1, '"b1"'), Change("d", "F", 1, fatal), status="F")
    await acceptance.retry(execution_id, "ann", restart=Restart(["b"], ["b", "c", "d"]))
    await chain.add(Change("c", "C", 1, '"c1"'))  # it was still running when its run failed
    assert await outputs_for(database, execution_id, 2) == {"a": '"a1"'}
    assert set(await readings.latest_attempts(execution_id, 2)) == {"a"}
    await opened(database, execution_id, "e2")
    assert (await row(database, executions))["done"] == 1
    chain = Chain(database, execution_id, "e2", run=2)
    await chain.add(Change("b", "C", 1, '"b2"'), Change("c", "F", 1, fatal), status="F", error=fatal)
    assert await outputs_for(database, execution_id, 2) == {"a": '"a1"', "b": '"b2"'}

    await acceptance.retry(execution_id, "ann")
    assert await outputs_for(database, execution_id, 3) == {"a": '"a1"', "b": '"b2"'}
    await opened(database, execution_id, "e3")
    assert (await row(database, executions))["done"] == 2
    await Chain(database, execution_id, "e3", run=3).add(
        Change("c", "C", 1, '"c3"'), Change("d", "C", 1, '"d3"'), status="C"
    )
    assert await readings.outputs(execution_id, ["a", "b", "c", "d"]) == {
        "a": '"a1"', "b": '"b2"', "c": '"c3"', "d": '"d3"',
    }  # fmt: skip

    await acceptance.retry(execution_id, "ann", restart=Restart(["a"], ["a", "b", "c", "d"]))
    assert await history(database, execution_id, 4) == {}
    assert await readings.outputs(execution_id, ["a", "b", "c", "d"]) == {}
    await opened(database, execution_id, "e4")
    stored = await row(database, executions)
    assert (stored["done"], stored["failed"]) == (0, 0)


async def outputs_for(database: Database, execution_id: str, run: int) -> dict[str, str]:
    """What the next opening gives, which must be what is shown."""
    nodes = await history(database, execution_id, run)
    given = {name: node.output for name, node in nodes.items() if node.output is not None}
    assert await Readings(database).outputs(execution_id, ["a", "b", "c", "d"]) == given
    return given
