"""One attempt, from a claimed task to its outcome: decode, put secrets in, check, start the handler, see it end.

An async handler runs as a task on the loop, a sync one in a thread, an isolated one in another process; each becomes a
future of an Outcome and a way to stop it, and from there on they are the same. The invariant: with a timeout `run`
always comes back. A handler is told to stop when its time is up or the worker gives it up, and again after a grace
period; one that still goes on is left alone and counted in `lingering`, for it still holds what a slot stands for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from headrace.errors import BadValue, HandlerNotFound
from headrace.model.messages import Outcome, SecretText, Task
from headrace.redaction import Redactor
from headrace.worker import threads
from headrace.worker.isolation import START_WITHIN_SECONDS, Child, Children
from headrace.worker.isolation_child import Job
from headrace.worker.outcomes import arguments, called, called_sync, checked_config, failed, raised, storable
from headrace.worker.registry import Context, Handler, Registry
from headrace.worker.secrets import SecretMissing, Secrets

FAR_SECONDS = 1e9  # a deadline beyond it is of no use to anybody, and not always a date


class _Work(msgspec.Struct, frozen=True):
    """messages.Work with the config left as JSON text: a model, or a child, reads it from there."""

    config: msgspec.Raw
    timeout_seconds: float | None = None
    secrets: tuple[SecretText, ...] = ()


_decode_work = msgspec.json.Decoder(_Work).decode
_TIMEOUT = '"timeout_seconds"'


class _Attempt(msgspec.Struct, frozen=True):
    task: Task
    handler: Handler
    work: _Work
    config: Any
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A handler that runs."""

    future: asyncio.Future[Outcome]
    stop: Callable[[], object]


