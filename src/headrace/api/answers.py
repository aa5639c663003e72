"""What routes answer with: JSON written by msgspec, and server-sent events.

A stream of events belongs to one request: when the client leaves, the server stops or the changes end, nothing of it
is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headrace.api import problems

KEEP_ALIVE_SECONDS: Final = 15.0
FIRST_WITHIN_SECONDS: Final = 1.0

Change = tuple[str, str, dict[str, Any]]  # id, kind, data
Changes = AsyncGenerator[Change, None]

_encode = msgspec.json.Encoder().encode


class Json(JSONResponse):
    """Without what Starlette does to serve every kind of response."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = status_code, None
        self.body = _encode(content)
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        for name, value in (headers or {}).items():
            self.raw_headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


class EventStream(Response):
    """Changes as server-sent events. A client that comes back sends the last id that it has seen."""

    media_type = "text/event-stream"

    def __init__(self, changes: Changes, coming: asyncio.Future[Change | None], stop: asyncio.Event) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._changes, self._coming, self._stop = changes, coming, stop

    @classmethod
    async def begin(cls, changes: Changes, stop: asyncio.Event) -> EventStream:
        """What is wrong at once is raised here, while it can still be answered as a problem."""
        coming = _next(changes)
        try:
            await asyncio.wait({coming}, timeout=FIRST_WITHIN_SECONDS)
            if coming.done():
                coming.result()
        except BaseException:
            await _close(changes, coming)
            raise
        return cls(changes, coming, stop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        ends: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._stop.wait()),
            asyncio.ensure_future(_left(receive)),
        ]
        try:
            while not any(end.done() for end in ends):
                waited = [*ends, self._coming]
                await asyncio.wait(waited, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                frame = self._frame()
                if frame is None:
                    break
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            for end in ends:
                end.cancel()
            await _close(self._changes, self._coming)

    def _frame(self) -> bytes | None:
        """What to send now: the change that came, or a sign of life. None: it is over."""
        if not self._coming.done():
            return b": still here\n\n"
        error = self._coming.exception()
        if error is not None:  # the status is out already: the client learns of it from a last event
            problem = (
                problems.answer_error(error) if isinstance(error, Exception) else problems.answer("internal_error")
            )
            self._coming = asyncio.get_running_loop().create_future()
            self._coming.set_result(None)
            return b"event: problem\ndata: " + bytes(problem.body) + b"\n\n"
        change = self._coming.result()
        if change is None:
            return None
        self._coming = _next(self._changes)
        event_id, kind, data = change
        named = f"id: {event_id}\n" if event_id else ""
        return f"{named}event: {kind}\ndata: ".encode() + _encode(data) + b"\n\n"


def _next(changes: Changes) -> asyncio.Future[Change | None]:
    return asyncio.ensure_future(anext(changes, None))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(changes: Changes, coming: asyncio.Future[Change | None]) -> None:
    coming.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await coming
    await changes.aclose()
