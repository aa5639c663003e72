"""Handlers that write down every call, outside the engine: what really ran, how often, and where.

A ledger is a file with one JSON object per line, appended in one write. Nodes name it in their config.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headrace import Context, Fatal, Retry, handler


class Entry(BaseModel):
    ledger: Path
    value: Any = None
    gate: Path | None = None  # wait until this file is there
    fails: int = 0
    after: float | None = None
    only_run: int | None = None  # fail in this run alone


def write(ledger: Path, ctx: Context, what: str) -> None:
    line = {
        "what": what,
        "execution": ctx.execution_id,
        "node": ctx.node_id,
        "run": ctx.run,
        "attempt": ctx.attempt,
        "key": ctx.idempotency_key,
        "pid": os.getpid(),
        "at": time.time(),
    }
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def read(ledger: Path, what: str = "call") -> list[dict[str, Any]]:
    if not ledger.exists():
        return []
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [line for line in lines if line["what"] == what]


@handler("note")
async def note(config: Entry, ctx: Context) -> dict[str, Any]:
    """Writes the call down, waits at its gate if it has one, gives its value on."""
    write(config.ledger, ctx, "call")
    try:
        while config.gate is not None and not config.gate.exists():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        write(config.ledger, ctx, "cancelled")
        raise
    write(config.ledger, ctx, "done")
    return {"value": config.value}


@handler("note_in_thread")
def note_in_thread(config: Entry, ctx: Context) -> dict[str, Any]:
    write(config.ledger, ctx, "call")
    while config.gate is not None and not config.gate.exists():
        time.sleep(0.01)
    write(config.ledger, ctx, "done")
    return {"value": config.value}


@handler("block_the_loop")
async def block_the_loop(config: Entry, ctx: Context) -> dict[str, Any]:
    """What an async handler must never do."""
    write(config.ledger, ctx, "call")
    while config.gate is not None and not config.gate.exists():
        time.sleep(0.01)  # noqa: ASYNC251
    return {"value": config.value}


@handler("fail")
async def fail(config: Entry, ctx: Context) -> dict[str, Any]:
    """Fails its first `fails` attempts, retryably."""
    write(config.ledger, ctx, "call")
    if ctx.attempt <= config.fails and config.only_run in (None, ctx.run):
        raise Retry("not yet", after=config.after)
    return {"value": config.value}


@handler("break")
async def break_for_good(config: Entry, ctx: Context) -> dict[str, Any]:
    write(config.ledger, ctx, "call")
    if config.only_run in (None, ctx.run):
        raise Fatal("broken")
    return {"value": config.value}


@handler("deaf")
async def deaf(config: Entry, ctx: Context) -> dict[str, Any]:
    """Does not listen when it is told to stop."""
    write(config.ledger, ctx, "call")
    while config.gate is not None and not config.gate.exists():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            write(config.ledger, ctx, "cancelled")
    return {"value": config.value}
