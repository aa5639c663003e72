"""Handlers that do nothing, so that what is measured is the engine."""

from __future__ import annotations

import time
from typing import Any

from headrace import handler


@handler("noop")
async def noop(config: dict[str, Any]) -> dict[str, int]:
    """Says when it was called, on the clock that all processes of a machine share."""
    return {"at": time.monotonic_ns()}
