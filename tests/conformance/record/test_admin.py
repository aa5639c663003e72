"""API keys, handlers, dead letters and retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import BadValue
from headrace.model.messages import Change
from headrace.record import retention as module
from headrace.record.acceptance import Acceptance, Accepted, Idempotency
from headrace.record.admin import DeadLetters, Handler, Handlers
from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.ids import first_id
from headrace.record.keys import Keys, key_hash
from headrace.record.retention import KEYS_KEPT_MS, Retention
from headrace.record.tables import (
    api_keys,
    attempts,
    audit,
    dead_letters,
    definitions,
    executions,
    idempotency_keys,
    set_aside,
)
from tests.conformance.record.chains import Chain, failure
from tests.conformance.record.rows import opened, put, row, rows, started, submission

TAKERS = 20
DAY_MS = 24 * 3600 * 1000


# ---- API keys


async def test_a_key_is_shown_once_and_kept_as_a_hash(database: Database) -> None:
    keys = Keys(database)
    made, secret = await keys.create("ci", ["run", "read"], "ann")
    assert secret.startswith("hr_")
    assert len(secret) == len("hr_") + 43  # 256 bits
    assert made.scopes == {"read", "run"}
    stored = await row(database, api_keys)
    assert secret not in str(stored)
    assert secret[3:] not in str(await rows(database, audit))
    assert (stored["hash"], stored["scopes"]) == (key_hash(secret), "read run")
    assert await keys.find(key_hash(secret)) == made
    assert await keys.find(key_hash(secret + "x")) is None
    assert (await row(database, audit))["action"] == "create_key"


async def test_a_revoked_key_is_found_no_more_and_still_listed(database: Database) -> None:
    keys = Keys(database)
    (one, secret), (other, _) = await keys.create("one", ["admin"], "ann"), await keys.create("two", ["read"], "ann")
    answers = await asyncio.gather(*(keys.revoke(one.id, "bob") for _ in range(TAKERS)))
    assert answers.count(True) == 1
    assert await keys.find(key_hash(secret)) is None
    listed = await keys.all()
    assert [(key.id, key.revoked_ms is None) for key in listed] == [(one.id, False), (other.id, True)]
    assert [line["detail"] for line in await rows(database, audit, action="revoke_key")] == [one.id]
    assert not await keys.revoke("nobody", "bob")


async def test_keys_are_all_different(database: Database) -> None:
    made = [await Keys(database).create("same name", ["read"], "ann") for _ in range(5)]
    assert len({secret for _, secret in made}) == len({key.id for key, _ in made}) == 5


async def test_a_bad_key_is_refused(database: Database) -> None:
    for name, scopes in [("", ["read"]), ("x" * 65, ["read"]), ("a\nb", ["read"]), ("a", []), ("a", ["root"])]:
        with pytest.raises(BadValue):
            await Keys(database).create(name, scopes, "ann")
    assert await rows(database, api_keys) == await rows(database, audit) == []


# ---- handlers


async def test_the_handler_that_was_seen_last_counts(database: Database) -> None:
    handlers = Handlers(database)
    await handlers.remember({}, 1)
    assert await handlers.all() == []
    await handlers.remember({"b": '{"v":1}', "a": None}, 10)
    await handlers.remember({"b": '{"v":2}', "c": "{}"}, 20)
    await handlers.remember({"b": '{"v":0}', "c": "{}"}, 5)  # it was late
    assert await handlers.all() == [Handler("a", None, 10), Handler("b", '{"v":2}', 20), Handler("c", "{}", 20)]


async def test_many_workers_may_offer_the_same_handlers_at_once(database: Database) -> None:
    names = [f"h{n}" for n in range(10)]
    handlers = Handlers(database)
    await asyncio.gather(
        *(handlers.remember(dict.fromkeys(names[::-1] if n % 2 else names, f"{n}"), n) for n in range(TAKERS))
    )
    assert await handlers.all() == [Handler(name, f"{TAKERS - 1}", TAKERS - 1) for name in names]


# ---- dead letters


async def failed(database: Database, *nodes: str) -> str:
    execution_id = await started(database)
    await opened(database, execution_id, "e1")
    events = Chain(database, execution_id, "e1")
    fatal = failure("fatal")
    await events.add(*(Change(node, "F", 1, fatal) for node in nodes), status="F", error=fatal)
    return execution_id


async def test_a_dead_letter_is_settled_once(database: Database) -> None:
    letters = DeadLetters(database)
    execution_id = await failed(database, "a", "b")
    first, second = await rows(database, dead_letters)
    answers = await asyncio.gather(
        *(letters.settle(first["id"], "DROPPED" if n % 2 else "RETRIED", f"actor {n}") for n in range(TAKERS))
    )
    (winner,) = [n for n, answer in enumerate(answers) if answer]
    kept = {each["id"]: each["status"] for each in await rows(database, dead_letters)}
    assert kept == {first["id"]: "DROPPED" if winner % 2 else "RETRIED", second["id"]: "OPEN"}
    (line,) = [each for each in await rows(database, audit) if each["action"].endswith("_letter")]
    assert (line["actor"], line["execution_id"], line["detail"]) == (f"actor {winner}", execution_id, first["id"])
    assert line["action"] == ("drop_letter" if winner % 2 else "retry_letter")
    assert not await letters.settle("nobody", "DROPPED", "ann")


async def test_the_dead_letters_of_an_execution_are_settled_together(database: Database) -> None:
    letters = DeadLetters(database)
    execution_id, other = await failed(database, "a", "b"), await failed(database, "a")
    assert await letters.settle_all(execution_id, "DROPPED", "ann") == 2
    assert await letters.settle_all(execution_id, "DROPPED", "ann") == 0
    assert {each["status"] for each in await rows(database, dead_letters, execution_id=execution_id)} == {"DROPPED"}
    assert {each["status"] for each in await rows(database, dead_letters, execution_id=other)} == {"OPEN"}
    assert len(await rows(database, audit, action="drop_letter")) == 2


# ---- retention


async def aged(database: Database, days: float, **values: Any) -> str:
    """An execution that was made so long ago, with attempts, a letter and a line in the trail."""
    made_ms = now_ms() - round(days * DAY_MS)
    pattern = await row(database, executions, id=await started(database))
    async with database.write() as connection:
        await connection.execute(executions.delete().where(executions.c.id == pattern["id"]))
        await connection.execute(audit.delete().where(audit.c.execution_id == pattern["id"]))
    execution_id = first_id(made_ms)
    await put(database, executions, pattern | {"id": execution_id, "created_ms": made_ms, "run": 1} | values)
    key = {"execution_id": execution_id, "run": 1, "attempt": 1}
    await put(database, attempts, *(key | {"node": node, "state": "COMPLETED"} for node in "ab"))
    letter = {"id": execution_id, "node": "a", "workflow": "w", "cause": "", "error": "", "status": "OPEN"}
    await put(database, dead_letters, key | letter | {"created_ms": 1})
    line = {"id": execution_id, "at_ms": 1, "actor": "ann", "action": "start", "execution_id": execution_id}
    await put(database, audit, line)
    return execution_id


def ended(status: str, days: float) -> dict[str, Any]:
    return {"status": status, "finished_ms": now_ms() - round(days * DAY_MS)}


async def drain(retention: Retention, before_ms: int) -> list[int]:
    batches = []
    while count := await retention.delete_ended(before_ms):
        batches.append(count)
    return batches


async def test_what_ended_long_ago_is_deleted_with_all_that_belongs_to_it(database: Database) -> None:
    old = [
        await aged(database, 40 + n, **ended(status, 35))
        for n, status in enumerate(("COMPLETED", "FAILED", "CANCELLED"))
    ]
    kept = [
        await aged(database, 50, **ended("COMPLETED", 20)),  # retried, it ended later
        await aged(database, 51, status="RUNNING"),
        await aged(database, 52, status="PENDING"),
        await aged(database, 10, **ended("COMPLETED", 9)),
    ]
    assert sum(await drain(Retention(database), now_ms() - 30 * DAY_MS)) == len(old)
    assert {each["id"] for each in await rows(database, executions)} == set(kept)
    for table in (attempts, dead_letters, audit):
        assert {each["execution_id"] for each in await rows(database, table)} == set(kept)
    assert len(await rows(database, attempts)) == 2 * len(kept)
    assert len(await rows(database, definitions)) == 1  # versions stay


async def test_batches_are_bounded_by_executions_and_by_attempts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXECUTIONS_TOGETHER", 3)
    for n in range(7):
        await aged(database, 40 + n, **ended("COMPLETED", 35))
    assert await drain(Retention(database), now_ms()) == [3, 3, 1]
    monkeypatch.setattr(module, "ATTEMPTS_TOGETHER", 5)  # each has two
    for n in range(5):
        await aged(database, 40 + n, **ended("COMPLETED", 35))
    assert await drain(Retention(database), now_ms()) == [2, 2, 1]
    monkeypatch.setattr(module, "ATTEMPTS_TOGETHER", 1)  # one that is too large alone goes alone
    for n in range(2):
        await aged(database, 40 + n, **ended("COMPLETED", 35))
    assert await drain(Retention(database), now_ms()) == [1, 1]


async def test_a_retry_and_the_retention_do_not_get_half_of_each_other(database: Database) -> None:
    for n in range(5):
        execution_id = await aged(database, 40 + n, **ended("FAILED", 35))
        now, deleted = await asyncio.gather(
            Acceptance(database).retry(execution_id, "ann"), Retention(database).delete_ended(now_ms())
        )
        left = len(await rows(database, executions, id=execution_id))
        assert (deleted, left) == ((0, 1) if now else (1, 0))
        assert len(await rows(database, attempts, execution_id=execution_id)) == 2 * left


async def test_idempotency_keys_are_kept_for_a_day(database: Database) -> None:
    (first,) = await Acceptance(database).submit([submission(key=Idempotency("ann", "new", "body"))])
    assert isinstance(first, Accepted)
    old = {"owner": "ann", "body_hash": "body", "execution_id": first.execution_id}
    made_ms = now_ms() - KEYS_KEPT_MS - 1000
    await put(database, idempotency_keys, *(old | {"key": f"{n}", "created_ms": made_ms} for n in range(1500)))
    retention = Retention(database)
    assert [await retention.delete_keys() for _ in range(3)] == [1000, 500, 0]
    assert [each["key"] for each in await rows(database, idempotency_keys)] == ["new"]


async def test_an_execution_outlives_its_idempotency_key(database: Database) -> None:
    """Whatever the retention: the answer to a repeated request is there as long as its key."""
    await aged(database, 0.5, **ended("COMPLETED", 0.4))
    assert await Retention(database).delete_ended(now_ms()) == 0
    assert len(await rows(database, executions)) == 1


async def test_events_that_were_set_aside_are_deleted_by_age(database: Database) -> None:
    aside = {"partition": 0, "entry": "1-0", "reason": "", "body": ""}
    times = [now_ms() - 40 * DAY_MS, now_ms() - 20 * DAY_MS]
    await put(database, set_aside, *(aside | {"id": first_id(at_ms), "at_ms": at_ms} for at_ms in times))
    assert await Retention(database).delete_set_aside(now_ms() - 30 * DAY_MS) == 1
    assert [each["at_ms"] for each in await rows(database, set_aside)] == times[1:]
