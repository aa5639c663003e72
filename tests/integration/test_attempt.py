"""One attempt after the other: every way in which a handler can end, or refuse to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from headrace import Context, Fatal, Retry, handler
from headrace.model.messages import Failure, Outcome, Task
from headrace.worker.attempt import Attempts
from headrace.worker.registry import Registry

LIMIT = 1 << 20
SOON = 10.0


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    day: date
    n: int = 0


class Moody(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _explodes(cls, n: int) -> int:
        raise RuntimeError("the validator itself is broken")


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def attempts(registry: Registry) -> AsyncIterator[Attempts]:
    made = Attempts(registry, concurrency=4, max_output_bytes=LIMIT, grace_seconds=0.05)
    yield made
    await made.aclose()


def task(name: str, config: Any = None, timeout_seconds: float | None = None, **more: Any) -> Task:
    payload = msgspec.json.encode({"config": config if config is not None else {}, "timeout_seconds": timeout_seconds})
    return Task(
        **{
            "execution_id": "x1",
            "epoch": "e",
            "run": 2,
            "node": "n",
            "attempt": 3,
            "handler": name,
            "payload": payload.decode(),
            **more,
        }
    )


def add(registry: Registry, function: Callable[..., Any], name: str = "h") -> None:
    registry.add(handler(name)(function))


def failure(outcome: Outcome) -> Failure:
    assert outcome.output is None
    assert outcome.failure is not None
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
    return outcome.failure


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.005)


def both(function: Callable[[], Any]) -> list[Callable[..., Any]]:
    """The same body as an async and as a sync handler."""

    async def on_the_loop(config: Any) -> Any:
        return function()

    def in_a_thread(config: Any) -> Any:
        return function()

    return [on_the_loop, in_a_thread]


async def test_a_handler_gets_its_config_and_context(registry: Registry, attempts: Attempts) -> None:
    seen: list[tuple[Strict, Context]] = []

    async def on_the_loop(config: Strict, ctx: Context) -> Any:
        seen.append((config, ctx))
        return {"thread": threading.current_thread() is threading.main_thread()}

    def in_a_thread(config: Strict, ctx: Context) -> Any:
        seen.append((config, ctx))
        return {"thread": threading.current_thread() is threading.main_thread()}

    add(registry, on_the_loop, "a")
    add(registry, in_a_thread, "s")
    before = datetime.now(UTC)
    assert await attempts.run(task("a", {"day": "2026-01-02"}, 60)) == Outcome(output='{"thread":true}')
    assert await attempts.run(task("s", {"day": "2026-01-02"})) == Outcome(output='{"thread":false}')
    for config, ctx in seen:
        assert config == Strict(day=date(2026, 1, 2))
        assert (ctx.execution_id, ctx.node_id, ctx.run, ctx.attempt) == ("x1", "n", 2, 3)
        assert ctx.idempotency_key == "x1:2:n"
        assert ctx.log.bind()._context["node_id"] == "n"
    assert seen[0][1].deadline is not None
    assert timedelta(seconds=59) < seen[0][1].deadline - before < timedelta(seconds=90)
    assert seen[1][1].deadline is None


@pytest.mark.parametrize(
    ("value", "output"),
    [({"a": [1, None]}, {"a": [1, None]}), ([1], {"result": [1]}), (None, {"result": None}), ("x", {"result": "x"})],
)
async def test_outputs_are_objects(registry: Registry, attempts: Attempts, value: Any, output: Any) -> None:
    for index, function in enumerate(both(lambda: value)):
        add(registry, function, f"h{index}")
        outcome = await attempts.run(task(f"h{index}"))
        assert outcome.output is not None
        assert json.loads(outcome.output) == output


@pytest.mark.parametrize(
    "value",
    [float("nan"), "\ud800", "a\0b", object(), {1: 2}, {"x": "y" * (LIMIT + 1)}, b"\xff"],
    ids=lambda value: repr(value)[:12],
)
async def test_what_cannot_be_stored_is_a_final_failure(registry: Registry, attempts: Attempts, value: Any) -> None:
    for index, function in enumerate(both(lambda: value)):
        add(registry, function, f"h{index}")
        failed = failure(await attempts.run(task(f"h{index}")))
        assert (failed.code, failed.retryable) == ("bad_output", False)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ('{"config": {"day": "2026-01-02", "n": "1"}}', "n: Input should be a valid integer"),
        ('{"config": {"n": 1}}', "day: Field required"),
        ('{"config": {"day": "2026-01-02", "more": 1}}', "more: Extra inputs"),
        ('{"config": [1]}', "config: Input should be an object"),
        ('{"nothing": 1}', "config"),
        ('{"config": ', "truncated"),
        ('{"config": {}, "timeout_seconds": "x"}', "timeout_seconds"),
    ],
)
async def test_a_bad_config_is_final_and_tells_why(
    registry: Registry, attempts: Attempts, payload: str, told: str
) -> None:
    calls: list[Strict] = []
    add(registry, lambda_with(Strict, calls))
    failed = failure(await attempts.run(task("h", payload=payload)))
    assert (failed.code, failed.retryable) == ("bad_config", False)
    assert told in failed.message
    assert not calls


def lambda_with(model: type[BaseModel], calls: list[Any]) -> Callable[..., Any]:
    async def function(config: Any) -> None:
        calls.append(config)

    function.__annotations__["config"] = model
    return function


async def test_a_config_for_a_dict_must_be_an_object(registry: Registry, attempts: Attempts) -> None:
    add(registry, lambda config: config)
    assert failure(await attempts.run(task("h", [1]))).code == "bad_config"
    assert await attempts.run(task("h", {"deep": [{}]})) == Outcome(output='{"deep":[{}]}')


async def test_a_broken_validator_is_a_bad_config(registry: Registry, attempts: Attempts) -> None:
    add(registry, lambda_with(Moody, []))
    failed = failure(await attempts.run(task("h", {"n": 1})))
    assert failed.code == "bad_config"
    assert "the validator itself is broken" in failed.message


async def test_an_unknown_handler(attempts: Attempts) -> None:
    failed = failure(await attempts.run(task("nobody")))
    assert (failed.code, failed.retryable) == ("no_handler", True)


class BothAtOnce(OSError, json.JSONDecodeError):
    """Like requests.JSONDecodeError."""

    def __init__(self) -> None:
        json.JSONDecodeError.__init__(self, "bad", "x", 0)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


ERRORS = [
    (Retry("later", after=2.5), "retry", True),
    (Retry(), "retry", True),
    (Fatal("never"), "fatal", False),
    (TimeoutError("slow"), "error", True),
    (ConnectionResetError("gone"), "error", True),
    (socket.gaierror("no such host"), "error", True),
    (FileNotFoundError("no"), "error", True),
    (RuntimeError("who knows"), "error", True),
    (StopIteration("odd"), "error", True),
    (Unprintable(), "error", True),
    (ValueError("bad"), "error", False),
    (TypeError("bad"), "error", False),
    (KeyError("bad"), "error", False),
    (AttributeError("bad"), "error", False),
    (json.JSONDecodeError("bad", "x", 0), "error", False),
    (msgspec.DecodeError("bad"), "error", False),
    (BothAtOnce(), "error", False),
    (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "error", False),
    (SystemExit(3), "error", False),
    (asyncio.CancelledError("from inside"), "error", True),
    (ExceptionGroup("many", [RuntimeError("a"), ExceptionGroup("in", [Fatal("b")])]), "fatal", False),
    (ExceptionGroup("many", [OSError("a"), Retry("b")]), "error", True),
]


@pytest.mark.parametrize(("error", "code", "retryable"), ERRORS, ids=lambda value: type(value).__name__)
async def test_errors_are_classified(
    registry: Registry, attempts: Attempts, error: BaseException, code: str, retryable: bool
) -> None:
    def raise_it() -> None:
        raise error

    for index, function in enumerate(both(raise_it)):
        add(registry, function, f"h{index}")
        failed = failure(await attempts.run(task(f"h{index}")))
        assert (failed.code, failed.retryable) == (code, retryable)
        assert failed.after_seconds == getattr(error, "after", None)
        wrapped = isinstance(error, StopIteration) and index == 0  # a coroutine may not raise it: RuntimeError
        assert failed.type == ("RuntimeError" if wrapped else type(error).__name__)
        assert failed.message


async def test_a_message_is_short_and_valid(registry: Registry, attempts: Attempts) -> None:
    add(registry, raising := both(lambda: (_ for _ in ()).throw(RuntimeError("\ud800\0" + "ä" * 5000)))[0])
    failed = failure(await attempts.run(task("h")))
    assert raising is not None
    assert failed.message.startswith("\ufffd\ufffdää")
    assert len(failed.message) == 2000


async def test_a_timeout_cancels_an_async_handler(registry: Registry, attempts: Attempts) -> None:
    cancelled = asyncio.Event()

    async def waits(config: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    add(registry, waits)
    failed = failure(await attempts.run(task("h", timeout_seconds=0.02)))
    assert (failed.code, failed.type, failed.retryable) == ("timeout", "TimeoutError", True)
    assert cancelled.is_set()
    assert attempts.lingering == 0


async def test_a_handler_that_answers_after_its_timeout_has_still_timed_out(
    registry: Registry, attempts: Attempts
) -> None:
    async def stubborn(config: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "as if nothing had happened"
        return "never"

    add(registry, stubborn)
    assert failure(await attempts.run(task("h", timeout_seconds=0.02))).code == "timeout"
    running = asyncio.create_task(attempts.run(task("h")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert attempts.lingering == 0


async def test_a_coroutine_that_does_not_listen_lingers(registry: Registry, attempts: Attempts) -> None:
    let_go = asyncio.Event()
    started = asyncio.Event()
    add(registry, deaf(let_go, started))
    async with asyncio.timeout(SOON):
        await end_it(attempts, started, "timeout")
    assert attempts.lingering == 1
    let_go.set()
    await until(lambda: attempts.lingering == 0)


async def test_without_a_timeout_a_coroutine_that_does_not_listen_is_waited_for(
    registry: Registry, attempts: Attempts
) -> None:
    let_go = asyncio.Event()
    started = asyncio.Event()
    add(registry, deaf(let_go, started))
    running = asyncio.create_task(attempts.run(task("h")))
    await started.wait()
    running.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done(), "it still holds its slot"
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await running


def deaf(let_go: asyncio.Event, started: asyncio.Event) -> Any:
    async def handler(config: Any) -> None:
        started.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        raise RuntimeError("nobody wants to know")

    return handler


async def end_it(attempts: Attempts, started: asyncio.Event, how: str) -> None:
    running = asyncio.create_task(attempts.run(task("h", timeout_seconds=0.5 if how == "timeout" else None)))
    await started.wait()
    if how == "timeout":
        assert failure(await running).code == "timeout"
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_thread_that_does_not_listen_lingers(registry: Registry, attempts: Attempts, how: str) -> None:
    loop = asyncio.get_running_loop()
    let_go = threading.Event()
    started = asyncio.Event()

    def deaf(config: Any) -> None:
        while not let_go.is_set():
            try:
                loop.call_soon_threadsafe(started.set)
                let_go.wait()
            except BaseException:
                continue

    add(registry, deaf)
    async with asyncio.timeout(SOON):
        await end_it(attempts, started, how)
    assert attempts.lingering == 1
    let_go.set()
    await until(lambda: attempts.lingering == 0)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_busy_thread_is_stopped(registry: Registry, how: str) -> None:
    loop = asyncio.get_running_loop()
    attempts = Attempts(registry, concurrency=1, max_output_bytes=LIMIT, grace_seconds=SOON)
    started = asyncio.Event()
    ended = threading.Event()

    def busy(config: Any) -> None:
        try:
            loop.call_soon_threadsafe(started.set)
            while True:
                with contextlib.suppress(Exception):
                    time.sleep(0)
        finally:
            ended.set()

    add(registry, busy)
    async with asyncio.timeout(SOON):
        await end_it(attempts, started, how)
    assert ended.is_set()
    assert attempts.lingering == 0


async def test_stopping_threads_at_any_moment_settles_every_one(registry: Registry) -> None:
    """A stop that meets the beginning or the end of a call must neither be lost nor hit anything else."""
    attempts = Attempts(registry, concurrency=1, max_output_bytes=LIMIT, grace_seconds=SOON)

    def quick(config: Any) -> None:
        for _ in range(config["n"]):
            pass

    add(registry, quick)
    async with asyncio.timeout(60):
        for n in range(300):
            running = asyncio.create_task(attempts.run(task("h", {"n": n * 10})))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    assert attempts.lingering == 0


async def test_a_cancelled_attempt_cancels_its_handler(registry: Registry, attempts: Attempts) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(config: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    add(registry, waits)
    await end_it(attempts, started, "cancel")
    assert cancelled.is_set()


async def test_closing_stops_what_runs(registry: Registry) -> None:
    attempts = Attempts(registry, concurrency=1, max_output_bytes=LIMIT)
    started = asyncio.Event()

    async def waits(config: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    add(registry, waits)
    limited = asyncio.create_task(attempts.run(task("h", timeout_seconds=60)))
    await started.wait()
    started.clear()
    unlimited = asyncio.create_task(attempts.run(task("h")))
    await started.wait()
    await attempts.aclose()
    async with asyncio.timeout(SOON):
        assert failure(await limited).retryable
        with pytest.raises(asyncio.CancelledError):
            await unlimited


async def test_handlers_run_side_by_side(registry: Registry, attempts: Attempts) -> None:
    meeting = asyncio.Barrier(20)
    threads_meet = threading.Barrier(20)

    async def on_the_loop(config: Any) -> None:
        await meeting.wait()

    def in_a_thread(config: Any) -> None:
        threads_meet.wait()

    add(registry, on_the_loop, "a")
    add(registry, in_a_thread, "s")
    async with asyncio.timeout(SOON):
        done = await asyncio.gather(*[attempts.run(task(name)) for name in ("a", "s") for _ in range(20)])
    assert {outcome.output for outcome in done} == {'{"result":null}'}


async def test_the_hard_deadline_is_after_timeout_and_grace(registry: Registry, attempts: Attempts) -> None:
    add(registry, lambda config: None)
    now = time.monotonic()
    deadline = attempts.hard_deadline(task("h", timeout_seconds=5))
    assert deadline is not None
    assert now + 5.05 <= deadline <= time.monotonic() + 5.05
    assert attempts.hard_deadline(task("h")) is None
    assert attempts.hard_deadline(task("h", payload="{")) is None


# Secrets

VALUE = 'hunter2-"quoted"-value'
TOKEN = {"path": ["headers", "auth"], "pieces": ["Bearer ", {"secret": "TOKEN"}]}


@pytest.fixture
async def with_secrets(registry: Registry) -> AsyncIterator[Attempts]:
    made = Attempts(
        registry, concurrency=4, max_output_bytes=1000, grace_seconds=0.05,
        secrets={"TOKEN": VALUE, "PIN": "1234"}, confidential=[VALUE, "1234"],
    )  # fmt: skip
    yield made
    await made.aclose()


def secret_task(name: str, **config: Any) -> Task:
    shown = {"headers": {"auth": "Bearer {{ secret.TOKEN }}"}, **config}
    payload = msgspec.json.encode({"config": shown, "secrets": [TOKEN]})
    return task(name, payload=payload.decode())


async def test_a_handler_gets_the_values_and_no_outcome_has_them(registry: Registry, with_secrets: Attempts) -> None:
    seen: list[Any] = []

    def echo(config: dict[str, Any]) -> Any:
        seen.append(config)
        return config

    add(registry, echo)
    outcome = await with_secrets.run(secret_task("h", like="{{ secret.TOKEN }}", typed={"secret": "TOKEN"}))
    assert seen == [
        {"headers": {"auth": f"Bearer {VALUE}"}, "like": "{{ secret.TOKEN }}", "typed": {"secret": "TOKEN"}}
    ]
    assert outcome.output is not None
    assert json.loads(outcome.output) == {
        "headers": {"auth": "Bearer ***"}, "like": "{{ secret.TOKEN }}", "typed": {"secret": "TOKEN"}
    }  # fmt: skip


async def test_a_failure_is_redacted_before_it_is_shortened(registry: Registry, with_secrets: Attempts) -> None:
    def fail(config: dict[str, Any]) -> None:
        raise type(f"Bad{config['pin']}", (Fatal,), {})(
            "x" * (config["before"]) + config["headers"]["auth"] + "y" * 5000
        )

    add(registry, fail)
    for before in (0, 1970, 1980, 1985, 1990):
        told = failure(await with_secrets.run(secret_task("h", before=before, pin="1234")))
        assert "hun" not in told.message
        assert len(told.message) == 2000
        assert told.type == "Bad***"


async def test_what_a_config_model_says_is_redacted(registry: Registry, with_secrets: Attempts) -> None:
    class Picky(BaseModel):
        headers: dict[str, str]

        @field_validator("headers")
        @classmethod
        def _refuses(cls, headers: dict[str, str]) -> dict[str, str]:
            raise ValueError(f"not {headers}")

    async def picky(config: Any) -> None:
        raise AssertionError("it is not called")

    picky.__annotations__["config"] = Picky
    add(registry, picky)
    told = failure(await with_secrets.run(secret_task("h")))
    assert told.code == "bad_config"
    assert "Bearer ***" in told.message


async def test_a_secret_that_is_not_set_is_final(registry: Registry, attempts: Attempts) -> None:
    add(registry, lambda config: config)
    told = failure(await attempts.run(secret_task("h")))
    assert told == Failure(
        "secret_missing", "secret TOKEN is not set on this worker: set HEADRACE_SECRET_TOKEN", "SecretMissing"
    )


async def test_places_that_do_not_fit_fail_the_node(registry: Registry, with_secrets: Attempts) -> None:
    add(registry, lambda config: config)
    payload = msgspec.json.encode({"config": {}, "secrets": [TOKEN]}).decode()
    assert failure(await with_secrets.run(task("h", payload=payload))).code == "bad_config"


async def test_a_redacted_output_is_within_its_limit_or_a_failure(registry: Registry, with_secrets: Attempts) -> None:
    add(registry, lambda config: [1234] * config["n"])
    outcome = await with_secrets.run(task("h", {"n": 100}))
    assert json.loads(outcome.output or "") == {"result": ["***"] * 100}
    assert failure(await with_secrets.run(task("h", {"n": 190}))).code == "bad_output"
