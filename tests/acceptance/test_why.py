"""`why` and the audit on real stores: in whatever state an execution is, every unfinished node has a cause by name."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uuid_utils import uuid7

from headrace.embedded import EmbeddedValkey
from headrace.engine import audit
from headrace.engine.archiver import Archiver
from headrace.engine.causes import DO, Cause
from headrace.engine.keeper import Keeper
from headrace.engine.opener import Opener
from headrace.engine.orchestrator import Orchestrator
from headrace.engine.recovery import Reconciler
from headrace.engine.service import Service
from headrace.errors import RecordUnavailable
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Report, Reservation, Task
from headrace.record.acceptance import Submission
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.openings import Openings
from headrace.settings import Settings
from tests.roles import definition, node, quick_settings

ENDED = ("COMPLETED", "FAILED", "CANCELLED")
GOOD = '{"output":"{\\"value\\":1}"}'
RETRYABLE = '{"failure":{"code":"retry","message":"not yet","retryable":true,"after_seconds":%s}}'
FINAL = '{"failure":{"code":"fatal","message":"broken"}}'
ABOUT = '{"handlers":["note"],"slots":2,"running":%d}'
LEASE_MS = 600_000


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[HotStore]:
    made = HotStore(valkey_url, block_ms=1)
    await made._link.call("FLUSHALL")
    await made.prepare()
    yield made
    await made.aclose()


def patient(**more: Any) -> Settings:
    return quick_settings(WORKER_LEASE_SECONDS=LEASE_MS / 1000, WORKER_HEARTBEAT_TIMEOUT=LEASE_MS / 1000, **more)


@dataclass
class Steps:
    """An engine that does one step at a time, when it is told to."""

    store: HotStore
    database: Database
    settings: Settings = field(default_factory=patient)
    claimed: list[Task] = field(default_factory=list)
    is_orchestrated: bool = False

    def __post_init__(self) -> None:
        openings = Openings(self.database)
        self.service = Service(self.database, self.store, self.settings)
        self.opener = Opener(self.store, openings, self.settings)
        self.orchestrator = Orchestrator(self.store, self.settings, "o1")
        self.keeper = Keeper(self.store, self.settings, self.orchestrator)
        self.archiver = Archiver(self.store, Archive(self.database), Logs(self.database), self.settings, "o1")
        self.reconciler = Reconciler(self.store, openings, self.opener, self.archiver, self.settings)

    async def accept(self, made: Definition) -> str:
        """As the API does, except that nobody opens it."""
        execution_id = str(uuid7())
        await self.service._acceptance.submit([Submission(execution_id, 0, made, "test", "{}", None)])
        return execution_id

    async def open(self) -> None:
        await self.reconciler.reconcile(0)

    async def orchestrate(self) -> None:
        await self.orchestrator.process(0, await self.store.read_hints(0, "o1", 10))

    async def timers(self) -> None:
        self.is_orchestrated = True
        await self.keeper.run_timers(0)

    async def look(self) -> None:
        """An orchestrator that is there has just looked at its timers, however slow this machine is."""
        if self.is_orchestrated:
            await self.store._link.call("HSET", "hr:{0}:meta", "due", await self.store.now_ms())

    async def audit(self) -> audit.Found:
        await self.look()
        return await self.service.audit()

    async def beat(self, running: int = 0) -> None:
        await self.store.renew(0, "w1", ABOUT % running, LEASE_MS, [task.token for task in self.claimed])

    async def claim(self) -> None:
        await self.store.settle(0, await self.store.unsettled(0))
        self.claimed += (await self.store.claim(0, "w1", 2, LEASE_MS, ["note"]))[0]

    async def report(self, outcome: str = GOOD) -> None:
        if self.claimed:
            await self.store.report(0, [Report(self.claimed.pop(0).token, outcome)])

    async def release(self) -> None:
        if self.claimed:
            await self.store.release(0, [self.claimed.pop(0)])

    async def archive(self) -> None:
        await self.archiver.drain(0)

    async def lose(self) -> None:
        await self.store._link.call("FLUSHALL")

    async def causes(self, execution_id: str) -> dict[str | None, Cause]:
        """Node -> cause, of one that has exactly the unfinished nodes that a reader sees."""
        await self.look()
        shown = await self.service.read(execution_id)
        reasons = await self.service.why(execution_id)
        told = [each["node"] for each in reasons]
        assert len(told) == len(set(told)), f"a node has two causes: {reasons}"
        assert all(each["why"] and each["do"] == DO[Cause(each["cause"])] for each in reasons)
        if shown["status"] in ENDED:
            assert not reasons
        elif told != [None]:  # then it has ended, and SQL has not heard of it yet
            unfinished = {each["id"] for each in shown["nodes"] if each["status"] not in (*ENDED, "SKIPPED")}
            assert unfinished == set(told) - {None}, f"{shown} and {reasons}"
        return {each["node"]: Cause(each["cause"]) for each in reasons}


def chain(*more: dict[str, Any], **fields: Any) -> Definition:
    return definition(node("a"), node("b", "a"), *more, **fields)


async def test_every_cause_by_name(store: HotStore, database: Database) -> None:
    await store._link.call("HDEL", "hr:{0}:meta", "settled")
    await store._link.call("FUNCTION", "FLUSH")  # which remember that it was settled
    steps = Steps(store, database, patient(RETRY_INITIAL_DELAY=600, RETRY_MAX_DELAY=600))
    execution_id = await steps.accept(chain(timeout_seconds=600))

    assert set((await steps.causes(execution_id)).values()) == {Cause.NO_ORCHESTRATOR}
    await steps.timers()
    assert (await steps.causes(execution_id))[None] == Cause.NOT_OPENED
    await steps.open()
    assert await steps.causes(execution_id) == {None: Cause.DEADLINE, "a": Cause.SETTLING, "b": Cause.PARENTS}
    await store.settle(0, await store.unsettled(0))
    assert await steps.causes(execution_id) == {None: Cause.DEADLINE, "a": Cause.NO_WORKER, "b": Cause.PARENTS}
    await store.renew(0, "w0", '{"handlers":["other"],"slots":1,"running":0}', LEASE_MS, [])
    assert (await steps.causes(execution_id))["a"] == Cause.NO_HANDLER
    await steps.beat(running=2)
    assert (await steps.causes(execution_id))["a"] == Cause.NO_SLOT
    await steps.beat()
    assert (await steps.causes(execution_id))["a"] == Cause.CLAIM
    await steps.claim()
    assert (await steps.causes(execution_id))["a"] == Cause.RUNNING
    await store.drop_worker(0, "w1")
    assert (await steps.causes(execution_id))["a"] == Cause.WORKER_SILENT
    await steps.report(RETRYABLE % "null")
    assert (await steps.causes(execution_id))["a"] == Cause.RESULT
    await steps.orchestrate()
    [told] = [each for each in await steps.service.why(execution_id) if each["node"] == "a"]
    assert (told["cause"], told["status"]) == ("retry", "RETRYING") and "(not yet): the next one begins at 2" in told[
        "why"
    ]


async def test_causes_of_what_an_orchestrator_is_about_to_do(store: HotStore, database: Database) -> None:
    steps = Steps(store, database)
    execution_id = await steps.accept(chain(node("c", "a")))
    await steps.timers()
    await steps.open()
    await steps.claim()
    await store._link.call("ZADD", "hr:{0}:timers", 1, (await store._link.call("ZRANGE", "hr:{0}:timers", 0, 0))[0])
    assert (await steps.causes(execution_id))["a"] == Cause.LEASE_EXPIRED
    await steps.report(RETRYABLE % "0")
    await steps.orchestrate()
    assert (await steps.causes(execution_id))["a"] == Cause.RETRY_DUE
    await store._link.call("HSET", "hr:{0}:meta", "due", 1000)
    told = await steps.service.why(execution_id)
    assert told[0]["cause"] == "no_orchestrator" and "since 1970-01-01T00:00:01.000Z" in told[0]["why"]
    assert "headrace orchestrator" in told[0]["do"]


async def test_a_ready_node_waits_for_an_orchestrator(store: HotStore, database: Database) -> None:
    steps = Steps(store, database)
    execution_id = await steps.accept(definition(node("a", config={"ledger": "{{ input.x | default(1) }}"}), inputs={}))
    await steps.timers()
    await steps.open()
    assert await steps.causes(execution_id) == {"a": Cause.READY}


async def test_causes_of_the_ways_to_an_end(store: HotStore, database: Database) -> None:
    steps = Steps(store, database)
    execution_id = await steps.accept(definition(node("a"), node("b")))
    await steps.timers()
    await steps.open()
    await steps.claim()
    await steps.report(FINAL)
    await steps.orchestrate()
    assert await steps.causes(execution_id) == {"b": Cause.WORKER_SILENT}  # it has failed, and b may finish
    await steps.archive()
    assert await steps.service._acceptance.retry(execution_id, "test", None)
    assert (await steps.causes(execution_id))[None] == Cause.LAST_RUN
    await steps.report()
    await steps.orchestrate()
    await steps.archive()
    await steps.open()
    assert await steps.causes(execution_id) == {"a": Cause.READY}
    await steps.service._acceptance.cancel(execution_id, "test")
    assert await steps.causes(execution_id) == {None: Cause.CANCELLING, "a": Cause.CANCELLING}
    await steps.open()
    assert await steps.causes(execution_id) == {None: Cause.ARCHIVE}
    await steps.archive()
    assert await steps.causes(execution_id) == {}


async def test_what_is_being_opened(store: HotStore, database: Database) -> None:
    steps = Steps(store, database)
    execution_id = await steps.accept(chain())
    await store.reserve(0, [Reservation(execution_id, "t")], definition_ttl_seconds=9)
    assert set((await steps.causes(execution_id)).values()) == {Cause.OPENING}


async def test_what_was_not_triggered(store: HotStore, database: Database) -> None:
    steps = Steps(store, database)
    async with steps.service:
        made = await steps.service.submit(chain(), actor="test")
    [told, *nodes] = await steps.service.why(made.execution_id)
    assert (told["node"], told["status"], told["cause"]) == (None, "PENDING", "not_triggered")
    assert [each["node"] for each in nodes] == ["a", "b"]


async def test_stores_that_are_away(tmp_path: Path, database: Database) -> None:
    with EmbeddedValkey(tmp_path / "own") as server:
        store = HotStore(server.url, socket_timeout=1.0)
        await store.prepare()
        steps = Steps(store, database)
        execution_id = await steps.accept(chain())
        await steps.open()
        away = Service(Database("postgresql://nobody@127.0.0.1:1/nothing"), store, steps.settings)
        [told, *nodes] = await away.why(execution_id)
        assert (told["cause"], [each["node"] for each in nodes]) == ("record_away", ["a", "b"])
        with pytest.raises(RecordUnavailable):
            await away.why("00000000-0000-7000-8000-000000000000")
    assert set((await steps.causes(execution_id)).values()) == {Cause.STORE_AWAY}
    assert [each.cause for each in (await steps.service.audit()).problems] == [Cause.STORE_AWAY]
    assert [each.cause for each in (await away.audit()).problems] == [Cause.STORE_AWAY]
    await store.aclose()


@pytest.mark.parametrize("seed", range(5))
async def test_in_every_state_each_unfinished_node_has_a_cause(seed: int, store: HotStore, database: Database) -> None:
    """A walk at random through everything that may happen to executions."""
    rng = random.Random(seed)
    steps = Steps(store, database)
    ids = [await steps.accept(_shape(rng)) for _ in range(3)]

    async def cancel() -> None:
        await steps.service._acceptance.cancel(rng.choice(ids), "test")

    async def retry() -> None:
        await steps.service._acceptance.retry(rng.choice(ids), "test", None)

    often = [steps.orchestrate, steps.timers, steps.claim, steps.report, steps.archive, steps.open, steps.beat]
    seldom = [
        lambda: steps.report(RETRYABLE % rng.choice(("0", "60"))), lambda: steps.report(FINAL), steps.release,
        cancel, retry, steps.lose,
    ]  # fmt: skip
    seen: set[Cause] = set()
    for _ in range(60):
        await rng.choice(often if rng.random() < 0.85 else seldom)()
        seen.update((await steps.causes(rng.choice(ids))).values())
    assert len(seen) > 3


def _shape(rng: random.Random) -> Definition:
    nodes = [node(f"n{i}", *(f"n{j}" for j in range(i) if rng.random() < 0.4)) for i in range(rng.randint(2, 6))]
    return definition(*nodes, on_failure=rng.choice(("fail_fast", "continue")))


# ---- the audit


async def test_the_audit_looks_at_all_and_names_what_is_stuck(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PAGE", 3)
    monkeypatch.setattr(audit, "NAMES_TOGETHER", 4)
    monkeypatch.setattr(audit, "QUIET_MS", -1)
    steps = Steps(store, database)
    ids = [await steps.accept(chain()) for _ in range(10)]
    await steps.timers()
    await steps.open()
    await store.settle(0, await store.unsettled(0))
    found = await steps.audit()
    assert (found.live_count, found.stuck_count) == (10, 10)
    assert {each.execution_id for each in found.stuck} == set(ids)
    assert [each.cause for each in found.problems] == [Cause.NO_WORKER]
    assert {each.cause for stuck in found.stuck for each in stuck.reasons} == {Cause.NO_WORKER, Cause.PARENTS}
    await steps.beat(running=2)
    assert (await steps.audit()).stuck_count == 0  # they wait for slots, which is nothing to worry about
    await steps.lose()
    await steps.timers()
    found = await steps.audit()
    assert [stuck.reasons[0].cause for stuck in found.stuck] == [Cause.NOT_OPENED] * 10
    monkeypatch.setattr(audit, "QUIET_MS", 60_000)
    assert (await steps.audit()).stuck_count == 0  # what was asked for just now is not stuck yet


async def test_the_audit_counts_what_it_does_not_tell(
    store: HotStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_TOLD", 2)
    monkeypatch.setattr(audit, "QUIET_MS", -1)
    steps = Steps(store, database)
    for _ in range(5):
        await steps.accept(chain())
    found = await steps.audit()
    assert (len(found.stuck), found.stuck_count) == (2, 5)
    assert {each.cause for each in found.problems} == {Cause.NO_ORCHESTRATOR, Cause.NO_WORKER}
