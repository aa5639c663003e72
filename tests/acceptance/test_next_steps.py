"""A worker that knows the plan queues what follows from a result; what it cannot tell it leaves to orchestrators."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace import handler
from headrace.hot.keys import INPUT_FIELD, prefix
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Task
from headrace.worker.next_steps import MOST_CHILDREN, NextSteps
from headrace.worker.registry import Registry
from tests import ledger as book
from tests.roles import InProcess, definition, node, quick_settings, until


@pytest.fixture
def partitions() -> int:
    return 1


def noted(ledger: Path, value: Any = None) -> dict[str, Any]:
    return {"ledger": str(ledger), "value": value}


async def warm(roles: InProcess, registry: Registry, of: Definition, **settings: Any) -> asyncio.Event:
    """A worker that has run the definition once, beside an orchestrator: -> what stops the latter."""
    stop = roles.orchestrator()
    roles.worker(registry, quick_settings(**settings))
    await roles.ended(await roles.engine.start(of))
    return stop


async def gone(roles: InProcess, stop: asyncio.Event) -> None:
    stop.set()
    await until(lambda: len(roles._group._tasks) == 1, "the orchestrator to be gone")


async def test_a_worker_alone_takes_a_workflow_to_its_end(roles: InProcess, registry: Registry, ledger: Path) -> None:
    graph = definition(
        node("A", config=noted(ledger, 2)),
        node("B", "A", config=noted(ledger, "{{ A.value + 1 }}")),
        node("C", "A", config=noted(ledger, "{{ A.value * 2 }}")),
        node("D", "B", "C", config=noted(ledger, "{{ B.value }}/{{ C.value }}")),
        node("E", "D", config=noted(ledger, "{{ D.value }}")),
    )
    await gone(roles, await warm(roles, registry, graph))
    ids = [await roles.engine.start(graph) for _ in range(20)]
    for execution_id in ids:
        view = await roles.ended(execution_id)
        assert view["output"] == {"E": {"value": "3/4"}}
        assert {each["id"]: each["attempt"] for each in view["nodes"]} == dict.fromkeys("ABCDE", 1)
    assert Counter(call["node"] for call in book.read(ledger)) == dict.fromkeys("ABCDE", 1 + len(ids))


async def test_what_children_read_is_fetched_while_the_handler_runs(
    roles: InProcess, store: HotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, open_gate = Registry(), asyncio.Event()
    seen: list[NextSteps] = []
    prepare = NextSteps.prepare

    def prepared(steps: NextSteps, partition: int, task: Task) -> None:
        seen.append(steps)
        prepare(steps, partition, task)

    @handler("gate")
    async def gate(config: dict[str, Any]) -> dict[str, Any]:
        await open_gate.wait()
        return config

    registry.add(gate)
    monkeypatch.setattr(NextSteps, "prepare", prepared)
    graph = definition(
        node("A", handler="gate", config={"x": 1}),
        node("B", "A", handler="gate", config={"x": "{{ A.x }} {{ input.name }}"}),
        inputs={"name": {"type": "string", "default": "nobody"}},
    )
    open_gate.set()
    await gone(roles, await warm(roles, registry, graph))
    open_gate.clear()
    execution_id = await roles.engine.start(graph, {"name": "me"})
    execution = await store.execution(execution_id)
    assert execution is not None
    await until(lambda: seen[-1]._renderer.has(execution_id, execution.epoch, INPUT_FIELD), "the input to be at hand")
    open_gate.set()
    assert (await roles.ended(execution_id))["output"] == {"B": {"x": "1 me"}}


LEFT = {
    "a loop": ({"value": "{% for x in [1] %}{{ x }}{% endfor %}"}, 1, {}, "COMPLETED"),
    "a long template": ({"value": "{{ 1 }}" + "x" * 9000}, 1, {}, "COMPLETED"),
    "too many children": ({}, MOST_CHILDREN + 1, {}, "COMPLETED"),
    "a plan that is too large": ({}, 1, {"WORKER_PLAN_BYTES": 100}, "COMPLETED"),
    "no plans at all": ({}, 1, {"WORKER_PLAN_BYTES": 0}, "COMPLETED"),
    "a config that cannot be rendered": ({"value": "{{ A.nothing }}"}, 1, {}, "FAILED"),
}


@pytest.mark.parametrize("case", LEFT)
async def test_the_rest_is_left_to_the_orchestrators(
    roles: InProcess, registry: Registry, store: HotStore, ledger: Path, case: str
) -> None:
    config, children, settings, status = LEFT[case]
    graph = definition(
        node("A", config=noted(ledger)),
        *(node(f"B{i}", "A", config={**noted(ledger), **config}) for i in range(children)),
    )
    await gone(roles, await warm(roles, registry, graph, **settings))
    execution_id = await roles.engine.start(graph)

    async def told() -> bool:
        return bool(await store._link.call("XLEN", prefix(0) + "results"))

    await until(told, "the worker to leave it to an orchestrator")
    assert (await roles.engine.read(execution_id))["status"] == "RUNNING"
    roles.orchestrator()
    view = await roles.ended(execution_id)
    assert view["status"] == status
    assert all(each["attempt"] == 1 for each in view["nodes"])
    if status == "FAILED":
        assert "A.nothing" in view["error"]["message"]


@pytest.mark.parametrize("part", ["_want", "_report"])
async def test_an_error_in_the_next_step_costs_no_result(
    roles: InProcess, registry: Registry, ledger: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    chain = definition(node("A", config=noted(ledger, 1)), node("B", "A", config=noted(ledger, "{{ A.value }}")))
    await warm(roles, registry, chain)
    monkeypatch.setattr(NextSteps, part, broken)
    for _ in range(2):
        view = await roles.ended(await roles.engine.start(chain))
        assert view["output"] == {"B": {"value": 1}}
