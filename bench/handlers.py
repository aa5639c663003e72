"""Handlers that do nothing, so that what is measured is the engine."""

from __future__ import annotations

import time
from typing import Any

from headrace import Retry, handler


@handler("noop")
async def noop(config: dict[str, Any]) -> dict[str, int]:
    """Says when it was called, on the clock that all processes of a machine share."""
    return {"at": time.monotonic_ns()}


@handler("later")
async def later(config: dict[str, Any]) -> None:
    """Keeps its execution alive for the rest of the day, without a slot."""
    raise Retry("later", after=80_000)
