"""`headrace.testing` as its users meet it: real runs, doubles, results, and the fixture in a pytest of their own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import examples.handlers
import pytest

from headrace import Context, Fatal, Retry, Workflow, handler
from headrace.errors import HandlerNotFound, HeadraceError, InvalidDefinition, InvalidInput
from headrace.testing import LocalEngine, NodeResult, Source, arun_workflow, context, run_workflow
from tests.roles import GIVE_UP_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"

GREETING = """
name: greeting
inputs:
  name: {type: string, default: World}
nodes:
  - {id: greet, handler: greet, config: {name: "{{ input.name }}"}}
  - {id: done, handler: output, dependencies: [greet], config: {text: "{{ greet.text }}"}}
"""


@handler("greet")
async def greet(config: dict[str, Any]) -> dict[str, str]:
    return {"text": f"Hello {config['name']}"}


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine() as started:
        yield started


def one_node(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "nodes": [{"id": "a", "handler": "work", **fields}]}


def greeting_in_python() -> Workflow:
    wf = Workflow("greeting", inputs={"name": {"type": "string", "default": "World"}})
    greeted = wf.node("greet", "greet", config={"name": wf.input.name})
    wf.node("done", "output", config={"text": greeted.text})
    return wf


# Definitions and inputs


def test_one_run_on_a_server_of_its_own() -> None:
    result = run_workflow(GREETING, {"name": "Rome"}, handlers=[greet])
    assert result.ok
    assert (result.workflow, result.status, result.output) == ("greeting", "COMPLETED", {"text": "Hello Rome"})
    assert result.nodes["greet"] == NodeResult("greet", "greet", "COMPLETED", 1, {"text": "Hello Rome"}, None, None)
    assert result.error is None
    assert result.raise_for_status() is result
    assert repr(result) == "<greeting COMPLETED: output={'text': 'Hello Rome'}>"


@pytest.mark.parametrize("kind", ["text", "path", "path as text", "dict", "workflow", "definition"])
def test_every_form_of_a_definition(engine: LocalEngine, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "greeting.yaml"
    file.write_text(GREETING)
    forms: dict[str, Source] = {
        "text": GREETING,
        "path": file,
        "path as text": str(file),
        "dict": greeting_in_python().to_dict(),
        "workflow": greeting_in_python(),
        "definition": greeting_in_python().definition(),
    }
    assert engine.run(forms[kind], handlers=greet).output == {"text": "Hello World"}


def test_an_invalid_definition_tells_all_problems(engine: LocalEngine) -> None:
    text = "name: wrong\nnodes:\n  - {id: a, handler: nobody}\n  - {id: b, handler: output, dependencies: [c]}\n"
    with pytest.raises(InvalidDefinition) as caught:
        engine.run(text)
    assert "line 3: node a: there is no handler nobody" in str(caught.value)
    assert "line 4: node b" in str(caught.value)
    wf = Workflow("wrong")
    wf.node("a", "output", config={"x": "{{ b.x }}"})
    wf.node("c", "nobody")
    with pytest.raises(InvalidDefinition, match=r"node a: .*no node b.*node c: there is no handler nobody"):
        engine.run(wf)


def test_inputs_are_checked(engine: LocalEngine) -> None:
    with pytest.raises(InvalidInput, match="there is no input nam"):
        engine.run(GREETING, {"nam": "x"}, handlers=[greet])
    with pytest.raises(FileNotFoundError):
        engine.run("nowhere.yaml")


# Handlers


@pytest.mark.parametrize("given", ["examples.handlers", ["examples.handlers"], [examples.handlers], examples.handlers])
def test_modules_of_handlers(engine: LocalEngine, given: Any) -> None:
    wf = Workflow("words")
    wf.node("count", "count_words", config={"text": "one two"})
    assert engine.run(wf, handlers=given).nodes["count"].output == {"text": "one two", "words": 2}


def test_a_function_replaces_any_handler_of_its_name(engine: LocalEngine) -> None:
    given: list[dict[str, Any]] = []

    @handler("count_words")
    def count(config: dict[str, Any], ctx: Context) -> int:
        given.append(config)
        return ctx.attempt

    double = handler("output")(lambda config: {"double": config})
    wf = Workflow("doubles")
    words = wf.node("count", "count_words", config={"text": "one two"})
    wf.node("done", "output", config={"words": words.result})
    assert engine.run(wf, handlers=["examples.handlers", count, double]).output == {"double": {"words": 1}}
    assert given == [{"text": "one two"}]


def test_what_is_no_handler(engine: LocalEngine) -> None:
    with pytest.raises(HeadraceError, match=r"mark it with @handler"):
        engine.run(GREETING, handlers=[lambda config: None])
    with pytest.raises(HandlerNotFound, match="there is no module no_such_module"):
        engine.run(GREETING, handlers=["no_such_module"])


# Failures, retries, settings


def test_a_failure_is_a_result_that_says_what_happened(engine: LocalEngine) -> None:
    both_run = threading.Barrier(2)

    @handler("fail")
    def fail(config: dict[str, Any]) -> None:
        both_run.wait(GIVE_UP_SECONDS)
        raise Fatal("the service is gone")

    @handler("last")
    def last(config: dict[str, Any]) -> str:
        both_run.wait(GIVE_UP_SECONDS)
        return "recorded"

    wf = Workflow("failing")
    failed = wf.node("failed", "fail")
    wf.node("beside", "last")
    wf.node("after", "output", dependencies=[failed])
    result = engine.run(wf, handlers=[fail, last])
    assert not result.ok
    assert result.error is not None
    assert result.error["node"] == "failed"
    assert result.nodes["beside"].output == {"result": "recorded"}
    assert result.nodes["after"].reason == "upstream_failed"
    told = ["failed FAILED after 1 attempt: Fatal: the service is gone", "after SKIPPED: upstream_failed"]
    assert repr(result) == f"<failing FAILED: {'; '.join(told)}>"
    with pytest.raises(AssertionError, match=re.escape("\n  ".join(("failing FAILED", *told)))):
        result.raise_for_status()


def test_retries_do_not_wait(engine: LocalEngine) -> None:
    @handler("work")
    async def work(config: dict[str, Any], ctx: Context) -> int:
        if ctx.attempt < 3:
            raise Retry("busy")
        return ctx.attempt

    policy = {"max_retries": 2, "initial_delay": 3600, "max_delay": 3600, "jitter": False}
    result = engine.run(one_node(retry_config=policy), handlers=[work]).raise_for_status()
    assert result.nodes["a"].attempt == 3
    assert engine.run(one_node(), handlers=[work], settings={"RETRY_MAX_RETRIES": 1}).nodes["a"].attempt == 2


def test_delays_can_be_kept(engine: LocalEngine) -> None:
    tried = threading.Event()

    @handler("work")
    async def work(config: dict[str, Any]) -> None:
        tried.set()
        raise Retry("busy")

    policy = {"initial_delay": 3600, "max_delay": 3600}
    with pytest.raises(TimeoutError, match=r"one did not end within 2 seconds:\n  a "):
        engine.run(one_node(retry_config=policy), handlers=[work], fast_retries=False, timeout_seconds=2)
    assert tried.is_set()


def test_settings(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    work = handler("work")(lambda config: "x" * 200)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    assert engine.run(one_node(), handlers=work).ok
    result = engine.run(one_node(), handlers=work, settings={"MAX_OUTPUT_BYTES": 100})
    assert result.error is not None
    assert result.error["code"] == "bad_output"
    with pytest.raises(TypeError, match="there is no setting RETRIES"):
        engine.run(one_node(), handlers=work, settings={"RETRIES": 1})


# Time, loops and servers


@pytest.mark.parametrize("blocks", [False, True], ids=["async", "sync"])
def test_what_takes_too_long_is_told_and_left_behind(engine: LocalEngine, blocks: bool) -> None:
    release = threading.Event()
    calls: list[str] = []

    @handler("work")
    async def waits(config: dict[str, Any], ctx: Context) -> None:
        calls.append(ctx.execution_id)
        await asyncio.Event().wait()

    @handler("work")
    def waits_in_a_thread(config: dict[str, Any], ctx: Context) -> None:
        calls.append(ctx.execution_id)
        release.wait(GIVE_UP_SECONDS)

    wf = Workflow("slow")
    wf.node("after", "output", dependencies=[wf.node("stuck", "work")])
    try:
        with pytest.raises(TimeoutError) as caught:
            engine.run(wf, handlers=[waits_in_a_thread if blocks else waits], timeout_seconds=3)
    finally:
        release.set()
    assert str(caught.value) == "slow did not end within 3 seconds:\n  stuck RUNNING\n  after PENDING"
    next_calls: list[str] = []
    assert engine.run(one_node(), handlers=handler("work")(_noting(next_calls))).ok
    assert len(calls) == len(next_calls) == 1
    assert calls != next_calls


def _noting(calls: list[str]) -> Callable[[dict[str, Any], Context], None]:
    def note(config: dict[str, Any], ctx: Context) -> None:
        calls.append(ctx.execution_id)

    return note


async def test_in_a_running_loop(engine: LocalEngine) -> None:
    with pytest.raises(RuntimeError, match="await arun or arun_workflow instead"):
        engine.run(GREETING, handlers=[greet])
    with pytest.raises(RuntimeError, match="await arun or arun_workflow instead"):
        run_workflow(GREETING, handlers=[greet])

    @handler("greet")
    async def on_this_loop(config: dict[str, Any]) -> dict[str, bool]:
        return {"text": asyncio.get_running_loop() is loop}

    loop = asyncio.get_running_loop()
    assert (await arun_workflow(GREETING, handlers=[on_this_loop])).output == {"text": True}


async def test_runs_at_the_same_time_do_not_meet(engine: LocalEngine) -> None:
    together = asyncio.Barrier(3)

    def double(number: int) -> Callable[..., Any]:
        async def work(config: dict[str, Any]) -> int:
            await together.wait()
            return number

        return handler("work")(work)

    results = await asyncio.gather(*(engine.arun(one_node(), handlers=double(number)) for number in range(3)))
    assert [result.output for result in results] == [{"a": {"result": number}} for number in range(3)]


def test_a_context_to_call_a_handler_with() -> None:
    made = context(node_id="flaky", attempt=2)
    assert asyncio.run(examples.handlers.flaky(examples.handlers.Flaky(fails=1), made)) == {"attempts": 2}
    assert (made.idempotency_key, made.deadline) == ("test:1:flaky", None)
    assert context(idempotency_key="mine").idempotency_key == "mine"


# A pytest of somebody else


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_the_page_about_testing_is_true(tmp_path: Path, options: list[str]) -> None:
    project, scratch = tmp_path / "project", tmp_path / "scratch"
    project.mkdir()
    scratch.mkdir()
    blocks = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    for name, text in (*blocks, ("pytest.ini", INI)):
        (project / name).write_text(text)
    tests = sum(len(re.findall(r"^(?:async )?def test_", text, flags=re.MULTILINE)) for _, text in blocks)
    assert tests >= 4
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=project,
        env={**os.environ, "TMPDIR": str(scratch), "REDIS_URL": "redis://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{tests} passed" in ended.stdout
    assert "warning" not in ended.stdout
    assert [path.name for path in scratch.iterdir() if path.name.startswith("headrace")] == []
    assert not (project / ".headrace").exists()
