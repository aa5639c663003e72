"""The lists: newest first, page by page without loss or doubles, every filter, bounded work, and an index for each."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from headrace.errors import BadValue
from headrace.model.messages import Change
from headrace.record import queries as module
from headrace.record.acceptance import Acceptance
from headrace.record.database import Database
from headrace.record.ids import first_id
from headrace.record.openings import Openings
from headrace.record.queries import Counts, Filter, Page, Queries
from headrace.record.readings import Readings
from headrace.record.tables import attempts, audit, dead_letters, definitions, executions, set_aside
from tests.conformance.record.chains import Chain, failure
from tests.conformance.record.rows import definition, opened, put, row, started, submission

MANY = 100_000
HOUR_MS = 3_600_000


async def all_ids(page_of: Callable[[str], Awaitable[Page[Any]]], key: str = "id") -> list[Any]:
    """All pages, one after the other."""
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await page_of(cursor)
        found += [getattr(item, key) for item in page.items]
        cursor = page.next_cursor
    return found


async def put_executions(database: Database, *values: dict[str, Any]) -> list[str]:
    """Like a real one, but for these values; made an hour apart. Oldest first."""
    pattern = await row(database, executions, id=await started(database))
    async with database.write() as connection:
        await connection.execute(executions.delete())
    ids = [first_id(number * HOUR_MS) for number in range(len(values))]
    made = [{"id": ids[number], "created_ms": number * HOUR_MS} for number in range(len(values))]
    await put(database, executions, *(pattern | one | value for one, value in zip(made, values, strict=True)))
    return ids


# ---- executions


async def test_pages_are_complete_and_newest_first(database: Database) -> None:
    queries = Queries(database)
    assert await queries.executions() == Page([], None)
    ids = await put_executions(database, *({} for _ in range(11)))
    for limit in (1, 2, 5, 10, 11, 12):
        assert await all_ids(lambda cursor, n=limit: queries.executions(cursor=cursor, limit=n)) == ids[::-1]
    assert len((await queries.executions(limit=10**9)).items) == 11
    assert len((await queries.executions(limit=-5)).items) == 1


async def test_a_page_stands_while_new_ones_arrive(database: Database) -> None:
    queries = Queries(database)
    ids = await put_executions(database, *({} for _ in range(4)))
    page = await queries.executions(limit=2)
    await started(database)
    rest = await queries.executions(cursor=page.next_cursor or "", limit=2)
    assert [item.id for item in page.items + rest.items] == ids[::-1]


async def test_an_item_says_what_the_row_says(database: Database) -> None:
    execution_id = await started(database)
    await opened(database, execution_id, "e1")
    events = Chain(database, execution_id, "e1")
    await events.add(status="R", at_ms=5)
    await events.add(Change("a", "F", 1, failure("fatal")), status="F", error=failure("fatal"), at_ms=9)
    (item,) = (await Queries(database).executions()).items
    stored = await row(database, executions)
    for name in item.__slots__:
        assert getattr(item, name) == stored[name]
    assert (item.status, item.error_node, item.started_ms, item.finished_ms) == ("FAILED", "a", 5, 9)


async def test_filters_and_all_of_them_together(database: Database) -> None:
    values = [
        {"status": status, "workflow": workflow, "error": error}
        for status, workflow, error in itertools.product(("RUNNING", "FAILED"), ("v", "w"), (None, "Boom"))
    ]
    ids = await put_executions(database, *values, *values)
    queries = Queries(database)
    created = {each: number * HOUR_MS for number, each in enumerate(ids)}
    value = dict(zip(ids, [*values, *values], strict=True))
    choices = itertools.product(
        (None, "FAILED", "none"), (None, "w"), (None, 5 * HOUR_MS), (None, 13 * HOUR_MS), ("", "boom")
    )
    for status, workflow, since, until, wanted_text in choices:
        wanted = Filter(status, workflow, since, until, wanted_text)
        expected = [
            each
            for each in reversed(ids)
            if status in (None, value[each]["status"])
            and workflow in (None, value[each]["workflow"])
            and (since is None or created[each] >= since)
            and (until is None or created[each] < until)
            and (not wanted_text or value[each]["error"] == "Boom")
        ]
        assert await all_ids(lambda cursor, of=wanted: queries.executions(of, cursor=cursor, limit=3)) == expected


async def test_times_are_exact_though_ids_are_made_before_their_rows(database: Database) -> None:
    (execution_id,) = await put_executions(database, {"created_ms": 30_000})
    assert first_id(0) == execution_id
    for since, until, found in [(30_000, None, 1), (30_001, None, 0), (None, 30_000, 0), (None, 30_001, 1)]:
        page = await Queries(database).executions(Filter(since_ms=since, until_ms=until))
        assert len(page.items) == found


async def test_a_search_takes_its_text_literally(database: Database) -> None:
    """In id, workflow and error, whatever the case of ASCII letters."""
    errors = ["Boom: 100% full", "a_b is not", "a/b", "a\\b", None, "ünder"]
    workflows = ["w", "w", "w", "w", "other", "w"]
    values = zip(errors, workflows, strict=True)
    ids = await put_executions(database, *({"error": error, "workflow": workflow} for error, workflow in values))
    for wanted, found in {
        "boom": [0], "BOOM: 100": [0], "100%": [0], "%": [0], "_": [1], "a_b": [1], "axb": [], "/": [2], "\\": [3],
        "OTHER": [4], ids[1][:18].upper(): [1], "' OR 1=1 --": [], "ü": [5], "\0": [], "w\0": [],
    }.items():  # fmt: skip
        page = await Queries(database).executions(Filter(text=wanted))
        assert [item.id for item in page.items] == [ids[n] for n in found], wanted


async def test_a_search_looks_at_so_many_rows_and_goes_on_behind_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SEARCHED", 10)
    ids = await put_executions(database, *({"error": "needle" if n in (0, 17, 18, 30) else "hay"} for n in range(35)))
    queries = Queries(database)
    pages, cursor = [], ""
    while True:
        page = await queries.executions(Filter(text="needle"), cursor=cursor, limit=5)
        pages.append([ids.index(item.id) for item in page.items])
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert pages == [[30], [18, 17], [], [0]]
    assert await all_ids(lambda c: queries.executions(Filter(text="needle"), cursor=c, limit=1)) == [
        ids[n] for n in (30, 18, 17, 0)
    ]


async def test_text_that_cannot_be_stored_is_refused_or_not_found(database: Database) -> None:
    queries = Queries(database)
    await started(database)
    for bad in ("\0", "\ud800"):
        for ask in (
            lambda bad=bad: queries.executions(Filter(text=bad)),
            lambda bad=bad: queries.executions(Filter(workflow=bad)),
            lambda bad=bad: queries.executions(Filter(workflow=bad), cursor=bad),
            lambda bad=bad: queries.dead_letters(workflow=bad),
            lambda bad=bad: queries.versions(bad),
        ):
            try:
                assert (await ask()).items == []
            except BadValue:
                continue
    with pytest.raises(BadValue):
        await queries.executions(Filter(since_ms=1 << 70))


# ---- one execution


async def test_a_node_has_its_last_attempt_in_this_run_or_its_completion(database: Database) -> None:
    execution_id = await started(database)
    await opened(database, execution_id, "e1")
    events = Chain(database, execution_id, "e1")
    fatal = failure("fatal")
    await events.add(Change("a", "T", 1, failure("error")), Change("b", "C", 1, '"b"'), Change("c", "F", 1, fatal))
    await events.add(Change("a", "C", 2, '"a"'), status="F", error=fatal)
    await Acceptance(database).retry(execution_id, "ann")
    await opened(database, execution_id, "e2")
    await Chain(database, execution_id, "e2", run=2).add(Change("c", "R", 1, "worker"))
    readings = Readings(database)
    stored = await readings.execution(execution_id)
    assert stored is not None
    assert (stored.run, stored.epoch, stored.definition) == (2, "e2", definition().to_json())
    latest = await readings.latest_attempts(execution_id, 2)
    assert {name: (one.run, one.attempt, one.state) for name, one in latest.items()} == {
        "a": (1, 2, "COMPLETED"), "b": (1, 1, "COMPLETED"), "c": (2, 1, "RUNNING"),
    }  # fmt: skip
    assert [(one.run, one.attempt) for one in await readings.attempts_of(execution_id, "a")] == [(1, 1), (1, 2)]
    assert [(one.run, one.state) for one in await readings.attempts_of(execution_id, "c")] == [
        (1, "FAILED"), (2, "RUNNING"),
    ]  # fmt: skip
    assert await readings.outputs(execution_id, ["a", "b", "c", "nobody"]) == {"a": '"a"', "b": '"b"'}
    assert await readings.execution("nobody") is None


async def test_attempts_of_all_nodes_by_the_time_when_they_were_queued(database: Database) -> None:
    execution_id, other = await started(database), await started(database)
    chance = random.Random(7)
    states = ("QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "SKIPPED")
    made = [
        {"node": f"n{n}", "run": run, "attempt": attempt, "state": chance.choice(states), "error": f"{n}"}
        for n, run, attempt in itertools.product(range(9), (1, 2), (1, 2, 3))
    ]
    times = [dict.fromkeys(("queued_ms", "finished_ms"), None) for _ in made]
    for each in times:
        each[chance.choice(("queued_ms", "finished_ms", "none"))] = 10**12 + chance.randrange(5)
        each.pop("none", None)
    listed = [one | when | {"execution_id": execution_id} for one, when in zip(made, times, strict=True)]
    chance.shuffle(listed)
    await put(database, attempts, *listed, *({**one, "execution_id": other} for one in listed[:5]))
    expected = sorted(
        listed,
        key=lambda one: (one["queued_ms"] or one["finished_ms"] or 0, one["node"], one["run"], one["attempt"]),
    )
    readings = Readings(database)
    for limit in (1, 7, 53, 54, 1000):
        found, cursor = [], ""
        while True:
            page = await readings.attempts(execution_id, cursor=cursor, limit=limit)
            assert len(page.items) <= limit
            found += page.items
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert [(one.node, one.run, one.attempt, one.state, one.error) for one in found] == [
            (one["node"], one["run"], one["attempt"], one["state"], one["error"]) for one in expected
        ]
        assert {(one.run, one.attempt) for one in found if not one.is_followed} == {(2, 3)}
    assert (await readings.attempts("nobody")).items == []
    for bad in ("x", "1-2-3", "1-2-x-n"):
        with pytest.raises(BadValue):
            await readings.attempts(execution_id, cursor=bad)


# ---- definitions


async def test_workflows_by_name_each_with_its_newest_version(database: Database) -> None:
    queries = Queries(database)
    wanted = [definition(f"w{n % 5}", n) for n in range(12)]
    for each in wanted:
        await Acceptance(database).submit([submission(each)])
    page = await queries.workflows()
    assert [(item.name, item.version) for item in page.items] == [("w0", 3), ("w1", 3), ("w2", 2), ("w3", 2), ("w4", 2)]
    for limit in (1, 2, 5):
        names = await all_ids(lambda cursor, n=limit: queries.workflows(cursor=cursor, limit=n), "name")
        assert names == ["w0", "w1", "w2", "w3", "w4"]
    newest = page.items[0]
    assert (newest.content_hash, newest.id) == (
        wanted[10].content_hash, (await row(database, definitions, name="w0", version=3))["id"],
    )  # fmt: skip
    assert await all_ids(lambda cursor: queries.versions("w0", cursor=cursor, limit=2), "version") == [3, 2, 1]
    assert await queries.versions("nobody") == Page([], None)
    with pytest.raises(BadValue):
        await queries.versions("w0", cursor="x")
    readings = Readings(database)
    assert await readings.definition("w0", None) == wanted[10].to_json()
    assert await readings.definition("w0", 1) == wanted[0].to_json()
    assert await readings.definition("w0", 9) is None
    assert await Openings(database).definitions([newest.id]) == {newest.id: wanted[10].to_json()}


# ---- dead letters, audit, counts


async def test_dead_letters_by_status_and_workflow(database: Database) -> None:
    queries = Queries(database)
    execution_id = await started(database)
    letter = {"execution_id": execution_id, "run": 1, "attempt": 1, "cause": "fatal", "error": "{}", "created_ms": 1}
    for number, (status, workflow) in enumerate(itertools.product(("OPEN", "RETRIED", "DROPPED"), ("v", "w"))):
        key = {"id": f"l{number}", "node": f"n{number}", "status": status, "workflow": workflow}
        await put(database, dead_letters, letter | key)
    assert await all_ids(lambda cursor: queries.dead_letters(cursor=cursor, limit=1)) == ["l1", "l0"]
    assert await all_ids(lambda _: queries.dead_letters(workflow="v")) == ["l0"]
    assert await all_ids(lambda _: queries.dead_letters(status="DROPPED", workflow="w")) == ["l5"]
    everything = await all_ids(lambda cursor: queries.dead_letters(status=None, cursor=cursor, limit=4))
    assert everything == ["l5", "l4", "l3", "l2", "l1", "l0"]
    one = await queries.dead_letter("l3")
    assert one is not None
    assert (one.node, one.status, one.workflow) == ("n3", "RETRIED", "w")
    assert await queries.dead_letter("nobody") is None


async def test_the_trail_newest_first(database: Database) -> None:
    queries = Queries(database)
    execution_id, other = await started(database), await started(database)
    await Acceptance(database).cancel(execution_id, "bob")
    assert await all_ids(lambda cursor: queries.audit(cursor=cursor, limit=2), "execution_id") == [
        execution_id, other, execution_id,
    ]  # fmt: skip
    mine = (await queries.audit(execution_id=execution_id)).items
    assert [(line.actor, line.action) for line in mine] == [("bob", "cancel"), ("ann", "start")]
    assert mine[0].at_ms >= mine[1].at_ms > 0


async def test_counts(database: Database) -> None:
    queries = Queries(database)
    assert await queries.counts() == Counts(running=0, dead_letters=0, set_aside=0)
    ids = [await started(database) for _ in range(3)]
    for execution_id in ids:
        await opened(database, execution_id, "e1")
    fatal = failure("fatal")
    await Chain(database, ids[0], "e1").add(Change("a", "F", 1, fatal), status="F", error=fatal)
    await Chain(database, ids[1], "e1").add(Change("a", "?", 1))
    assert await queries.counts() == Counts(running=2, dead_letters=1, set_aside=1)


# ---- plans

# One line per row; both databases understand it. NUMBERS is a table of them, called n.
FILL = (
    """INSERT INTO executions (id, definition_id, workflow, version, partition, status, run, epoch, last_event,
         cancelled_run, created_ms)
       SELECT '00000000-' || substr(CAST(10000000 + n AS VARCHAR(8)), 1, 4) || '-7000-8000-0000'
                || CAST(10000000 + n AS VARCHAR(8)),
              (SELECT min(id) FROM definitions), 'w' || CAST(n % 1000 AS VARCHAR(8)), 1, 0,
              CASE WHEN n % 100 = 0 THEN 'RUNNING' WHEN n % 10 = 0 THEN 'FAILED' ELSE 'COMPLETED' END,
              1, '', '', 0, n FROM NUMBERS""",
    """INSERT INTO attempts (execution_id, node, run, attempt, state)
       SELECT (SELECT min(id) FROM executions), 'n' || CAST(n AS VARCHAR(8)), 1, 1, 'COMPLETED' FROM NUMBERS""",
    """INSERT INTO dead_letters (id, execution_id, run, node, attempt, workflow, cause, error, status, created_ms)
       SELECT 'l' || CAST(10000000 + n AS VARCHAR(8)), (SELECT min(id) FROM executions), 1,
              'n' || CAST(n AS VARCHAR(8)), 1, 'w', 'fatal', '', CASE WHEN n % 10 = 0 THEN 'OPEN' ELSE 'RETRIED' END, n
       FROM NUMBERS""",
    """INSERT INTO audit (id, at_ms, actor, action, execution_id)
       SELECT 'a' || CAST(10000000 + n AS VARCHAR(8)), n, 'ann', 'start', 'x' || CAST(n AS VARCHAR(8)) FROM NUMBERS""",
    """INSERT INTO definitions (id, name, version, content_hash, body, created_ms)
       SELECT 'd' || CAST(n AS VARCHAR(8)), 'w' || CAST(n % 1000 AS VARCHAR(8)), n, CAST(n AS VARCHAR(8)), '', n
       FROM NUMBERS""",
    "INSERT INTO restarts (execution_id, node, run) SELECT id, 'n77', 1 FROM executions WHERE status <> 'COMPLETED'",
)


async def fill(database: Database) -> str:
    """A hundred thousand executions, enough in the other tables; the id of the execution that has all the attempts."""
    await started(database)

    def numbers(last: int) -> str:
        if database.is_sqlite:
            return f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {last}) SELECT n FROM c)"
        return f"(SELECT n FROM generate_series(1, {last}) AS n) AS numbers"

    async with database.write() as connection:
        if not database.is_sqlite:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))  # no look at foreign keys
        for number, statement in enumerate(FILL):
            await connection.execute(text(statement.replace("NUMBERS", numbers(MANY // 5 if number else MANY))))
        if not database.is_sqlite:  # it would do so by itself, later
            await connection.execute(text("ANALYZE"))
        found = await connection.scalar(text("SELECT min(id) FROM executions"))
    return str(found)


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.startswith(("SELECT", "DELETE", "UPDATE")):
            seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


async def plan(database: Database, statement: str, parameters: Any) -> str:
    how = "EXPLAIN QUERY PLAN " if database.is_sqlite else "EXPLAIN "
    async with database.read() as connection:
        found = await connection.exec_driver_sql(how + statement, tuple(parameters))
        return "\n".join(str(line[-1]) for line in found)


async def test_every_list_goes_by_an_index(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand rows, the first page and one far behind: no plan reads a whole table, or sorts it."""
    monkeypatch.setattr(module, "MOST_SEARCHED", 1000)
    big = await fill(database)
    queries, readings, openings = Queries(database), Readings(database), Openings(database)
    middle = (await queries.executions(Filter(until_ms=MANY // 2))).items[0].id
    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        "all": queries.executions,
        "far behind": lambda: queries.executions(cursor=middle),
        "status": lambda: queries.executions(Filter(status="RUNNING")),
        "status far behind": lambda: queries.executions(Filter(status="RUNNING"), cursor=middle),
        "no such status": lambda: queries.executions(Filter(status="PENDING")),
        "workflow": lambda: queries.executions(Filter(workflow="w7")),
        "no such workflow": lambda: queries.executions(Filter(workflow="nobody")),
        "both": lambda: queries.executions(Filter(status="FAILED", workflow="w10"), cursor=middle),
        "since": lambda: queries.executions(Filter(since_ms=MANY - 10)),
        "search": lambda: queries.executions(Filter(text="needle")),
        "search behind": lambda: queries.executions(Filter(text="needle", status="FAILED"), cursor=middle),
        "workflows": lambda: queries.workflows(cursor="w5"),
        "versions": lambda: queries.versions("w5"),
        "dead letters": queries.dead_letters,
        "dead letters behind": lambda: queries.dead_letters(cursor="l10010000"),
        "dead letters of a workflow": lambda: queries.dead_letters(workflow="w"),
        "one dead letter": lambda: queries.dead_letter("l10010000"),
        "audit": queries.audit,
        "audit of one": lambda: queries.audit(execution_id="x7", cursor="a10010000"),
        "one execution": lambda: readings.execution(big),
        "attempts of a node": lambda: readings.attempts_of(big, "n77"),
        "outputs": lambda: readings.outputs(big, ["n77", "n78"]),
        "attempts": lambda: readings.attempts(middle, cursor="0-1-1-n77"),
        "a definition": lambda: readings.definition("w5", None),
        "to open": lambda: openings.running(0, 1, middle),
    }
    for name, ask in asked.items():
        with statements() as seen:
            await ask()
        assert seen
        for statement, parameters in seen:
            found = await plan(database, statement, parameters)
            whole = ["SCAN executions\n", "SCAN attempts"] if database.is_sqlite else ["Seq Scan"]
            if name not in ("workflows", "attempts"):  # where the page is sorted after a join, or one execution is
                whole.append("TEMP B-TREE")
            assert not [each for each in whole if each in f"{found}\n"], f"{name}: {statement}\n{found}"
            assert "INDEX" in found.upper() or "PRIMARY KEY" in found.upper(), f"{name}: {statement}\n{found}"


async def test_a_search_among_many_while_others_write(database: Database) -> None:
    """Reading does not wait for writing, nor writing for reading."""
    for _ in range(20):
        await started(database)
    queries = Queries(database)
    async with database.write() as connection:
        await connection.execute(set_aside.delete())
        await connection.execute(attempts.delete())
        await connection.execute(audit.delete())
        pages = await asyncio.gather(*(queries.executions(Filter(text="w"), limit=20) for _ in range(5)))
    assert [len(page.items) for page in pages] == [20] * 5
