"""Events become rows: each once and in order, whoever delivers them and however often; nothing stops the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import text

from headrace.errors import RecordUnavailable
from headrace.model.messages import Change
from headrace.record.acceptance import Acceptance
from headrace.record.archive import Applied, Archive, Ended, Entry
from headrace.record.database import Database
from headrace.record.queries import Queries
from headrace.record.readings import Readings
from headrace.record.tables import attempts, dead_letters, executions, set_aside
from tests.conformance.record.chains import Chain, failure
from tests.conformance.record.rows import opened, put, row, rows, started

HUGE = 1 << 80


def told(done: Applied) -> Applied:
    """Without the events themselves."""
    return replace(done, events=[])


async def chain(database: Database, epoch: str = "e1") -> tuple[str, Chain]:
    execution_id = await started(database)
    await opened(database, execution_id, epoch)
    return execution_id, Chain(database, execution_id, epoch)


async def test_one_execution_from_its_start_to_its_end(database: Database) -> None:
    execution_id, events = await chain(database)
    retried, fatal = failure("error", retryable=True), failure("fatal")
    await events.add(status="R", at_ms=10)
    await events.add(Change("a", "Q", 1), at_ms=20)
    await events.add(Change("a", "R", 1, "w1"), at_ms=30)
    await events.add(Change("a", "T", 1, retried, 99), at_ms=40)
    await events.add(Change("a", "Q", 2), Change("b", "Q", 1), at_ms=50)
    await events.add(Change("a", "R", 2, "w2"), Change("b", "R", 1, "w2"), at_ms=60)
    await events.add(Change("a", "C", 2, '{"x":1}'), at_ms=70)
    done = await events.add(Change("b", "F", 1, fatal), Change("c", "S", 0, "b"), status="F", error=fatal, at_ms=80)
    assert told(done) == Applied(applied=1, ended=[Ended(execution_id, "e1", events.last)])

    stored = await row(database, executions)
    names = ("status", "started_ms", "finished_ms", "error", "error_node", "last_event")
    assert tuple(stored[name] for name in names) == ("FAILED", 10, 80, fatal, "b", events.last)
    found = {(each["node"], each["attempt"]): each for each in await rows(database, attempts)}
    empty = dict.fromkeys(
        ("worker", "queued_ms", "started_ms", "finished_ms", "due_ms", "output", "error", "reason"), None
    ) | {"execution_id": execution_id, "run": 1}
    first = {"state": "RETRYING", "worker": "w1", "queued_ms": 20, "started_ms": 30, "finished_ms": 40}
    second = {"state": "COMPLETED", "worker": "w2", "queued_ms": 50, "started_ms": 60, "finished_ms": 70}
    other = {"state": "FAILED", "worker": "w2", "queued_ms": 50, "started_ms": 60, "finished_ms": 80}
    assert found == {
        ("a", 1): empty | first | {"node": "a", "attempt": 1, "due_ms": 99, "error": retried},
        ("a", 2): empty | second | {"node": "a", "attempt": 2, "output": '{"x":1}'},
        ("b", 1): empty | other | {"node": "b", "attempt": 1, "error": fatal},
        ("c", 0): empty | {"node": "c", "attempt": 0, "state": "SKIPPED", "finished_ms": 80, "reason": "b"},
    }
    letter = await row(database, dead_letters)
    assert (letter["node"], letter["attempt"], letter["cause"], letter["status"]) == ("b", 1, "fatal", "OPEN")
    assert (letter["error"], letter["workflow"], letter["created_ms"]) == (fatal, "w", 80)


async def test_one_batch_is_the_same_as_one_by_one(database: Database) -> None:
    execution_id, events = await chain(database)
    entries = [
        events.next(status="R", at_ms=10),
        events.next(Change("a", "Q", 1), at_ms=20),
        events.next(Change("a", "R", 1, "w1"), at_ms=30),
        events.next(Change("a", "C", 1, "{}"), status="C", at_ms=40),
    ]
    done = await Archive(database).apply(0, 1, entries)
    assert done.events == [event for _, event in entries]
    assert told(done) == Applied(applied=4, ended=[Ended(execution_id, "e1", events.last)])
    found = await row(database, attempts)
    assert (found["state"], found["queued_ms"], found["started_ms"], found["finished_ms"]) == ("COMPLETED", 20, 30, 40)


async def test_the_cursor_is_committed_with_the_rows(database: Database) -> None:
    archive = Archive(database)
    execution_id, events = await chain(database)
    assert await archive.cursor(0) == "0-0"
    entry = events.next(Change("a", "Q", 1))
    await archive.apply(0, 1, [entry])
    assert await archive.cursor(0) == entry[0]
    assert await archive.cursor(1) == "0-0"
    stranger = Chain(database, "nobody", "e1").next(Change("a", "Q", 1))
    assert told(await archive.apply(0, 1, [stranger])) == Applied(passed_over=1)  # read, though it was for nobody
    assert await archive.cursor(0) == stranger[0]
    assert (await row(database, executions, id=execution_id))["last_event"] == entry[0]


async def test_what_an_earlier_run_still_says_is_kept_and_ends_nothing(database: Database) -> None:
    execution_id, events = await chain(database)
    fatal = failure("fatal")
    await events.add(Change("a", "F", 1, fatal), status="F", error=fatal)
    await Acceptance(database).retry(execution_id, "ann")
    late = await events.add(Change("b", "C", 1, "2"), status="C", at_ms=9)
    assert told(late) == Applied(applied=1)
    await events.add(Change("c", "F", 1, fatal), status="X", error=fatal, at_ms=9)
    stored = await row(database, executions)
    assert [stored[name] for name in ("status", "run", "error", "finished_ms")] == ["RUNNING", 2, None, None]
    assert [(each["node"], each["state"], each["run"]) for each in await rows(database, attempts)] == [
        ("a", "FAILED", 1), ("b", "COMPLETED", 1), ("c", "FAILED", 1),
    ]  # fmt: skip
    letters = {each["node"]: each["status"] for each in await rows(database, dead_letters)}
    assert letters == {"a": "RETRIED", "c": "RETRIED"}  # the next run tries both again


async def test_a_run_that_is_opened_again_keeps_its_start_and_the_next_one_has_its_own(database: Database) -> None:
    execution_id, events = await chain(database)
    await events.add(status="R", at_ms=10)
    await opened(database, execution_id, "e2")
    again = Chain(database, execution_id, "e2")
    entries = [again.next(status="R", at_ms=20), again.next(status="F", at_ms=30)]
    await Archive(database).apply(0, 1, entries)
    assert (await row(database, executions))["started_ms"] == 10
    await Acceptance(database).retry(execution_id, "ann")
    assert (await row(database, executions))["started_ms"] is None
    await opened(database, execution_id, "e3")
    await Chain(database, execution_id, "e3", run=2).add(status="R", at_ms=40)
    assert (await row(database, executions))["started_ms"] == 40


async def test_the_first_error_of_a_run_is_its_error_once_it_has_failed(database: Database) -> None:
    execution_id, events = await chain(database)
    first, second, deadline = failure("fatal", "first"), failure("fatal", "second"), failure("timeout")
    readings = Readings(database)

    async def shown() -> tuple[str | None, str | None]:
        stored = await readings.execution(execution_id)
        (item,) = (await Queries(database).executions()).items
        assert stored is not None and stored.error == item.error
        return stored.error, stored.error_node if stored.error else None

    await events.add(Change("a", "F", 1, first), Change("b", "S", 0, "a"), error=first)
    assert await shown() == (None, None)  # it goes on, with what does not depend on a
    await events.add(Change("c", "F", 1, second), status="F", error=second)
    assert await shown() == (first, "a")
    await Acceptance(database).retry(execution_id, "ann")
    assert await shown() == (None, None)
    await opened(database, execution_id, "e2")
    events = Chain(database, execution_id, "e2", run=2)
    await events.add(Change("c", "F", 1, second), error=second)
    await events.add(status="F", error=deadline)
    assert await shown() == (deadline, None)


async def test_progress_is_counted_as_events_are_applied(database: Database) -> None:
    execution_id, events = await chain(database)
    fatal = failure("fatal")

    async def counted() -> tuple[int | None, ...]:
        stored = await row(database, executions)
        return stored["done"], stored["failed"]

    entries = [events.next(Change("a", "C", 1, "1"), Change("b", "F", 1, fatal)), events.next(Change("c", "S", 0, "b"))]
    for _ in range(2):  # what comes again is passed over
        await Archive(database).apply(0, 1, entries)
        assert await counted() == (2, 1)
    await opened(database, execution_id, "e2")  # a rebuild
    assert await counted() == (2, 1)
    events = Chain(database, execution_id, "e2")
    await events.add(Change("d", "C", 1, "1"), status="F", error=fatal)
    assert await counted() == (3, 1)
    await events.add(Change("e", "C", 1, "1"))  # it was still running
    assert await counted() == (4, 1)
    await Acceptance(database).retry(execution_id, "ann")
    await events.add(Change("f", "C", 1, "1"), Change("g", "F", 1, fatal))
    assert await counted() == (None, None)
    await opened(database, execution_id, "e3")
    assert await counted() == (4, 0)  # a, d, e, f


async def test_one_dead_letter_per_run_and_node(database: Database) -> None:
    execution_id, events = await chain(database)
    for attempt in (1, 2):
        await events.add(Change("a", "F", attempt, failure("fatal")))
    assert [each["attempt"] for each in await rows(database, dead_letters)] == [1]
    await opened(database, execution_id, "e2")
    await Chain(database, execution_id, "e2").add(Change("a", "F", 3, "not JSON at all"))
    assert len(await rows(database, dead_letters)) == 1


async def test_a_failure_that_is_not_json_has_a_dead_letter_all_the_same(database: Database) -> None:
    _, events = await chain(database)
    await events.add(Change("a", "F", 1, "not JSON"), Change("b", "F", 1, "[1]"), Change("c", "F", 1, '{"code":"x"}'))
    causes = {each["node"]: each["cause"] for each in await rows(database, dead_letters)}
    assert causes == {"a": "error", "b": "error", "c": "x"}


async def test_two_archivers_at_once_apply_each_event_once(database: Database) -> None:
    chains = [(await chain(database))[1] for _ in range(5)]
    entries: list[Entry] = []
    for number in range(1, 21):
        entries += [events.next(Change("a", "Q", number), at_ms=number) for events in chains]
    batches = [entries[start : start + 7] for start in range(0, len(entries), 7)]

    async def deliver() -> int:
        archive = Archive(database)
        return sum([(await archive.apply(0, 1, batch)).applied for batch in batches])

    assert sum(await asyncio.gather(deliver(), deliver(), deliver())) == len(entries)
    assert len(await rows(database, attempts)) == len(entries)
    assert {each["last_event"] for each in await rows(database, executions)} == {events.last for events in chains}


# ---- poison

NUL, SURROGATE, LONG = "a\0b", "\ud800", "n" * 70
POISON = {
    "NUL in an output": Change("a", "C", 1, f'"{NUL}"'),
    "NUL in a failure": Change("a", "F", 1, failure("fatal")[:-2] + f'{NUL}"}}'),
    "lone surrogate": Change("a", "C", 1, SURROGATE),
    "name too long": Change(LONG, "Q", 1),
    "number too large": Change("a", "Q", HUGE),
    "time too large": Change("a", "T", 1, "{}", HUGE),
    "unknown state": Change("a", "?", 1),
}
STORED_BY_SQLITE = ("NUL in an output", "NUL in a failure", "name too long")


@pytest.mark.parametrize("kind_of_poison", POISON)
async def test_poison_is_set_aside_and_everything_else_goes_on(database: Database, kind_of_poison: str) -> None:
    archive = Archive(database)
    (execution_id, events), (other, undisturbed) = await chain(database), await chain(database)
    entries: list[Entry] = []
    for number in range(1, 6):
        entries += [events.next(Change("b", "Q", number)), undisturbed.next(Change("b", "Q", number))]
        if number == 3:
            entries.append(events.next(POISON[kind_of_poison]))
    entries.append(events.next(status="C", at_ms=7))
    done = await archive.apply(0, 1, entries)
    is_set_aside = not (database.is_sqlite and kind_of_poison in STORED_BY_SQLITE)
    assert told(done) == Applied(
        applied=len(entries), set_aside=is_set_aside, ended=[Ended(execution_id, "e1", events.last)]
    )
    for each in (execution_id, other):
        assert [one["attempt"] for one in await rows(database, attempts, execution_id=each, node="b")] == [
            1,
            2,
            3,
            4,
            5,
        ]
    stored = await row(database, executions, id=execution_id)
    assert (stored["status"], stored["last_event"]) == ("COMPLETED", events.last)
    assert await archive.cursor(0) == entries[-1][0]
    for aside in await rows(database, set_aside):
        assert aside["entry"] == entries[6][0]
        assert execution_id in aside["body"]
        assert aside["reason"]
    assert len(await rows(database, set_aside)) == is_set_aside
    assert told(await archive.apply(0, 1, entries)) == Applied(passed_over=len(entries))
    assert len(await rows(database, set_aside)) == is_set_aside


async def test_an_end_whose_error_is_poison_is_an_end(database: Database) -> None:
    execution_id, events = await chain(database)
    done = await events.add(Change("a", "F", 1, SURROGATE), status="F", error=SURROGATE, at_ms=8)
    assert told(done) == Applied(applied=1, set_aside=1, ended=[Ended(execution_id, "e1", events.last)])
    stored = await row(database, executions)
    assert (stored["status"], stored["finished_ms"]) == ("FAILED", 8)
    assert "set aside" in stored["error"]


async def test_an_unknown_status_is_set_aside(database: Database) -> None:
    _, events = await chain(database)
    assert (await events.add(Change("a", "Q", 1), status="?")).set_aside == 1
    assert (await events.add(Change("a", "Q", 1))).applied == 1
    assert (await row(database, executions))["status"] == "RUNNING"


async def test_poison_and_a_crash_lose_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry of the outbox has events of several executions. If the archiver dies among them, while it works on
    halves because of poison, the cursor must not have passed the entry."""
    chains = [(await chain(database))[1] for _ in range(6)]
    changes = [Change("a", "C", 1, SURROGATE if number == 2 else "{}") for number in range(len(chains))]
    entries = [("7-0", each.next(change)[1]) for each, change in zip(chains, changes, strict=True)]
    for crash_at in range(1, 12):
        archive = Archive(database)
        assert await archive.cursor(0) == "0-0"
        with monkeypatch.context() as patched:
            _crash(patched, archive, crash_at)
            try:
                await archive.apply(0, 1, entries)
            except RecordUnavailable:
                continue
            break
    else:
        pytest.fail("it never got through")
    assert crash_at > 2  # it did work on halves
    assert await archive.cursor(0) == entries[0][0]
    assert len(await rows(database, attempts)) == 5
    assert len(await rows(database, set_aside)) == 1


