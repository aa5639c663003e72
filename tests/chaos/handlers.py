"""Handlers of the load. Each tells the effect server when it starts and when it ends, and does what its config says.

What a config means, and what comes out of it, is the oracle's word (oracle.py). `seconds` makes a node slow. `token` is
put in by the launcher (role.py): it names the attempt with its epoch, which a handler is not told otherwise.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from pydantic import BaseModel, ConfigDict

from headrace import Context, Fatal, Retry, handler
from tests.chaos import effects
from tests.chaos.oracle import output_of

FOR_EVER_SECONDS = 3600.0


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid")

    salt: int = 0
    inputs: dict[str, Any] = {}
    padding: int = 0
    fails: int = 0
    overruns: int = 0
    fatal_runs: int = 0
    seconds: float = 0.0
    token: str = ""


def line(config: Step, ctx: Context, phase: str, value: str = "") -> dict[str, Any]:
    return {
        "execution": ctx.execution_id,
        "node": ctx.node_id,
        "run": ctx.run,
        "attempt": ctx.attempt,
        "token": config.token,
        "key": ctx.idempotency_key,
        "phase": phase,
        "worker": os.getpid(),
        "value": value,
    }


def duration(config: Step, ctx: Context) -> float:
    return FOR_EVER_SECONDS if ctx.attempt <= config.overruns else config.seconds


def result(config: Step, ctx: Context) -> dict[str, Any]:
    if ctx.run <= config.fatal_runs:
        raise Fatal("broken in this run")
    if ctx.attempt <= config.fails:
        raise Retry("not yet")
    return output_of(config.model_dump())


@handler("step")
async def step(config: Step, ctx: Context) -> dict[str, Any]:
    await effects.tell(line(config, ctx, "start"))
    await asyncio.sleep(duration(config, ctx))
    output = result(config, ctx)
    await effects.tell(line(config, ctx, "end", output["value"]))
    return output


@handler("step_in_thread")
def step_in_thread(config: Step, ctx: Context) -> dict[str, Any]:
    return _step_sync(config, ctx)


@handler("step_in_process", isolation="process")
def step_in_process(config: Step, ctx: Context) -> dict[str, Any]:
    return _step_sync(config, ctx)


def _step_sync(config: Step, ctx: Context) -> dict[str, Any]:
    effects.tell_sync(line(config, ctx, "start"))
    end = time.monotonic() + duration(config, ctx)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))  # a stop reaches a thread only between two steps of Python
    output = result(config, ctx)
    effects.tell_sync(line(config, ctx, "end", output["value"]))
    return output
