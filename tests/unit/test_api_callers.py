"""Who asks SQL for keys, and when."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from headrace.api import auth
from headrace.record.keys import Keys
from headrace.settings import Settings


class Slow:
    def __init__(self) -> None:
        self.asked = 0

    async def all(self) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0)
        return []


async def test_of_many_requests_one_asks_again_whether_there_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Slow()
    callers = auth.Callers(cast("Keys", keys), Settings())
    assert not await callers.any_key()
    now = time.monotonic() + auth.FRESH_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert not any(await asyncio.gather(*(callers.any_key() for _ in range(20))))
    assert keys.asked == 2