def _crash(patched: pytest.MonkeyPatch, archive: Archive, at: int) -> None:
    apply, calls = archive._apply, 0

    async def until(*args: object, **options: object) -> Applied:
        nonlocal calls
        calls += 1
        if calls == at:
            raise RecordUnavailable("crashed here")
        return await apply(*args, **options)  # type: ignore[arg-type]

    patched.setattr(archive, "_apply", until)


async def test_a_schema_that_is_behind_is_not_poison(database: Database) -> None:
    """Otherwise an archiver that is newer than the database would set everything aside."""
    _, events = await chain(database)
    entry = events.next(Change("a", "C", 1, "{}"))
    async with database.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE attempts RENAME COLUMN output TO result")
    try:
        with pytest.raises(RecordUnavailable):
            await Archive(database).apply(0, 1, [entry])
    finally:
        async with database.write() as connection:
            await connection.exec_driver_sql("ALTER TABLE attempts RENAME COLUMN result TO output")
    assert told(await Archive(database).apply(0, 1, [entry])) == Applied(applied=1)
    assert await rows(database, set_aside) == []


async def test_many_executions_in_one_batch(database: Database) -> None:
    """More than go into one statement."""
    pattern = await row(database, executions, id=await started(database))
    ids: Sequence[str] = [f"x{n:04}" for n in range(1200)]
    await put(database, executions, *(pattern | {"id": each, "epoch": "e1"} for each in ids))
    entries = [Chain(database, each, "e1").next(Change("a", "C", 1, "{}"), status="C") for each in ids]
    done = await Archive(database).apply(0, 1, entries)
    assert (done.applied, len(done.ended)) == (1200, 1200)
    assert len(await rows(database, executions, status="COMPLETED")) == len(await rows(database, attempts)) == 1200


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
async def test_no_table_is_read_as_a_whole_however_small(database: Database) -> None:
    """PostgreSQL would keep this plan while the table grows."""

    async def whole_reads() -> int:
        async with database.read() as connection:
            await connection.execute(text("SELECT pg_stat_force_next_flush()"))
        async with database.read() as connection:
            query = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('executions', 'attempts')"
            return int((await connection.execute(text(query))).scalar_one())

    (_, one), (_, other) = [await chain(database) for _ in range(2)]
    async with database.write() as connection:
        await connection.execute(text("ANALYZE executions, attempts"))
    before = await whole_reads()
    entries = [events.next(Change("a", "Q", 1), status="R") for events in (one, other)]
    assert (await Archive(database).apply(0, 1, entries)).applied == 2
    assert await whole_reads() == before