class _Refused(Exception):
    """The attempt ends before its handler is called."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class Attempts:
    """Runs attempts, any number at a time; the caller has the slots. At most `concurrency` processes are started."""

    def __init__(
        self,
        registry: Registry,
        *,
        concurrency: int,
        max_output_bytes: int,
        grace_seconds: float = 2.0,
        on_linger: Callable[[int], None] = lambda change: None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        confidential: Sequence[str] = (),
    ) -> None:
        """`on_linger` is told +1 when a handler goes on though it was told to stop, and -1 when it ends after all.

        `secrets` are those that configs may name. What is `confidential`, of which they should be a part, is taken out
        of outcomes.
        """
        self.lingering = 0
        self._on_linger = on_linger
        self._registry = registry
        self._max_output_bytes = max_output_bytes
        self._grace_seconds = grace_seconds
        self._secrets = Secrets(secrets)
        self._redactor = Redactor(confidential)
        self._children = Children(concurrency, confidential)
        self._calls: set[_Call] = set()
        self._inline: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # asked for once: until Python 3.12 that is a system call

    async def run(self, task: Task, traceparent: str | None = None) -> Outcome:
        """The outcome of one attempt. Cancelled, it stops the handler and raises CancelledError."""
        try:
            attempt = self._decode(task, traceparent)
            outcome = await (self._run_inline(attempt) if _runs_inline(attempt) else self._run_apart(attempt))
        except _Refused as refused:
            outcome = refused.outcome
        return storable(outcome, self._redactor, self._max_output_bytes)

    async def _run_apart(self, attempt: _Attempt) -> Outcome:
        call = await self._start(attempt)
        self._calls.add(call)
        try:
            return await self._see_it_end(call, attempt.work.timeout_seconds)
        finally:
            if call.future.done():
                self._calls.discard(call)

    async def aclose(self) -> None:
        """Stop what still runs, and end all processes. What does not listen is left behind."""
        calls = tuple(self._calls)
        for call in calls:
            call.stop()
        for task in self._inline:
            task.cancel()
        if futures := [*(call.future for call in calls), *self._inline]:
            await asyncio.wait(futures, timeout=self._grace_seconds)
        await self._children.aclose()

    @property
    def is_stuck(self) -> bool:
        return self.lingering > 0 or any(not task.done() for task in self._inline)

    def hard_deadline(self, task: Task) -> float | None:
        """When, on the monotonic clock, an attempt that starts now has surely ended unless the loop is blocked."""
        if _TIMEOUT not in task.payload:
            return None
        try:
            seconds = _decode_work(task.payload).timeout_seconds
        except (msgspec.MsgspecError, UnicodeError):
            return None
        if seconds is None:
            return None
        isolated = task.handler in self._registry and self._registry.get(task.handler).isolation is not None
        return time.monotonic() + seconds + self._grace_seconds + (START_WITHIN_SECONDS if isolated else 0)

    def _decode(self, task: Task, traceparent: str | None) -> _Attempt:
        try:
            handler = self._registry.get(task.handler)
            work = _decode_work(task.payload)
            if work.secrets:
                work = msgspec.structs.replace(work, config=self._secrets.put_into(work.config, work.secrets))
            return _Attempt(task, handler, work, checked_config(handler, work.config), traceparent)
        except HandlerNotFound as error:
            refusal = failed("no_handler", str(error), type=type(error).__name__, retryable=True)
        except SecretMissing as error:
            refusal = failed("secret_missing", str(error), type=type(error).__name__)
        except (BadValue, msgspec.MsgspecError, UnicodeError) as error:
            refusal = failed("bad_config", str(error), type=type(error).__name__)
        raise _Refused(refusal)

    async def _start(self, attempt: _Attempt) -> _Call:
        handler, limit = attempt.handler, self._max_output_bytes
        if handler.isolation == "process":
            child = await self._children.ready(handler)
            if isinstance(child, Outcome):
                raise _Refused(child)
            return self._start_process(attempt, child)
        given = arguments(handler, attempt.config, lambda: _context(attempt))
        if handler.is_async:
            task = asyncio.create_task(called(handler, given, limit))
            return _Call(task, task.cancel)
        thread = threads.Call(lambda: called_sync(handler, given, limit))
        return _Call(thread.future, thread.stop)

    def _start_process(self, attempt: _Attempt, child: Child) -> _Call:
        task = attempt.task
        job = Job(
            name=attempt.handler.name,
            config=bytes(attempt.work.config),
            max_output_bytes=self._max_output_bytes,
            execution_id=task.execution_id,
            node_id=task.node,
            run=task.run,
            attempt=task.attempt,
            idempotency_key=task.idempotency_key,
            deadline=_deadline(attempt),
            traceparent=attempt.traceparent,
        )
        running = asyncio.create_task(self._children.perform(child, job))
        return _Call(running, running.cancel)

    async def _run_inline(self, attempt: _Attempt) -> Outcome:
        """Without a timeout there is nothing to come back for before the handler ends: no task of its own is needed."""
        handler, config = attempt.handler, attempt.config
        given = (config, _context(attempt)) if handler.takes_context else (config,)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        current: asyncio.Task[Any] = asyncio.current_task(self._loop)  # type: ignore[assignment]  # we are in one
        self._inline.add(current)
        try:
            outcome = await called(handler, given, self._max_output_bytes)
        except asyncio.CancelledError:
            outcome = raised(asyncio.CancelledError("the handler was cancelled from inside"))
        finally:
            self._inline.discard(current)
        if current.cancelling():
            raise asyncio.CancelledError  # we were, whatever the handler made of it
        return outcome

    async def _see_it_end(self, call: _Call, timeout_seconds: float | None) -> Outcome:
        try:
            await _ended_within(call.future, timeout_seconds)
        except asyncio.CancelledError:
            await self._stop(call)
            raise
        if not call.future.done():
            await self._stop(call)
            told = f"the handler did not end within {timeout_seconds:g} seconds"
            return failed("timeout", told, type="TimeoutError", retryable=True)
        if call.future.cancelled():
            return raised(asyncio.CancelledError("the handler was cancelled from inside"))
        return call.future.result()

    async def _stop(self, call: _Call) -> None:
        """Tell it, wait for a grace period, tell it again, and let go."""
        call.stop()
        try:
            await _ended_within(call.future, self._grace_seconds)
        finally:
            if not call.future.done():
                call.stop()
                self.lingering += 1
                self._on_linger(1)
                call.future.add_done_callback(lambda _: self._ended_after_all(call))
            elif not call.future.cancelled():
                call.future.exception()  # seen: what it ends with now is of no interest

    def _ended_after_all(self, call: _Call) -> None:
        self.lingering -= 1
        self._on_linger(-1)
        self._calls.discard(call)
        if not call.future.cancelled():
            call.future.exception()


def _runs_inline(attempt: _Attempt) -> bool:
    handler = attempt.handler
    return handler.is_async and handler.isolation is None and attempt.work.timeout_seconds is None


async def _ended_within(future: asyncio.Future[Any], seconds: float | None) -> None:
    """Waits for a future without owning it. (asyncio.wait does the same at several times the cost.)"""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(wake)
    timer = None if seconds is None else loop.call_later(seconds, wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


def _deadline(attempt: _Attempt) -> datetime | None:
    seconds = attempt.work.timeout_seconds
    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=min(seconds, FAR_SECONDS))


def _context(attempt: _Attempt) -> Context:
    task = attempt.task
    return Context(
        execution_id=task.execution_id,
        node_id=task.node,
        run=task.run,
        attempt=task.attempt,
        idempotency_key=task.idempotency_key,
        deadline=_deadline(attempt),
        log=structlog.get_logger(
            execution_id=task.execution_id,
            node_id=task.node,
            run=task.run,
            attempt=task.attempt,
            idempotency_key=task.idempotency_key,
        ),
        traceparent=attempt.traceparent,
    )
