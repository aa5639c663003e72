"""A start is reserved in the hot store before it is committed, and its answer never depends on that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.engine import submissions
from headrace.engine.opener import Opener
from headrace.engine.service import Service
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import OpenSlice
from headrace.model.state import ExecutionState
from headrace.record.acceptance import Acceptance
from headrace.record.database import Database
from headrace.record.openings import Openings
from headrace.record.tables import executions
from tests.conformance.record.rows import row, rows
from tests.house import check, house, submitted
from tests.roles import quick_settings, until

pytestmark = pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1), ("postgresql", 3)], indirect=True)


async def is_open(store: HotStore, database: Database, execution_id: str) -> bool:
    """Under the epoch that the record has."""
    there, stored = await store.execution(execution_id), await row(database, executions, id=execution_id)
    return there is not None and (there.status, there.epoch) == (ExecutionState.RUNNING, stored["epoch"])


async def test_the_commit_brings_the_epoch_and_nothing_more_is_asked_of_sql(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        pytest.fail("the commit had all that is needed")

    monkeypatch.setattr(Openings, "wanted", asked)
    monkeypatch.setattr(Openings, "take", asked)
    async with Service(database, store, quick_settings()) as service:
        for execution_id in await submitted(service, 30):
            stored = await row(database, executions, id=execution_id)
            assert (stored["status"], bool(stored["epoch"])) == ("RUNNING", True)
            await until(lambda one=execution_id: is_open(store, database, one), "it to be open")  # type: ignore[misc]
            there = await store.execution(execution_id)
            assert there is not None and there.created_ms == stored["created_ms"]


@pytest.mark.parametrize("is_silent", [True, False], ids=["no answer", "away"])
async def test_without_an_answer_of_the_store_a_start_is_accepted(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """And those that come in the next seconds do not even ask."""
    asked, over = 0, asyncio.Event()

    async def no_answer(*_: object) -> dict[str, str]:
        nonlocal asked
        asked += 1
        if is_silent:
            await over.wait()
        raise StoreUnavailable("away")

    async def not_now(*_: object) -> int:
        raise StoreUnavailable("away")

    monkeypatch.setattr(submissions, "PAUSE_SECONDS", 3600.0)
    with monkeypatch.context() as patched:
        patched.setattr(Opener, "reserve_new", no_answer)
        patched.setattr(Opener, "open", not_now)
        async with Service(database, store, quick_settings()) as service:
            graphs = await submitted(service, 3)
            graphs |= await submitted(service, 3)
            over.set()
    assert asked == 1
    assert {each["epoch"] for each in await rows(database, executions)} == {""}
    async with house(store, database) as made:  # its reconciler finds them
        await made.ended(graphs)
        await check(made, graphs)


async def test_a_reservation_that_is_lost_before_it_is_opened_is_made_again(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HotStore.open
    epochs: list[str] = []

    async def wiped(self: HotStore, partition: int, slices: Sequence[OpenSlice]) -> list[str]:
        if not epochs:
            epochs.extend(each["epoch"] for each in await rows(database, executions))
            await store._link.call("FLUSHALL")
        return await real(self, partition, slices)

    monkeypatch.setattr(HotStore, "open", wiped)
    async with Service(database, store, quick_settings()) as service:
        graphs = await submitted(service, 5)
        for execution_id in graphs:
            await until(lambda one=execution_id: is_open(store, database, one), "it to be open")  # type: ignore[misc]
    assert not {each["epoch"] for each in await rows(database, executions)} & set(epochs) - {""}


async def test_what_is_not_committed_is_not_opened(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Acceptance._insert

    def refused(self: Acceptance, *given: Any) -> None:
        real(self, *given)
        raise ValueError("refused")

    async def opened(*_: object) -> list[str]:
        pytest.fail("nobody was promised anything")

    monkeypatch.setattr(Acceptance, "_insert", refused)
    monkeypatch.setattr(HotStore, "open", opened)
    async with Service(database, store, quick_settings()) as service:
        with pytest.raises(ExceptionGroup):
            await _all_refused(service)
    assert await rows(database, executions) == []


async def _all_refused(service: Service) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(submitted(service, 1))
