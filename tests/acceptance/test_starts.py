"""From a start that is asked for to an execution that runs: one transaction, and nothing lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from headrace.engine import recovery
from headrace.engine.opener import Opener
from headrace.engine.service import Service
from headrace.hot.store import HotStore
from headrace.model.state import ExecutionState
from headrace.record.acceptance import Acceptance, Accepted, Idempotency, KeyReused, Submission
from headrace.record.database import Database
from headrace.record.openings import Openings, Wanted
from headrace.record.tables import executions
from tests.conformance.record.rows import row
from tests.house import check, house, layered, submitted
from tests.roles import quick_settings, until


async def running_as_recorded(store: HotStore, database: Database, ids: Iterable[str]) -> None:
    async def all_run() -> bool:
        found = await store.executions(list(ids))
        return all(one is not None and one.status == ExecutionState.RUNNING for one in found)

    await until(all_run, "all to run")
    for execution_id in ids:
        stored, there = await row(database, executions, id=execution_id), await store.execution(execution_id)
        assert there is not None
        assert stored["epoch"] == there.epoch


async def test_the_transaction_that_accepts_a_start_takes_its_epoch(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("SQL was asked again")

    monkeypatch.setattr(Openings, "wanted", never)
    monkeypatch.setattr(Openings, "take", never)
    async with Service(database, store, quick_settings()) as service:
        graphs = await submitted(service, 50)
        await running_as_recorded(store, database, graphs)


async def test_what_was_accepted_is_opened_before_the_service_ends(store: HotStore, database: Database) -> None:
    async with Service(database, store, quick_settings()) as service:
        graphs = await submitted(service, 300)
    found = await store.executions(list(graphs))
    assert {one.status if one else None for one in found} == {ExecutionState.RUNNING}


async def test_a_place_that_is_lost_before_it_is_opened_is_taken_anew(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_reserved = Opener.open_reserved

    async def wiped(self: Opener, fresh: Mapping[str, tuple[Wanted, str]], inputs: Mapping[str, str]) -> None:
        await store._link.call("FLUSHALL")
        await open_reserved(self, fresh, inputs)

    monkeypatch.setattr(Opener, "open_reserved", wiped)
    async with Service(database, store, quick_settings()) as service:
        graphs = await submitted(service, 3)
        await running_as_recorded(store, database, graphs)


async def test_who_dies_between_its_commit_and_the_opening_is_not_waited_for(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "OPENED_WITHIN_SECONDS", 0.1)

    async def dies(*_: object) -> None:
        """As if the process had: nobody opens these."""

    with monkeypatch.context() as patched:
        patched.setattr(Opener, "open_reserved", dies)
        async with Service(database, store, quick_settings()) as service:
            graphs = await submitted(service, 20)
    async with house(store, database) as made:
        await made.ended(graphs)
        await check(made, graphs)
    assert len(made.calls) == len(set(made.calls))


async def test_one_that_sql_refuses_does_not_hold_up_the_others(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Acceptance.submit

    async def refuses(
        self: Acceptance, submissions: Sequence[Submission], epochs: Mapping[str, str]
    ) -> list[Accepted | KeyReused]:
        if any(one.actor == "refused" for one in submissions):
            raise ValueError("not this one")
        return await submit(self, submissions, epochs)

    monkeypatch.setattr(Acceptance, "submit", refuses)
    async with Service(database, store, quick_settings()) as service:
        actors = ["good", "refused", "good", "good"]
        started = [service.start(layered(1), None, actor=actor) for actor in actors]
        answers = await asyncio.gather(*started, return_exceptions=True)
        good = [each.execution_id for each in answers if not isinstance(each, BaseException)]
        assert len(good) == 3
        assert isinstance(answers[1], ValueError)
        await running_as_recorded(store, database, good)


@pytest.mark.parametrize("it_reserves", [False, True], ids=["before it reserves", "after it has reserved"])
async def test_a_store_that_hangs_is_waited_for_once_and_shortly(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch, it_reserves: bool
) -> None:
    """And nobody has to come by later, though nobody knows whether there is a reservation."""
    asked, reserve = [], Opener.reserve

    async def hangs(self: Opener, tokens: Mapping[str, str]) -> dict[str, str]:
        asked.append(list(tokens))
        if it_reserves:
            await reserve(self, tokens)
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(Opener, "reserve", hangs)
    async with Service(database, store, quick_settings()) as service:
        first = await service.start(layered(1), None, actor="test")
        second = await service.start(layered(2), None, actor="test")
        assert asked == [[first.execution_id]]
        await running_as_recorded(store, database, [first.execution_id, second.execution_id])


async def test_a_repeated_start_leaves_nothing_that_stays(store: HotStore, database: Database) -> None:
    """A place was reserved for it, before SQL told that it is a repetition."""
    key = Idempotency("owner", "key", "hash")
    async with Service(database, store, quick_settings()) as service:
        first = await service.start(layered(1), None, actor="test", idempotency=key)
        again = await service.start(layered(1), None, actor="test", idempotency=key)
        assert (again.execution_id, again.is_new) == (first.execution_id, False)
        await running_as_recorded(store, database, [first.execution_id])
    places = await store._link.call("KEYS", "hr:*:x:*")
    (other,) = (name for name in places if not name.decode().endswith(first.execution_id))
    assert await store._link.call("PTTL", other) > 0


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_what_is_cancelled_on_its_way_into_the_store_does_not_run(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_reserved, asked = Opener.open_reserved, asyncio.Event()

    async def after_the_cancel(
        self: Opener, fresh: Mapping[str, tuple[Wanted, str]], inputs: Mapping[str, str]
    ) -> None:
        await asked.wait()
        await open_reserved(self, fresh, inputs)

    async def opening(execution_id: str, run: int) -> str:
        asked.set()
        return await cancel(execution_id, run)

    cancel = store.cancel
    monkeypatch.setattr(Opener, "open_reserved", after_the_cancel)
    monkeypatch.setattr(store, "cancel", opening)
    async with Service(database, store, quick_settings()) as service:
        execution_id = (await service.start(layered(1), None, actor="test")).execution_id
        await service.cancel(execution_id, actor="test")
        there = await store.execution(execution_id)
        assert there is not None
        assert there.status == ExecutionState.CANCELLED
