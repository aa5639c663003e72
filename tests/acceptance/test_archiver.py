"""The archiver on real stores: it catches up without growing, one works at a time, another goes on where it stopped,
and what SQL refuses is set aside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.engine import archiver as archiving
from headrace.engine.archiver import BATCH_BYTES, FIRST_ENTRIES, MOST_ENTRIES, Archiver
from headrace.hot import codec
from headrace.hot.store import HotStore
from headrace.model.messages import Change, Event
from headrace.record.acceptance import Acceptance, Accepted
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.openings import Openings
from headrace.record.tables import attempts, partitions, set_aside
from headrace.settings import Settings
from tests.conformance.record.rows import rows, submission
from tests.roles import quick_settings, until

EXECUTIONS = 100
EARLY, ALL = 10_000, 100_000
MOST_GROWTH_KIB = 16 * 1024
EPOCH = "e1"


class Outbox:
    """Events of executions that SQL knows, written into the stream as the hot store's functions do it: one entry has an
    event of each execution that a call has changed."""

    def __init__(self, store: HotStore, ids: list[str]) -> None:
        self._store = store
        self._ids = ids
        self._last = dict.fromkeys(ids, "")
        self._entries = 0
        self._number = 0

    async def write(self, count: int, detail: str = "1", *, together: int = 1) -> None:
        """So many events, with an attempt each."""
        for start in range(0, count, 1000):
            entries = range(0, min(1000, count - start), together)
            await self._store._link.call_all([self.next(f"C1 {detail}", together) for _ in entries])

    def next(self, change: str, together: int = 1) -> tuple[str, ...]:
        """The command that writes the next entry."""
        self._entries += 1
        entry_id, sections = f"{self._entries}-0", list[str]()
        for _ in range(together):
            self._number += 1
            execution_id = self._ids[self._number % len(self._ids)]
            told = f"{execution_id}|{EPOCH}|1|{self._number}|{self._last[execution_id]}|{self._entries}||"
            sections.append(codec.BETWEEN_PARTS.join((told, f"n{self._number}", change)))
            self._last[execution_id] = entry_id
        return ("XADD", "hr:{0}:events", entry_id, "e", codec.BETWEEN_SECTIONS.join(sections))


@pytest.fixture
async def outbox(store: HotStore, database: Database) -> Outbox:
    accepted = await Acceptance(database).submit([submission() for _ in range(EXECUTIONS)])
    ids = [each.execution_id for each in accepted if isinstance(each, Accepted)]
    wanted = await Openings(database).wanted(ids)
    await Openings(database).take([(one, EPOCH) for one in wanted])
    return Outbox(store, ids)


def archiver(store: HotStore, database: Database, name: str = "a") -> Archiver:
    return Archiver(store, Archive(database), Logs(database), Settings(), name)


async def archived(database: Database) -> int:
    async with database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(attempts))).scalar_one())


# ---- memory

CHILD = """
import asyncio, resource, sys
from tests.acceptance.test_archiver import archiver
from headrace.hot.store import HotStore
from headrace.record.database import Database

async def main():
    store, database = HotStore(sys.argv[1]), Database(sys.argv[2])
    for _ in range(2):
        sys.stdin.readline()
        await archiver(store, database).drain(0)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
    await store.aclose()
    await database.aclose()

asyncio.run(main())
"""


@pytest.fixture
def child(valkey_url: str, database_url: str) -> Iterator[subprocess.Popen[str]]:
    """Drains once for each line that it gets, and says how much memory it ever had, in KiB."""
    command = [sys.executable, "-c", CHILD, valkey_url, database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as started:
        yield started
        started.kill()


def drain(child: subprocess.Popen[str]) -> int:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    return int(child.stdout.readline())


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_catching_up_takes_no_more_memory_for_more_events(
    database: Database, outbox: Outbox, child: subprocess.Popen[str]
) -> None:
    await outbox.write(EARLY, together=20)
    early = await asyncio.to_thread(drain, child)
    await outbox.write(ALL - EARLY, together=20)
    late = await asyncio.to_thread(drain, child)
    assert await archived(database) == ALL
    assert late - early < MOST_GROWTH_KIB


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_large_outputs_are_read_a_few_at_a_time(
    database: Database, outbox: Outbox, child: subprocess.Popen[str]
) -> None:
    """All of them together would be 100 MB, several times over."""
    await outbox.write(10)
    early = await asyncio.to_thread(drain, child)
    await outbox.write(100, '"' + "x" * (1 << 20) + '"')
    late = await asyncio.to_thread(drain, child)
    assert await archived(database) == 110
    assert late - early < MOST_GROWTH_KIB * 4


@pytest.mark.parametrize(("kind", "partitions"), [("sqlite", 1)], indirect=True)
async def test_draining_ends_though_there_is_always_something_new(
    store: HotStore, database: Database, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for it wants what had happened before."""
    made, apply = archiver(store, database), Archive.apply

    async def apply_and_go_on(*arguments: Any) -> Any:
        await outbox.write(1)
        return await apply(*arguments)

    monkeypatch.setattr(Archive, "apply", apply_and_go_on)
    await outbox.write(500)
    async with asyncio.timeout(60):
        await made.drain(0)
    assert await archived(database) >= 500


