"""Every place where a role is made to die at once, by name: the steps of the protocol, each before and after.

A step is a method of the engine, wrapped from outside by the launcher; there is no switch in the source. For a step in
SQL, "before" is when all its statements were executed and nothing is committed, "after" is when the commit was answered
and the engine does not know it yet. For all others it is before the call is made, and when its answer is there.

A role is told what to do through its `Orders`, a page of memory shared with the supervisor: so a point is armed while
the role runs, and stays armed over restarts until it is hit.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import os
import signal
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STORE = "headrace.hot.store:HotStore."
ACCEPTANCE = "headrace.record.acceptance:Acceptance."


@dataclass(frozen=True)
class Step:
    name: str
    target: str  # module:attribute
    also: str = ""  # another way to take the same step
    in_sql: bool = False
    at_stop: bool = False  # it is taken only when a role is told to stop


CLAIM = Step("claim", STORE + "claim", also=STORE + "claim_when_called")
EFFECT = Step("effect", "headrace.worker.attempt:called")
REPORT = Step("report", STORE + "report")
RENEW = Step("renew", STORE + "renew")
RELEASE = Step("release", STORE + "release", at_stop=True)
SIGN_OFF = Step("sign_off", STORE + "drop_worker", at_stop=True)

READ_HINTS = Step("read_hints", STORE + "read_hints")
TAKE_OVER = Step("take_over", STORE + "take_over_hints")
ADVANCE = Step("advance", STORE + "advance")
DISPATCH = Step("dispatch", STORE + "dispatch")
DUE = Step("due", STORE + "due")
ARCHIVE = Step("archive_commit", "headrace.record.archive:Archive.apply", in_sql=True)
TRIM = Step("trim_events", STORE + "trim_events")
FORGET = Step("forget", STORE + "forget")
LEAVE = Step("leave", STORE + "leave", at_stop=True)

RESERVE = Step("reserve", STORE + "reserve")
TAKE_EPOCH = Step("epoch_commit", "headrace.record.openings:Openings.take", in_sql=True)
OPEN = Step("open", STORE + "open")
SETTLE = Step("settle", STORE + "settle")

SUBMIT = Step("submit_commit", ACCEPTANCE + "submit", in_sql=True)
TRIGGER = Step("trigger_commit", ACCEPTANCE + "trigger", in_sql=True)
RETRY = Step("retry_commit", ACCEPTANCE + "retry", in_sql=True)
CANCEL = Step("cancel_commit", ACCEPTANCE + "cancel", in_sql=True)
CANCEL_IN_STORE = Step("cancel", STORE + "cancel")

STEPS: dict[str, tuple[Step, ...]] = {
    "worker": (CLAIM, EFFECT, REPORT, RENEW, RELEASE, SIGN_OFF),
    "orchestrator": (
        READ_HINTS, TAKE_OVER, ADVANCE, DISPATCH, DUE, ARCHIVE, TRIM, FORGET, LEAVE, SETTLE, RESERVE, TAKE_EPOCH, OPEN,
    ),
    "api": (SUBMIT, TRIGGER, RETRY, CANCEL, CANCEL_IN_STORE, RESERVE, TAKE_EPOCH, OPEN),
}  # fmt: skip


@dataclass(frozen=True)
class CrashPoint:
    role: str
    step: Step
    when: str

    @property
    def name(self) -> str:
        """As orders have it; within one role it is unique."""
        return f"{self.step.name}.{self.when}"

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


CRASH_POINTS = tuple(
    CrashPoint(role, step, when) for role, steps in STEPS.items() for step in steps for when in ("before", "after")
)


class Orders:
    """What a role is to do: how far off its clock is, and at which point, the how many-th time, it is to die."""

    LAYOUT = struct.Struct("<dI64p")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.LAYOUT.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), self.LAYOUT.size)

    @property
    def skew_seconds(self) -> float:
        return float(struct.unpack_from("<d", self._page)[0])

    @skew_seconds.setter
    def skew_seconds(self, seconds: float) -> None:
        struct.pack_into("<d", self._page, 0, seconds)

    @property
    def armed(self) -> str:
        return bytes(self.LAYOUT.unpack_from(self._page)[2]).decode()

    def arm(self, point: str, count: int) -> None:
        self.LAYOUT.pack_into(self._page, 0, self.skew_seconds, count, point.encode())

    def disarm(self) -> None:
        self.arm("", 0)

    def passes(self, point: str) -> None:
        """The role is at this point: it dies here if it was told to."""
        if self.armed != point:
            return
        count = self.LAYOUT.unpack_from(self._page)[1]
        if count > 1:
            self.arm(point, count - 1)
            return
        self.disarm()  # which tells the supervisor that it was hit
        os.kill(os.getpid(), signal.SIGKILL)


_transaction: ContextVar[str] = ContextVar("transaction", default="")


def install(role: str, orders: Orders) -> None:
    """Wraps every step of this role."""
    steps = STEPS[role]
    for step in steps:
        wrap = _in_sql if step.in_sql else _wrapped
        for target in filter(None, (step.target, step.also)):
            owner, name = find(target)
            setattr(owner, name, wrap(getattr(owner, name), step.name, orders))
    if any(step.in_sql for step in steps):
        for method, committing in (("write", _committing), ("writing", _committing_work)):
            database, name = find(f"headrace.record.database:Database.{method}")
            setattr(database, name, committing(getattr(database, name), orders))


def find(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    return owner, name


def _wrapped(method: Callable[..., Any], step: str, orders: Orders) -> Callable[..., Any]:
    before, after = f"{step}.before", f"{step}.after"

    @functools.wraps(method)
    async def call(*arguments: Any, **named: Any) -> Any:
        orders.passes(before)
        answer = await method(*arguments, **named)
        orders.passes(after)
        return answer

    return call


def _in_sql(method: Callable[..., Any], step: str, orders: Orders) -> Callable[..., Any]:
    """Says which step the transactions belong to that begin inside it."""

    @functools.wraps(method)
    async def call(*arguments: Any, **named: Any) -> Any:
        mark = _transaction.set(step)
        try:
            return await method(*arguments, **named)
        finally:
            _transaction.reset(mark)

    return call


def _committing(write: Callable[..., Any], orders: Orders) -> Callable[..., Any]:
    @asynccontextmanager
    async def committed(database: Any) -> AsyncIterator[Any]:
        step = _transaction.get()
        async with write(database) as connection:
            yield connection
            orders.passes(f"{step}.before")
        orders.passes(f"{step}.after")

    return committed


def _committing_work(writing: Callable[..., Any], orders: Orders) -> Callable[..., Any]:
    @functools.wraps(writing)
    async def committed(database: Any, work: Callable[[Any], Any]) -> Any:
        step = _transaction.get()

        def done(connection: Any) -> Any:
            answer = work(connection)
            orders.passes(f"{step}.before")
            return answer

        mark = _transaction.set("")  # a transaction inside it is this one
        try:
            answer = await writing(database, done)
        finally:
            _transaction.reset(mark)
        orders.passes(f"{step}.after")
        return answer

    return committed
