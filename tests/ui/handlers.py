"""Handlers for the tests of the web UI: they wait, or fail, until a file in HEADRACE_HOME says otherwise."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from headrace import Context, Fatal, Retry, handler

HOME = Path(os.environ["HEADRACE_HOME"])


@handler("gate")
async def gate(config: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Waits for a file of this name."""
    ctx.log.info("waiting", name=config["name"])
    while not (HOME / config["name"]).exists():
        await asyncio.sleep(0.05)
    return {"opened": config["name"]}


@handler("repairable")
async def repairable(config: dict[str, Any]) -> dict[str, Any]:
    """Fails with the given words as long as there is no file of this name."""
    if not (HOME / config["name"]).exists():
        raise Fatal(config["words"])
    return {"repaired": True}


@handler("step")
async def step(config: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Works for `seconds`, is busy the first `busy` times, and gives `gives`."""
    await asyncio.sleep(config.get("seconds", 0))
    if ctx.attempt <= config.get("busy", 0):
        ctx.log.warning("busy", attempt=ctx.attempt)
        raise Retry(config.get("words", "the service is busy"), after=config.get("after", 0.2))
    ctx.log.info("done", worked_seconds=config.get("seconds", 0))
    return dict(config.get("gives", {}))


@handler("say")
async def say(config: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Gives back what it was given, and logs it."""
    ctx.log.info("said", text=str(config.get("text", ""))[:1000])
    return config
