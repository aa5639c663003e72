"""Submit, trigger, retry and cancel: each once, however many ask at the same time, each with its line in the trail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from sqlalchemy import update

from headrace.errors import BadValue
from headrace.record.acceptance import Acceptance, Accepted, Idempotency, KeyReused, Now, Restart, Submission
from headrace.record.database import Database
from headrace.record.tables import audit, dead_letters, definitions, executions, idempotency_keys, restarts
from tests.conformance.record.rows import definition, put, row, rows, started, submission

MANY = 50
TAKERS = 20


async def submit(database: Database, *wanted: Submission) -> list[Accepted]:
    answers = await Acceptance(database).submit(wanted)
    assert all(isinstance(answer, Accepted) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Accepted)]


async def end(database: Database, execution_id: str, status: str) -> None:
    async with database.write() as connection:
        await connection.execute(update(executions).where(executions.c.id == execution_id).values(status=status))


# ---- submit


async def test_a_submission_is_written_down_whole(database: Database) -> None:
    asked = submission(definition("w", 7), input_text=None)
    (accepted,) = await submit(database, asked)
    stored = await row(database, executions, id=accepted.execution_id)
    kept = await row(database, definitions, id=accepted.definition_id)
    assert (stored["status"], stored["run"], stored["input"], stored["epoch"]) == ("PENDING", 0, None, "")
    assert (stored["workflow"], stored["version"], stored["definition_id"]) == ("w", 1, kept["id"])
    assert (kept["body"], kept["content_hash"]) == (asked.definition.to_json(), asked.definition.content_hash)
    line = await row(database, audit)
    assert (line["actor"], line["action"], line["execution_id"]) == ("ann", "submit", accepted.execution_id)


async def test_with_an_input_it_runs_at_once(database: Database) -> None:
    (accepted,) = await submit(database, submission(input_text='{"x":1}'))
    stored = await row(database, executions, id=accepted.execution_id)
    assert (stored["status"], stored["run"], stored["input"]) == ("RUNNING", 1, '{"x":1}')
    assert (await row(database, audit))["action"] == "start"


async def test_the_same_content_is_the_same_version_and_a_change_the_next(database: Database) -> None:
    wanted = [definition("w", 0), definition("w", 1), definition("w", 0), definition("other", 0), definition("w", 2)]
    answers = await submit(database, *map(submission, wanted))
    assert [each.version for each in answers] == [1, 2, 1, 1, 3]
    assert answers[0].definition_id == answers[2].definition_id != answers[1].definition_id
    (again,) = await submit(database, submission(definition("w", 1)))
    assert (again.version, again.definition_id) == (2, answers[1].definition_id)


async def test_versions_have_no_gaps_and_no_doubles_under_concurrency(database: Database) -> None:
    answers = await asyncio.gather(*(submit(database, submission(definition("w", n))) for n in range(MANY)))
    assert sorted(each.version for (each,) in answers) == list(range(1, MANY + 1))
    assert sorted(kept["version"] for kept in await rows(database, definitions)) == list(range(1, MANY + 1))


async def test_the_same_new_content_is_one_version_under_concurrency(database: Database) -> None:
    answers = await asyncio.gather(*(submit(database, submission(definition("w", n % 2))) for n in range(MANY)))
    assert {each.version for (each,) in answers} == {1, 2}
    assert len(await rows(database, definitions)) == 2
    assert len(await rows(database, executions)) == MANY


async def test_batches_in_opposite_orders_do_not_wait_for_each_other_in_a_circle(database: Database) -> None:
    def batch(reverse: bool) -> list[Submission]:
        wanted = [submission(definition(f"w{n}", n), key=Idempotency("ann", f"k{n}", "body")) for n in range(TAKERS)]
        return wanted[::-1] if reverse else wanted

    answers = await asyncio.gather(*(submit(database, *batch(n % 2 == 1)) for n in range(8)))
    names = [f"w{n}" for n in range(TAKERS)]
    assert sorted(kept["name"] for kept in await rows(database, definitions)) == sorted(names)
    kept = {each["id"]: each["workflow"] for each in await rows(database, executions)}
    assert len(kept) == TAKERS
    for number, accepted in enumerate(answers):  # each answer stands where its question stood
        assert [kept[each.execution_id] for each in accepted] == (names[::-1] if number % 2 else names)


async def test_a_refused_submission_takes_its_whole_batch_back(database: Database) -> None:
    asked = submission(definition("good"))
    bad = replace(submission(definition("bad")), actor="\ud800")
    with pytest.raises(BadValue):
        await Acceptance(database).submit([asked, bad])
    assert await rows(database, executions) == await rows(database, definitions) == await rows(database, audit) == []
    assert (await submit(database, asked))[0].version == 1


# ---- idempotency keys


async def test_equal_requests_with_one_key_are_one_execution(database: Database) -> None:
    key = Idempotency("ann", "k", "body")
    answers = await asyncio.gather(*(submit(database, submission(key=key)) for _ in range(MANY)))
    assert len({(each.execution_id, each.definition_id, each.version) for (each,) in answers}) == 1
    assert sum(each.is_new for (each,) in answers) == 1
    assert len(await rows(database, executions)) == len(await rows(database, audit)) == 1


async def test_equal_requests_in_one_batch_are_one_execution(database: Database) -> None:
    key = Idempotency("ann", "k", "body")
    answers = await submit(database, *(submission(key=key) for _ in range(3)))
    assert [each.is_new for each in answers] == [True, False, False]
    assert len({each.execution_id for each in answers}) == 1


async def test_another_body_with_the_same_key_is_refused_and_changes_nothing(database: Database) -> None:
    (first,) = await submit(database, submission(key=Idempotency("ann", "k", "one")))
    other = submission(definition("w", 1), key=Idempotency("ann", "k", "two"))
    assert await Acceptance(database).submit([other]) == [KeyReused()]
    assert [each["id"] for each in await rows(database, executions)] == [first.execution_id]
    assert len(await rows(database, definitions)) == 1


async def test_keys_belong_to_their_owner(database: Database) -> None:
    answers = await submit(
        database,
        submission(key=Idempotency("ann", "k", "body")),
        submission(key=Idempotency("bob", "k", "body")),
        submission(key=Idempotency("ann", "K", "body")),
    )
    assert len({each.execution_id for each in answers}) == 3


async def test_a_key_whose_transaction_failed_is_free(database: Database) -> None:
    key = Idempotency("ann", "k", "body")
    with pytest.raises(BadValue):
        await Acceptance(database).submit([replace(submission(key=key), actor="\ud800")])
    assert await rows(database, idempotency_keys) == []
    assert (await submit(database, submission(key=key)))[0].is_new


# ---- trigger, retry, cancel


async def test_one_trigger_wins(database: Database) -> None:
    (accepted,) = await submit(database, submission(input_text=None))
    acceptance = Acceptance(database)
    answers = await asyncio.gather(
        *(acceptance.trigger(accepted.execution_id, f'{{"n":{n}}}', f"actor {n}") for n in range(TAKERS))
    )
    (winner,) = [n for n, answer in enumerate(answers) if answer is not None and answer.done]
    assert set(answers) == {Now("RUNNING", 1, done=True), Now("RUNNING", 1, done=False)}
    assert (await row(database, executions))["input"] == f'{{"n":{winner}}}'
    assert [line["actor"] for line in await rows(database, audit, action="trigger")] == [f"actor {winner}"]


@pytest.mark.parametrize("ended", ["FAILED", "CANCELLED"])
async def test_one_retry_wins(database: Database, ended: str) -> None:
    execution_id = await started(database)
    await end(database, execution_id, ended)
    acceptance = Acceptance(database)
    answers = await asyncio.gather(*(acceptance.retry(execution_id, "bob") for _ in range(TAKERS)))
    assert answers.count(Now("RUNNING", 2, done=True)) == 1
    assert answers.count(Now("RUNNING", 2, done=False)) == TAKERS - 1
    stored = await row(database, executions)
    assert (stored["status"], stored["run"], stored["error"], stored["finished_ms"]) == ("RUNNING", 2, None, None)
    assert len(await rows(database, audit, action="retry", actor="bob")) == 1


async def test_a_cancel_is_done_once_and_may_be_repeated(database: Database) -> None:
    execution_id = await started(database)
    acceptance = Acceptance(database)
    answers = await asyncio.gather(*(acceptance.cancel(execution_id, "bob") for _ in range(TAKERS)))
    assert set(answers) == {Now("RUNNING", 1, done=True)}
    assert len(await rows(database, audit, action="cancel")) == 1
    assert (await row(database, executions))["cancelled_run"] == 1
    await end(database, execution_id, "CANCELLED")
    assert await acceptance.cancel(execution_id, "bob") == Now("CANCELLED", 1, done=False)
    await acceptance.retry(execution_id, "bob")
    assert await acceptance.cancel(execution_id, "bob") == Now("RUNNING", 2, done=True)
    assert (await row(database, executions))["cancelled_run"] == 2


Action = Callable[[Acceptance, str], Awaitable[Now | None]]
ACTIONS: dict[str, tuple[Action, set[str]]] = {
    "trigger": (lambda acceptance, x: acceptance.trigger(x, "{}", "ann"), {"PENDING"}),
    "retry": (lambda acceptance, x: acceptance.retry(x, "ann"), {"FAILED", "CANCELLED"}),
    "cancel": (lambda acceptance, x: acceptance.cancel(x, "ann"), {"RUNNING"}),
}
FROM_A = Restart(["a"], ["a", "b"])


@pytest.mark.parametrize("action", ACTIONS)
async def test_what_the_state_does_not_allow_changes_nothing(database: Database, action: str) -> None:
    act, allowed = ACTIONS[action]
    for status in ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"):
        execution_id = await started(database)
        await end(database, execution_id, status)
        before = await row(database, executions, id=execution_id)
        answer = await act(Acceptance(database), execution_id)
        assert answer is not None
        assert answer.done == (status in allowed)
        if not answer.done:
            assert answer == Now(status, 1, done=False)
            assert await row(database, executions, id=execution_id) == before
        assert len(await rows(database, audit, action=action, execution_id=execution_id)) == (status in allowed)


@pytest.mark.parametrize("action", ACTIONS)
async def test_nobody_acts_on_an_execution_that_is_not_there(database: Database, action: str) -> None:
    assert await ACTIONS[action][0](Acceptance(database), "nobody") is None
    assert await rows(database, audit) == []


async def test_a_retry_settles_the_open_dead_letters(database: Database) -> None:
    execution_id, other = await started(database), await started(database)
    letter = {"run": 1, "attempt": 1, "workflow": "w", "cause": "fatal", "error": "{}", "created_ms": 1}
    for number, (of, status) in enumerate([(execution_id, "OPEN"), (execution_id, "DROPPED"), (other, "OPEN")]):
        key = {"id": f"l{number}", "execution_id": of, "node": f"n{number}", "status": status}
        await put(database, dead_letters, letter | key)
    await end(database, execution_id, "FAILED")
    await Acceptance(database).retry(execution_id, "ann")
    assert [each["status"] for each in await rows(database, dead_letters)] == ["RETRIED", "DROPPED", "OPEN"]


# ---- restart


async def test_one_restart_wins_and_is_written_down_with_its_run(database: Database) -> None:
    execution_id = await started(database)
    await end(database, execution_id, "COMPLETED")
    acceptance = Acceptance(database)
    asked = [Restart([f"n{n}"], [f"n{n}", "last"]) for n in range(TAKERS)]
    answers = await asyncio.gather(*(acceptance.retry(execution_id, "bob", restart=each) for each in asked))
    (winner,) = [n for n, answer in enumerate(answers) if answer == Now("RUNNING", 2, done=True)]
    found = {each["node"]: each["run"] for each in await rows(database, restarts)}
    assert found == {f"n{winner}": 2, "last": 2}
    assert [line["detail"] for line in await rows(database, audit, action="retry")] == [f"from n{winner}"]
    assert (await row(database, executions))["done"] is None


async def test_the_last_restart_of_a_node_counts(database: Database) -> None:
    execution_id, other = await started(database), await started(database)
    acceptance = Acceptance(database)
    for each, restart in ((execution_id, FROM_A), (other, FROM_A), (execution_id, Restart(["b"], ["b"]))):
        await end(database, each, "FAILED")
        await acceptance.retry(each, "ann", restart=restart)
    found = {(each["execution_id"], each["node"]): each["run"] for each in await rows(database, restarts)}
    assert found == {(execution_id, "a"): 2, (execution_id, "b"): 3, (other, "a"): 2, (other, "b"): 2}


async def test_a_restart_that_the_state_does_not_allow_leaves_nothing(database: Database) -> None:
    for status in ("PENDING", "RUNNING"):
        execution_id = await started(database)
        await end(database, execution_id, status)
        assert await Acceptance(database).retry(execution_id, "ann", restart=FROM_A) == Now(status, 1, done=False)
    assert await Acceptance(database).retry("nobody", "ann", restart=FROM_A) is None
    assert await rows(database, restarts) == await rows(database, audit, action="retry") == []


async def test_a_restart_of_very_many_nodes_is_one_transaction(database: Database) -> None:
    execution_id = await started(database)
    await end(database, execution_id, "COMPLETED")
    nodes = [f"n{n}" for n in range(20_000)]
    await Acceptance(database).retry(execution_id, "ann", restart=Restart(["n0"], nodes))
    assert len(await rows(database, restarts)) == len(nodes)
