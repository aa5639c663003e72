"""What one client may send: how large, how slowly, how often.

A body is measured while it arrives, so that one that is too large is refused before it is in memory. The rate of
requests is a sliding window in the hot store, shared by all API processes; while the store is away nobody is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from typing import Final

from starlette.requests import Request

from headrace.api.parts import ARRIVED, header
from headrace.api.problems import Refused
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.settings import RateLimit

BODY_WITHIN_SECONDS: Final = 120.0
COUNTED_WITHIN_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 5.0


async def read_body(request: Request, most_bytes: int) -> bytes:
    length = header(request.scope, b"content-length") or ""
    if len(length) > 18 or (length.isdecimal() and int(length) > most_bytes):
        raise too_large(most_bytes)
    if ARRIVED in request.scope:
        return await _received(request, most_bytes)
    try:
        async with asyncio.timeout(BODY_WITHIN_SECONDS):
            return await _received(request, most_bytes)
    except TimeoutError:
        raise Refused("body_too_slow") from None


async def _received(request: Request, most_bytes: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refused("malformed_body", "the body ended too early")
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise too_large(most_bytes)
        more = message.get("more_body", False)
    return bytes(body)


def too_large(most_bytes: int) -> Refused:
    return Refused("too_large", f"at most {most_bytes:,} bytes are allowed here")


class RateLimiter:
    """Two counters a client: requests in this window of time, and in the one before, which counts ever less."""

    def __init__(self, store: HotStore, limit: RateLimit | None) -> None:
        self._store, self._limit = store, limit
        self._paused_until = 0.0

    async def admit(self, client: str) -> None:
        """Counts one request, or refuses it; one that is refused does not count."""
        if self._limit is None or time.monotonic() < self._paused_until:
            return
        name = hashlib.sha256(client.encode()).hexdigest()[:32]
        window, elapsed = divmod(time.time(), self._limit.seconds)
        try:
            async with asyncio.timeout(COUNTED_WITHIN_SECONDS):
                now, before = await self._store.count_request(name, int(window), self._limit.seconds)
                wait = wait_seconds(self._limit, now - 1, before, elapsed)
                if wait > 0:
                    await self._store.uncount_request(name, int(window))
        except (StoreUnavailable, TimeoutError):
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            return
        if wait > 0:
            told = f"at most {self._limit.requests} requests in {self._limit.seconds} s are allowed"
            raise Refused("rate_limited", told, headers={"Retry-After": str(math.ceil(wait))})


def wait_seconds(limit: RateLimit, now: int, before: int, elapsed: float) -> float:
    """How long until one more request fits; 0 if it fits now.

    `now` and `before` are the requests of this window and the last one, `elapsed` how much of this one is over.
    """
    window = limit.seconds
    if before * (1 - elapsed / window) + now + 1 <= limit.requests:
        return 0.0
    if now < limit.requests:
        return max(window * (1 - (limit.requests - now - 1) / before) - elapsed, 0.001)
    fits_at = max(0.0, 1 - (limit.requests - 1) / now)
    return window - elapsed + window * fits_at
