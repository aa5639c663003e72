"""Handlers in processes of their own: real children, real kills."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.model.messages import Failure, Outcome, Task
from headrace.worker.attempt import Attempts
from headrace.worker.isolation_child import Job, Load, frame
from headrace.worker.registry import Registry

MODULE = """
import asyncio, json, os, re, subprocess, sys, time
from pathlib import Path
from pydantic import BaseModel, ConfigDict
from datetime import date
from headrace import Context, Fatal, Retry, handler

class Dated(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date

class BothAtOnce(OSError, json.JSONDecodeError):
    def __init__(self):
        json.JSONDecodeError.__init__(self, "bad", "x", 0)

@handler("iso_pid", isolation="process")
def pid(config):
    return {"pid": os.getpid(), "here": sys.argv[0]}

@handler("iso_async", isolation="process")
async def on_a_loop(config):
    await asyncio.sleep(0)
    return os.getpid()

@handler("iso_context", isolation="process")
def context(config: Dated, ctx: Context):
    assert isinstance(config, Dated)
    return [config.day.year, ctx.execution_id, ctx.node_id, ctx.run, ctx.attempt, ctx.idempotency_key,
            ctx.deadline and ctx.deadline.isoformat(), ctx.log.bind()._context["run"]]

@handler("iso_echo", isolation="process")
def echo(config):
    return config

@handler("iso_prints", isolation="process")
def prints(config):
    print("printed by a handler")
    os.write(1, b"written by a handler\\n")
    subprocess.run(["echo", "echoed by a program"], check=True)
    return sys.stdin.read()

@handler("iso_busy", isolation="process")
def busy(config):
    if config.get("grandchild"):
        config["grandchild"] = subprocess.Popen(["sleep", "600"]).pid
    temporary = Path(config["tell"] + ".new")
    temporary.write_text(f"{os.getpid()} {config.get('grandchild', 0)}")
    temporary.rename(config["tell"])
    if config.get("hold_the_interpreter"):
        re.match("(a|a)*$", "a" * 60 + "b")
    while True:
        pass

@handler("iso_ends", isolation="process")
def ends(config):
    os._exit(7)

@handler("iso_raises", isolation="process")
def raises(config):
    raise eval(config["error"])

@handler("iso_raises_async", isolation="process")
async def raises_async(config):
    raise eval(config["error"])

@handler("here_raises")
async def raises_here(config):
    raise eval(config["error"])

@handler("iso_secret", isolation="process")
def secret(config, ctx):
    if config["what"] == "log":
        ctx.log.error("the token", token=config["token"])
        try:
            raise ValueError(config["token"])
        except ValueError:
            ctx.log.exception("failed")
    if config["what"] == "raise":
        raise Fatal("x" * 1990 + config["token"])
    return {"length": len(config["token"]), "token": config["token"]}

@handler("iso_bad_output", isolation="process")
def bad_output(config):
    return {"n": float("nan")}

@handler("iso_loads_slowly", isolation="process")
def loads_slowly(config):
    return "in time"

if "isolation_child" in sys.argv[0]:
    time.sleep(float(os.environ.get("SLOW_IMPORT", "0")))
"""
SOON = 30.0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"isolated_{os.getpid()}_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
async def attempts(module: str) -> AsyncIterator[Attempts]:
    made = Attempts(Registry.load([module]), concurrency=2, max_output_bytes=2 << 20)
    yield made
    await made.aclose()


def task(name: str, config: Any = None, timeout_seconds: float | None = None) -> Task:
    payload = msgspec.json.encode({"config": config or {}, "timeout_seconds": timeout_seconds}).decode()
    return Task(execution_id="x1", epoch="e", run=2, node="n", attempt=3, handler=name, payload=payload)


def output(outcome: Outcome) -> Any:
    assert outcome.output is not None, outcome.failure
    return msgspec.json.decode(outcome.output)


def failure(outcome: Outcome) -> Failure:
    assert outcome.failure is not None, outcome.output
    return outcome.failure


def is_running(pid: int) -> bool:
    """A zombie has ended: whoever should reap it may be slow, or nobody at all in a container."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


async def started(attempts: Attempts, tell: Path, timeout_seconds: float | None = None, **more: Any) -> Any:
    """A busy handler that has begun: the attempt, the handler's process and the one that it started, if asked."""
    config = {"tell": str(tell), **more}
    running = asyncio.create_task(attempts.run(task("iso_busy", config, timeout_seconds)))
    await until(tell.exists)
    pid, grandchild = told(tell)
    assert is_running(pid)
    return running, pid, grandchild


def told(tell: Path) -> tuple[int, int]:
    pid, grandchild = map(int, tell.read_text().split())
    return pid, grandchild


async def test_a_child_is_another_process_and_used_again(attempts: Attempts) -> None:
    first = output(await attempts.run(task("iso_pid")))
    assert first["pid"] != os.getpid()
    assert output(await attempts.run(task("iso_pid"))) == first
    assert output(await attempts.run(task("iso_async")))["result"] == first["pid"]


async def test_it_gets_a_model_and_its_context(attempts: Attempts) -> None:
    got = output(await attempts.run(task("iso_context", {"day": "2026-01-02"}, 60)))["result"]
    assert got[:6] == [2026, "x1", "n", 2, 3, "x1:2:n"]
    assert re.match(r"20\d\d-.*\+00:00$", got[6])
    assert got[7] == 2
    assert output(await attempts.run(task("iso_context", {"day": "2026-01-02"})))["result"][6] is None


async def test_a_bad_config_never_reaches_a_child(attempts: Attempts) -> None:
    assert failure(await attempts.run(task("iso_context", {"day": 1}))).code == "bad_config"
    assert not attempts._children._all


async def test_no_more_children_than_allowed(attempts: Attempts) -> None:
    async with asyncio.timeout(SOON):
        done = await asyncio.gather(*[attempts.run(task("iso_pid")) for _ in range(12)])
    assert 1 <= len({output(outcome)["pid"] for outcome in done}) <= 2


async def test_large_configs_and_outputs(attempts: Attempts) -> None:
    config = {"text": "ä" * (1 << 19), "list": list(range(10_000))}
    assert output(await attempts.run(task("iso_echo", config))) == config


async def test_what_a_handler_prints_goes_to_stderr(attempts: Attempts, capfd: pytest.CaptureFixture[str]) -> None:
    assert output(await attempts.run(task("iso_prints"))) == {"result": ""}
    printed = capfd.readouterr()
    assert printed.out == ""
    for line in ("printed by a handler", "written by a handler", "echoed by a program"):
        assert line in printed.err


async def test_a_bad_output(attempts: Attempts) -> None:
    failed = failure(await attempts.run(task("iso_bad_output")))
    assert (failed.code, failed.retryable) == ("bad_output", False)


async def test_a_timeout_ends_a_busy_loop_while_the_event_loop_stays_free(attempts: Attempts, tmp_path: Path) -> None:
    await attempts.run(task("iso_pid"))  # a child is there
    running, pid, grandchild = await started(attempts, tmp_path / "tell", timeout_seconds=1.5, grandchild=True)
    turns = 0
    while not running.done():
        await asyncio.sleep(0.01)
        turns += 1
    failed = failure(await running)
    assert (failed.code, failed.retryable) == ("timeout", True)
    assert turns > 5
    assert not is_running(pid)
    await until(lambda: not is_running(grandchild))
    assert attempts.lingering == 0
    assert output(await attempts.run(task("iso_pid")))["pid"] != pid


async def test_loading_does_not_count_as_the_handlers_time(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_IMPORT", "1.2")
    assert output(await attempts.run(task("iso_loads_slowly", timeout_seconds=1))) == {"result": "in time"}


async def test_a_cancelled_attempt_kills_its_child(attempts: Attempts, tmp_path: Path) -> None:
    running, pid, _ = await started(attempts, tmp_path / "tell")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(pid)


async def test_a_cancelled_start_loses_no_process(attempts: Attempts) -> None:
    for turns in range(12):
        running = asyncio.create_task(attempts.run(task("iso_pid")))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(attempts._children._all) <= 2
    assert output(await attempts.run(task("iso_pid")))
    assert attempts._children._all == set(attempts._children._idle)


async def test_a_child_killed_from_outside(attempts: Attempts, tmp_path: Path) -> None:
    running, pid, _ = await started(attempts, tmp_path / "tell")
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(SOON):
        failed = failure(await running)
    assert (failed.code, failed.retryable) == ("crashed", True)
    assert "SIGKILL" in failed.message


async def test_a_child_that_ends_by_itself(attempts: Attempts) -> None:
    failed = failure(await attempts.run(task("iso_ends")))
    assert (failed.code, failed.retryable) == ("crashed", True)
    assert "exit status 7" in failed.message
    assert output(await attempts.run(task("iso_pid")))


async def test_an_idle_child_that_died_is_replaced(attempts: Attempts) -> None:
    pid = output(await attempts.run(task("iso_pid")))["pid"]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: all(child.exited.done() for child in attempts._children._idle))
    assert output(await attempts.run(task("iso_pid")))["pid"] != pid


async def test_a_handler_that_the_child_cannot_load(attempts: Attempts, module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise RuntimeError('changed meanwhile')\n")
    importlib.invalidate_caches()
    failed = failure(await attempts.run(task("iso_pid")))
    assert (failed.code, failed.retryable) == ("error", False)
    assert "changed meanwhile" in failed.message


@pytest.mark.parametrize(
    "error",
    [
        "Retry('later', after=2.5)",
        "Fatal('never')",
        "TimeoutError('slow')",
        "ValueError('bad')",
        "KeyError('bad')",
        "RuntimeError('\\ud800\\0' + 'x' * 5000)",
        "BothAtOnce()",
        "SystemExit(3)",
        "asyncio.CancelledError('from inside')",
        "ExceptionGroup('many', [RuntimeError('a'), Fatal('b')])",
    ],
)
async def test_errors_are_classified_as_in_our_own_process(attempts: Attempts, error: str) -> None:
    here = failure(await attempts.run(task("here_raises", {"error": error})))
    for name in ("iso_raises", "iso_raises_async"):
        there = failure(await attempts.run(task(name, {"error": error})))
        if "CancelledError" in error:  # a cancelled task does not keep the text
            there, here = (msgspec.structs.replace(each, message="") for each in (there, here))
        assert there == here
    assert len(attempts._children._all) == 1  # none of these ends a child


async def test_closing_ends_all_children(module: str, tmp_path: Path) -> None:
    attempts = Attempts(Registry.load([module]), concurrency=2, max_output_bytes=1000)
    running, busy, _ = await started(attempts, tmp_path / "tell")
    idle = output(await attempts.run(task("iso_pid")))["pid"]
    await attempts.aclose()
    assert not is_running(busy)
    assert not is_running(idle)
    assert failure(await running).retryable


PARENT = """
import asyncio, json, os, sys
from headrace.model.messages import Task
from headrace.worker.attempt import Attempts
from headrace.worker.registry import Registry

async def main():
    attempts = Attempts(Registry.load([sys.argv[1]]), concurrency=2, max_output_bytes=1000)
    task = Task("x", "e", 1, "n", 1, "iso_busy", json.dumps({"config": json.loads(sys.argv[2])}))
    if sys.argv[3] == "idle":
        outcome = await attempts.run(Task("x", "e", 1, "n", 1, "iso_pid", '{"config": {}}'))
        print(json.loads(outcome.output)["pid"], flush=True)
        await asyncio.sleep(600)
    await attempts.run(task)

asyncio.run(main())
"""


def a_parent(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PARENT, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def test_the_end_of_the_lifeline_alone_ends_a_busy_child(module: str, tmp_path: Path) -> None:
    """On Linux the kernel would do it too when we die; so here we live on and only let go."""
    config = msgspec.json.encode({"tell": str(tmp_path / "tell"), "grandchild": True})
    job = Job("iso_busy", config, 100, "x", "n", 1, 1, "key", None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", "headrace.worker.isolation_child", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        ours.sendall(frame(Load(module, "iso_busy", sys.path)) + frame(job))
        deadline = time.monotonic() + SOON
        while not (tmp_path / "tell").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert process.wait(SOON) == -signal.SIGKILL
    pid, grandchild = told(tmp_path / "tell")
    assert pid == process.pid
    while is_running(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("doing", ["idle", "busy", "holding the interpreter"])
async def test_a_killed_parent_leaves_no_child(module: str, tmp_path: Path, doing: str) -> None:
    if doing.startswith("holding") and sys.platform != "linux":
        pytest.skip("only the Linux kernel can end a process that never lets its threads run")
    tell = tmp_path / "tell"
    config = {"tell": str(tell), "hold_the_interpreter": doing.startswith("holding")}
    arguments = [module, msgspec.json.encode(config).decode(), doing]
    with a_parent(tmp_path, arguments) as parent:
        try:
            assert parent.stdout
            if doing == "idle":
                pid = int(await asyncio.to_thread(parent.stdout.readline))
            else:
                await until(tell.exists)
                pid, _ = told(tell)
            assert is_running(pid)
        finally:
            parent.kill()
    await until(lambda: not is_running(pid))


async def test_secrets_reach_the_child_and_do_not_come_out_of_it(
    module: str, capfd: pytest.CaptureFixture[str]
) -> None:
    value = "hunter2-of-a-child"
    attempts = Attempts(
        Registry.load([module]), concurrency=1, max_output_bytes=1000, secrets={"T": value}, confidential=[value]
    )

    def secret_task(what: str) -> Task:
        config = {"what": what, "token": "{{ secret.T }}"}
        payload = {"config": config, "secrets": [{"path": ["token"], "pieces": [{"secret": "T"}]}]}
        made = task("iso_secret")
        return Task(**{**msgspec.structs.asdict(made), "payload": msgspec.json.encode(payload).decode()})

    try:
        assert output(await attempts.run(secret_task("return"))) == {"length": len(value), "token": "***"}
        told_message = failure(await attempts.run(secret_task("raise"))).message
        assert told_message == "x" * 1990 + "***"
        await attempts.run(secret_task("log"))
        printed = capfd.readouterr()
        assert '"token":"***"' in printed.err
        assert "ValueError: ***" in printed.err
        assert "hunter2" not in printed.err + printed.out
    finally:
        await attempts.aclose()
