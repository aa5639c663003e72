"""`LocalEngine.retry`: the next run of a workflow that failed, in somebody's test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Context, Fatal, Workflow, handler
from headrace.errors import Conflict, InvalidDefinition
from headrace.testing import LocalEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine() as started:
        yield started


def costly_then_broken() -> Workflow:
    wf = Workflow("costly", inputs={"n": {"type": "integer"}})
    paid = wf.node("paid", "pay", config={"amount": wf.input.n})
    broken = wf.node("broken", "work", config={"paid": paid.result})
    wf.node("done", "output", config={"answer": broken.result})
    return wf


class Calls:
    """Handlers that write down who called them, as node and run."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.is_repaired = False

        @handler("pay")
        async def pay(config: dict[str, Any], ctx: Context) -> int:
            self.seen.append((ctx.node_id, ctx.run))
            return int(config["amount"])

        @handler("work")
        def work(config: dict[str, Any], ctx: Context) -> int:
            self.seen.append((ctx.node_id, ctx.run))
            if not self.is_repaired:
                raise Fatal("broken")
            return int(config["paid"]) + 1

        self.handlers = [pay, work]


def test_what_is_complete_is_kept(engine: LocalEngine) -> None:
    calls = Calls()
    failed = engine.run(costly_then_broken(), {"n": 41}, handlers=calls.handlers)
    assert (failed.status, failed.run) == ("FAILED", 1)
    again = engine.retry(failed, handlers=calls.handlers)
    assert (again.status, again.run, again.execution_id) == ("FAILED", 2, failed.execution_id)
    calls.is_repaired = True
    done = engine.retry(again, handlers=calls.handlers).raise_for_status()
    assert (done.run, done.output) == (3, {"answer": 42})
    assert done.nodes["paid"] == failed.nodes["paid"]
    assert calls.seen == [("paid", 1), ("broken", 1), ("broken", 2), ("broken", 3)]
    with pytest.raises(Conflict, match="costly cannot be retried: only what FAILED on this engine can"):
        engine.retry(done, handlers=calls.handlers)


def test_other_runs_in_between_change_nothing(engine: LocalEngine) -> None:
    calls, others = Calls(), Calls()
    failed = engine.run(costly_then_broken(), {"n": 1}, handlers=calls.handlers)
    other = engine.run(costly_then_broken(), {"n": 2}, handlers=others.handlers)
    calls.is_repaired = others.is_repaired = True
    assert engine.run(costly_then_broken(), {"n": 3}, handlers=others.handlers).output == {"answer": 4}
    assert engine.retry(failed, handlers=calls.handlers).output == {"answer": 2}
    assert engine.retry(other, handlers=others.handlers).output == {"answer": 3}
    assert calls.seen == [("paid", 1), ("broken", 1), ("broken", 2)]


async def test_in_a_running_loop(engine: LocalEngine) -> None:
    calls = Calls()
    failed = await engine.arun(costly_then_broken(), {"n": 1}, handlers=calls.handlers)
    with pytest.raises(RuntimeError, match="await aretry instead"):
        engine.retry(failed, handlers=calls.handlers)
    calls.is_repaired = True
    assert (await engine.aretry(failed, handlers=calls.handlers)).output == {"answer": 2}


def test_handlers_must_be_given_again(engine: LocalEngine) -> None:
    calls = Calls()
    failed = engine.run(costly_then_broken(), {"n": 1}, handlers=calls.handlers)
    with pytest.raises(InvalidDefinition, match="there is no handler pay"):
        engine.retry(failed)
    calls.is_repaired = True
    assert engine.retry(failed, handlers=calls.handlers).ok


def test_of_another_engine(engine: LocalEngine) -> None:
    calls = Calls()
    failed = engine.run(costly_then_broken(), {"n": 1}, handlers=calls.handlers)
    with LocalEngine() as other, pytest.raises(Conflict, match="only what FAILED on this engine"):
        other.retry(failed, handlers=calls.handlers)
