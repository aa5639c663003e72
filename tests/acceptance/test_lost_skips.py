"""on_failure: continue, and the store is lost while what is below a failure is being skipped, level by level."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headrace.hot.store import HotStore
from headrace.record.archive import Archive
from headrace.record.database import Database
from tests.acceptance.test_why import FINAL, GOOD, Steps
from tests.roles import definition, node


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[HotStore]:
    made = HotStore(valkey_url, block_ms=1)
    await made._link.call("FLUSHALL")
    await made.prepare()
    yield made
    await made.aclose()


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.mark.parametrize("archived", [3, 4, 5])
async def test_what_sql_has_not_heard_of_is_skipped_too(archived: int, store: HotStore, database: Database) -> None:
    """Found by the fault machine: `c` stayed PENDING for ever, for no hint led to it any more."""
    steps = Steps(store, database)
    made = definition(node("x"), node("a"), node("b", "a"), node("c", "b"), node("d", "c", "x"), on_failure="continue")
    execution_id = await steps.accept(made)
    await steps.open()
    await steps.claim()
    await steps.report(GOOD)
    await steps.orchestrate()
    await steps.report(FINAL)
    await steps.orchestrate()
    events = await store.read_events(0, "0-0", block=False)
    levels = [[change.node for change in event.changes] for _, event in events]
    assert levels[2:] == [["x"], ["a", "b"], ["c"], ["d"]]
    await Archive(database).apply(0, 1, events[:archived])
    await steps.lose()
    await store.prepare()
    for _ in range(3):
        await steps.open()
        await steps.claim()
        await steps.report(GOOD if not steps.claimed or steps.claimed[0].node == "x" else FINAL)
        await steps.orchestrate()
        await steps.archive()
    ended = await steps.service.read(execution_id)
    assert ended["status"] == "FAILED"
    states = {each["id"]: each["status"] for each in ended["nodes"]}
    assert states == {"x": "COMPLETED", "a": "FAILED", "b": "SKIPPED", "c": "SKIPPED", "d": "SKIPPED"}
