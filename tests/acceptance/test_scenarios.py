"""Whole workflows on the real engine: what users are promised, one scenario each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Conflict, ExecutionNotFound, InvalidInput
from headrace.model.messages import Report, Task
from headrace.worker.registry import Registry
from tests import ledger as book
from tests.roles import InProcess, definition, node, quick_settings, until


def states(view: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["status"] for each in view["nodes"]}


def reasons(view: dict[str, Any]) -> dict[str, str | None]:
    return {each["id"]: each["reason"] for each in view["nodes"]}


def noted(ledger: Path, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"ledger": str(ledger), "value": value, **more}


async def test_linear_passes_data_on(engine: InProcess, ledger: Path) -> None:
    chain = definition(
        node("A", config=noted(ledger, "{{ input.start }}")),
        node("B", "A", config=noted(ledger, "{{ A.value + 1 }}")),
        node("C", "B", config=noted(ledger, "{{ A.value }}/{{ B.value }}")),
        inputs={"start": {"type": "integer"}},
    )
    view = await engine.ended(await engine.engine.start(chain, {"start": 41}))
    assert view["status"] == "COMPLETED"
    assert view["output"] == {"C": {"value": "41/42"}}
    assert [call["node"] for call in book.read(ledger)] == ["A", "B", "C"]
    assert view["input_params"] == {"start": 41}


async def test_fan_in_gets_both_outputs(engine: InProcess, ledger: Path) -> None:
    diamond = definition(
        node("A", config=noted(ledger, [1, 2])),
        node("B", "A", config=noted(ledger, "{{ A.value[0] }}")),
        node("C", "A", config=noted(ledger, "{{ A.value[1] }}")),
        node("D", "B", "C", handler="output", config={"sum": "{{ B.value + C.value }}", "list": "{{ A.value }}"}),
    )
    view = await engine.ended(await engine.engine.start(diamond))
    assert view["output"] == {"sum": 3, "list": [1, 2]}
    assert Counter(call["node"] for call in book.read(ledger)) == {"A": 1, "B": 1, "C": 1}


async def test_children_are_queued_in_the_order_of_the_definition(
    roles: InProcess, registry: Registry, ledger: Path
) -> None:
    names = [f"n{i:03}" for i in range(50)]
    fan = definition(
        node("root", config=noted(ledger)), *(node(name, "root", config=noted(ledger)) for name in reversed(names))
    )
    roles.orchestrator()
    roles.worker(registry, quick_settings(WORKER_CONCURRENCY=1))
    await roles.ended(await roles.engine.start(fan))
    assert [call["node"] for call in book.read(ledger)] == ["root", *reversed(names)]


async def test_retries_then_succeeds_under_one_idempotency_key(engine: InProcess, ledger: Path) -> None:
    flaky = definition(node("A", handler="fail", config=noted(ledger, "ok", fails=2)))
    view = await engine.ended(await engine.engine.start(flaky))
    assert view["status"] == "COMPLETED"
    assert view["nodes"][0]["attempt"] == 3
    calls = book.read(ledger)
    assert [call["attempt"] for call in calls] == [1, 2, 3]
    assert len({call["key"] for call in calls}) == 1


async def test_retries_run_out(engine: InProcess, ledger: Path) -> None:
    hopeless = definition(
        node("A", handler="fail", config=noted(ledger, fails=99), retry_config={"max_retries": 2}),
        node("B", "A", config=noted(ledger)),
        node("C", config=noted(ledger)),
    )
    view = await engine.ended(await engine.engine.start(hopeless))
    assert view["status"] == "FAILED"
    assert view["error"]["node"] == "A"
    assert "not yet" in view["error"]["message"]
    assert len([call for call in book.read(ledger) if call["node"] == "A"]) == 3
    assert states(view) == {"A": "FAILED", "B": "SKIPPED", "C": "COMPLETED"}
    assert reasons(view)["B"] == "upstream_failed"


async def test_an_explicit_delay_is_kept_and_holds_no_slot(roles: InProcess, registry: Registry, ledger: Path) -> None:
    roles.orchestrator()
    roles.worker(registry, quick_settings(WORKER_CONCURRENCY=1))
    waits = definition(
        node("waits", handler="fail", config=noted(ledger, fails=1, after=1.0)),
        *(node(f"other{i}", config=noted(ledger)) for i in range(5)),
    )
    await roles.ended(await roles.engine.start(waits))
    calls = book.read(ledger)
    first, second = (call for call in calls if call["node"] == "waits")
    assert second["at"] - first["at"] >= 1.0
    assert [call["node"] for call in calls][-1] == "waits", "the only slot was free for the others meanwhile"


async def test_fail_fast_skips_what_has_not_started_and_records_what_was_running(
    engine: InProcess, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    graph = definition(
        node("slow", config=noted(ledger, "kept", gate=str(gate))),
        node("breaks", handler="break", config=noted(ledger)),
        node("after_slow", "slow", config=noted(ledger)),
        node("after_break", "breaks", config=noted(ledger)),
    )
    execution_id = await engine.engine.start(graph)
    await until(lambda: len(book.read(ledger)) == 2, "both are running")
    await until(lambda: _is(engine, execution_id, "FAILED"), "fail_fast")
    with pytest.raises(Conflict, match="still running"):
        await engine.engine.retry(execution_id)
    gate.touch()
    view = await engine.ended(execution_id)
    assert states(view) == {"slow": "COMPLETED", "breaks": "FAILED", "after_slow": "SKIPPED", "after_break": "SKIPPED"}
    assert reasons(view) == {
        "slow": None, "breaks": None, "after_slow": "execution_failed", "after_break": "upstream_failed"
    }  # fmt: skip
    assert {call["node"] for call in book.read(ledger)} == {"slow", "breaks"}


async def test_the_next_run_keeps_what_is_complete(engine: InProcess, ledger: Path) -> None:
    graph = definition(
        node("A", config=noted(ledger, "a")),
        node("B", "A", handler="break", config=noted(ledger, "b", only_run=1)),
        node("C", "A", "B", config=noted(ledger, "{{ A.value }}{{ B.value }}")),
    )
    execution_id = await engine.engine.start(graph)
    assert (await engine.ended(execution_id))["status"] == "FAILED"
    assert await engine.engine.retry(execution_id) == 2
    view = await engine.ended(execution_id)
    assert (view["status"], view["run"], view["error"]) == ("COMPLETED", 2, None)
    assert view["output"] == {"C": {"value": "ab"}}
    calls = [(call["run"], call["node"]) for call in book.read(ledger)]
    assert calls == [(1, "A"), (1, "B"), (2, "B"), (2, "C")]
    assert len({call["key"] for call in book.read(ledger) if call["node"] == "B"}) == 2, "a new run, a new key"
    with pytest.raises(Conflict):
        await engine.engine.retry(execution_id)


async def test_the_next_run_of_a_large_execution(engine: InProcess, ledger: Path) -> None:
    """More completed nodes than fit into one slice of `open`."""
    names = [f"n{i}" for i in range(2500)]
    graph = definition(
        *(node(name, handler="output", config={"x": i}) for i, name in enumerate(names)),
        node("breaks", *names, handler="break", config=noted(ledger, "{{ n7.x + n2499.x }}", only_run=1)),
    )
    execution_id = await engine.engine.start(graph)
    assert (await engine.ended(execution_id))["status"] == "FAILED"
    await engine.engine.retry(execution_id)
    view = await engine.ended(execution_id)
    assert view["status"] == "COMPLETED"
    assert {each["attempt"] for each in view["nodes"]} == {1}
    assert len(book.read(ledger)) == 2


async def test_continue_goes_on_with_other_branches(engine: InProcess, ledger: Path) -> None:
    graph = definition(
        node("breaks", handler="break", config=noted(ledger)),
        node("below1", "breaks", config=noted(ledger)),
        node("below2", "below1", config=noted(ledger)),
        node("fine", config=noted(ledger)),
        node("after_fine", "fine", config=noted(ledger)),
        node("both", "below2", "after_fine", config=noted(ledger)),
        on_failure="continue",
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["status"] == "FAILED"
    assert states(view) == {
        "breaks": "FAILED", "below1": "SKIPPED", "below2": "SKIPPED",
        "fine": "COMPLETED", "after_fine": "COMPLETED", "both": "SKIPPED",
    }  # fmt: skip
    assert reasons(view)["both"] == "upstream_failed"


async def test_continue_with_many_failures_above_many_nodes(engine: InProcess, ledger: Path) -> None:
    """Every node is skipped once, however many failures lie above it."""
    width = 300
    graph = definition(
        *(node(f"top{i}", handler="break", config=noted(ledger)) for i in range(20)),
        *(node(f"mid{i}", *(f"top{k}" for k in range(20)), handler="output") for i in range(width)),
        node("end", *(f"mid{i}" for i in range(width)), handler="output"),
        on_failure="continue",
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["status"] == "FAILED"
    assert Counter(states(view).values()) == {"FAILED": 20, "SKIPPED": width + 1}


async def test_cancel_reaches_running_handlers(engine: InProcess, ledger: Path, tmp_path: Path) -> None:
    graph = definition(
        node("A", config=noted(ledger, gate=str(tmp_path / "never"))), node("B", "A", config=noted(ledger))
    )
    execution_id = await engine.engine.start(graph)
    await until(lambda: book.read(ledger), "A runs")
    await engine.engine.cancel(execution_id)
    [cancelled] = await until(lambda: book.read(ledger, "cancelled"), "the handler is cancelled", within=5)
    view = await engine.ended(execution_id)
    assert view["status"] == "CANCELLED"
    assert states(view) == {"A": "CANCELLED", "B": "CANCELLED"}
    assert cancelled["node"] == "A"
    with pytest.raises(Conflict):
        await engine.engine.cancel(execution_id)


async def test_a_cancelled_execution_can_be_retried(engine: InProcess, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = definition(node("A", config=noted(ledger, 1)), node("B", "A", config=noted(ledger, 2, gate=str(gate))))
    execution_id = await engine.engine.start(graph)
    await until(lambda: len(book.read(ledger)) == 2, "B runs")
    await engine.engine.cancel(execution_id)
    gate.touch()
    assert await engine.engine.retry(execution_id) == 2
    assert (await engine.ended(execution_id))["status"] == "COMPLETED"
    assert [(call["run"], call["node"]) for call in book.read(ledger)] == [(1, "A"), (1, "B"), (2, "B")]


async def test_node_timeout_is_retried_and_then_final(engine: InProcess, ledger: Path, tmp_path: Path) -> None:
    graph = definition(
        node(
            "A",
            config=noted(ledger, gate=str(tmp_path / "never")),
            timeout_seconds=0.2,
            retry_config={"max_retries": 1},
        )
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["status"] == "FAILED"
    assert view["error"]["code"] == "timeout"
    assert len(book.read(ledger)) == 2
    assert len(book.read(ledger, "cancelled")) == 2


async def test_execution_timeout(engine: InProcess, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = definition(
        node("A", config=noted(ledger, gate=str(gate))), node("B", "A", config=noted(ledger)), timeout_seconds=0.3
    )
    execution_id = await engine.engine.start(graph)
    await until(lambda: _is(engine, execution_id, "FAILED"), "the deadline")
    gate.touch()
    view = await engine.ended(execution_id)
    assert view["error"] == {"code": "timeout", "message": "the execution took longer than its timeout_seconds"}
    assert states(view) == {"A": "COMPLETED", "B": "SKIPPED"}
    assert reasons(view)["B"] == "execution_failed"


async def test_execution_timeout_holds_without_any_worker(roles: InProcess, ledger: Path) -> None:
    roles.orchestrator()
    view = await roles.ended(await roles.engine.start(definition(node("A", config=noted(ledger)), timeout_seconds=0.2)))
    assert view["status"] == "FAILED"
    assert states(view) == {"A": "SKIPPED"}


async def test_a_template_that_cannot_be_rendered_fails_its_node(engine: InProcess, ledger: Path) -> None:
    graph = definition(
        node("A", config=noted(ledger, {"x": 1})), node("B", "A", config=noted(ledger, "{{ A.value.y }}"))
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["status"] == "FAILED"
    error = view["error"]
    assert (error["node"], error["code"]) == ("B", "template")
    for part in ("A.value.y", "config.value", "{{ A.value.y }}"):
        assert part in error["message"]


async def test_inputs_are_checked_before_anything_starts(engine: InProcess, ledger: Path) -> None:
    graph = definition(
        node("A", config=noted(ledger)),
        inputs={"n": {"type": "integer"}, "city": {"type": "string", "default": "Berlin"}},
    )
    with pytest.raises(InvalidInput):
        await engine.engine.start(graph, {"n": "many"})
    view = await engine.ended(await engine.engine.start(graph, {"n": 1}))
    assert view["input_params"] == {"n": 1, "city": "Berlin"}


async def test_a_handler_that_nobody_offers_fails_after_a_while(
    roles: InProcess, registry: Registry, ledger: Path
) -> None:
    roles.settings = quick_settings(HANDLER_MISSING_TIMEOUT=0.3)
    roles.orchestrator()
    roles.worker(registry)
    view = await roles.ended(await roles.engine.start(definition(node("A", handler="nobody", config=noted(ledger)))))
    assert view["status"] == "FAILED"
    assert view["error"]["code"] == "no_handler"


async def test_what_has_ended_can_be_forgotten(engine: InProcess, ledger: Path) -> None:
    execution_id = await engine.engine.start(definition(node("A", config=noted(ledger))))
    await engine.ended(execution_id)
    assert await engine.engine.forget(execution_id)
    with pytest.raises(ExecutionNotFound):
        await engine.engine.read(execution_id)


async def test_outputs_are_merged_in_the_order_of_the_definition(engine: InProcess) -> None:
    graph = definition(
        node("first", "second", handler="output", config={"a": 1, "b": 1}),
        node("second", handler="output", config={"b": 2, "c": 2}),
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["output"] == {"a": 1, "b": 2, "c": 2}


async def test_a_bad_answer_fails_its_node_and_harms_nobody_else(engine: InProcess, ledger: Path) -> None:
    graph = definition(
        node("A", handler="output", config={"text": "x" * 1000}),
        node("B", "A", handler="output", config={"big": "{{ A.text }}" * 1500}),
    )
    view = await engine.ended(await engine.engine.start(graph))
    assert view["error"]["code"] == "bad_output"
    assert (await engine.ended(await engine.engine.start(definition(node("A", config=noted(ledger))))))[
        "status"
    ] == "COMPLETED"


async def test_a_wide_fan_in_and_a_long_chain(engine: InProcess) -> None:
    names = [f"n{i}" for i in range(3000)]
    fan = definition(
        node("root", handler="output", config={"x": 1}),
        *(node(name, "root", handler="output", config={"x": "{{ root.x }}"}) for name in names),
        node("end", *names, handler="output", config={"last": "{{ n2999.x }}"}),
    )
    chain = definition(
        node("c0", handler="output", config={"x": 0}),
        *(
            node(f"c{i}", f"c{i - 1}", handler="output", config={"x": f"{{{{ c{i - 1}.x + 1 }}}}"})
            for i in range(1, 400)
        ),
    )
    first, second = await engine.engine.start(fan), await engine.engine.start(chain)
    assert (await engine.ended(first))["output"]["last"] == 1
    assert (await engine.ended(second))["output"]["x"] == 399


async def _is(engine: InProcess, execution_id: str, status: str) -> bool:
    return bool((await engine.engine.read(execution_id))["status"] == status)


async def test_a_template_that_reads_nothing_and_fails_fails_its_node(engine: InProcess) -> None:
    view = await engine.ended(
        await engine.engine.start(definition(node("A", handler="output", config={"x": "{{ 1 / 0 }}"})))
    )
    assert (view["status"], view["error"]["code"]) == ("FAILED", "template")


@pytest.mark.parametrize("outcome", ["", "no json", '{"output": "no json"}', '{"output": "' + "[" * 5000 + '"}', "{}"])
async def test_a_report_that_makes_no_sense_fails_its_node(roles: InProcess, outcome: str) -> None:
    """A worker of another version, or a broken one: the execution must not hang on it."""
    roles.orchestrator()
    execution_id = await roles.engine.start(definition(node("A", handler="h")))
    partition = roles.store.partition_of(execution_id)

    async def claim() -> list[Task]:
        return (await roles.store.claim(partition, "w", 1, 60_000, ["h"]))[0]

    [task] = await until(claim, "the task")
    await roles.store.report(partition, [Report(task.token, outcome)])
    view = await roles.ended(execution_id)
    assert (view["status"], view["error"]["code"]) == ("FAILED", "bad_output")