@pytest.mark.parametrize(
    ("count", "size", "next_count"),
    [
        (1, 10, FIRST_ENTRIES),
        (50, 10, MOST_ENTRIES),
        (50, BATCH_BYTES // 10, 10),
        (1, BATCH_BYTES // 10, 10),
        (1, 2 * BATCH_BYTES, 1),
    ],
)
def test_the_next_batch_is_as_large_as_fits(count: int, size: int, next_count: int) -> None:
    detail = "x" * (size // 2)  # each entry has two events
    event = Event("x", EPOCH, 1, 1, "", 0, "", "", [Change("n", "C", 1, detail)])
    entries = [(f"{number}-0", event) for number in range(count) for _ in range(2)]
    assert archiving._as_many_as_fit(entries) == next_count


# ---- who works, and where


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_one_archiver_works_on_a_partition_and_another_goes_on_when_it_ends(
    store: HotStore, database: Database, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.archiver.DUTY_MS", 3_000)
    seen: list[str] = []

    class Named(Archive):
        def __init__(self, name: str) -> None:
            super().__init__(database)
            self._name = name

        async def cursor(self, partition: int) -> str:
            seen.append(self._name)
            return await super().cursor(partition)

    settings = quick_settings(ORCHESTRATOR_ARCHIVE_INTERVAL=0.01)
    stops = {name: asyncio.Event() for name in ("a", "b", "c")}
    made = {name: Archiver(store, Named(name), Logs(database), settings, name) for name in stops}
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(made[name].run(0, stops[name])) for name in stops}
        await outbox.write(500)
        await until(lambda: _has(database, 500), "the first events")
        assert len(set(seen)) == 1
        first = seen[0]
        tasks[first].cancel()  # as if it had died: it says nothing, and its turn ends by itself
        await outbox.write(500)
        await until(lambda: _has(database, 1000), "the rest")
        assert len(set(seen)) == 2
        for stop in stops.values():
            stop.set()


async def _has(database: Database, count: int) -> bool:
    return await archived(database) == count


async def test_what_was_not_committed_is_read_again(
    store: HotStore, database: Database, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before the end of a transaction, again and again: rows and cursor come together or not at all."""
    await outbox.write(1000)
    real, left = Archive._advance_cursor, 2

    def dies(self: Archive, *arguments: object) -> None:
        nonlocal left
        real(self, *arguments)  # type: ignore[arg-type]
        left -= 1
        if left < 0:
            raise ZeroDivisionError

    monkeypatch.setattr(Archive, "_advance_cursor", dies)
    with pytest.raises(ZeroDivisionError):
        await archiver(store, database).drain(0)
    cursor = await Archive(database).cursor(0)
    assert 0 < await archived(database) == int(cursor.partition("-")[0]) < 1000
    monkeypatch.undo()
    await archiver(store, database, "b").drain(0)
    assert await archived(database) == 1000
    assert [each["cursor"] for each in await rows(database, partitions)] == ["1000-0"]


async def test_what_sql_refuses_is_set_aside_and_counted(store: HotStore, database: Database, outbox: Outbox) -> None:
    await outbox.write(5)
    await store._link.call(*outbox.next(f"C{1 << 80} 1"))
    await outbox.write(5)
    made = archiver(store, database)
    await made.drain(0)
    assert made.set_aside == 1
    assert await archived(database) == 10
    (aside,) = await rows(database, set_aside)
    assert (aside["partition"], aside["entry"]) == (0, "6-0")
