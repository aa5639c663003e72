"""HTTP to one Headrace server, for client.py: requests, repeats, streams of events, and the two errors that there are.

The API key never leaves for another origin: redirects are not followed, and what stands in a path is quoted. What the
server answers is checked for what its type promises, and given back whole, with what a newer server adds to it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from headrace.errors import HeadraceError
from headrace.model.payload import encode
from headrace.rest.answers import ENDED

REPEAT_AFTER_SECONDS: Final = (0.1, 0.4)
RECONNECT_AFTER_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 5.0)
MOST_SECONDS_WITHOUT_SIGN: Final = 60.0  # of an open stream of events: the server sends one much more often
MOST_RETRY_AFTER_SECONDS: Final = 60.0
MOST_EVENT_BYTES: Final = 256 << 20  # a snapshot has every node

T = TypeVar("T")
Json = Mapping[str, Any]


class ProblemError(HeadraceError):
    """The server refused. The fields are those of its problem document (RFC 9457), and of its Retry-After."""

    def __init__(self, status: int, problem: Json, retry_after_seconds: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code") or f"http_{status}")
        self.title = str(problem.get("title") or "")
        self.detail = str(problem.get("detail") or self.title or f"the server answered {status}")
        errors = problem.get("errors")
        self.errors = tuple(each for each in errors if isinstance(each, dict)) if isinstance(errors, list) else ()
        self.retry_after_seconds = retry_after_seconds
        super().__init__(self.detail)


class ServerUnreachable(HeadraceError):
    """There is no answer, or one that is not of this API."""

    code = "server_unreachable"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """`kind` is `snapshot`, or says what changed. Whoever comes back with the `id` goes on after this one."""

    id: str
    kind: str
    data: dict[str, Any]

    @property
    def is_last(self) -> bool:
        return self.data.get("status") in ENDED


class Wire:
    def __init__(self, server: str, api_key: str | None, timeout_seconds: float) -> None:
        self._server = _address(server)
        self._timeout = timeout_seconds
        is_local = _is_loopback(self._server.host)
        self._http = httpx2.AsyncClient(
            base_url=self._server,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout_seconds,
            follow_redirects=False,
            mounts={f"all://{self._server.netloc.decode()}": None} if is_local else None,  # through no proxy
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, answer: type[T], **query: str | int | None) -> T:
        given = {name: value for name, value in query.items() if value is not None}
        return self._decoded(await self._request("GET", path, params=given, is_safe=True), answer)

    async def post(
        self,
        path: str,
        answer: type[T],
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        is_safe: bool = False,
    ) -> T:
        """`is_safe`: the server may see it twice."""
        return self._decoded(await self._request("POST", path, body=body, headers=headers, is_safe=is_safe), answer)

    async def delete(self, path: str) -> None:
        await self._request("DELETE", path)

    async def events(self, path: str, last_event_id: str) -> AsyncGenerator[ServerEvent, None]:
        """Up to the last one. A broken stream is taken up again where it ended, unless nothing comes for a while."""
        pauses = iter(RECONNECT_AFTER_SECONDS)
        while True:
            broke: HeadraceError = ServerUnreachable(f"{self._server} ends the stream of events without a reason")
            try:
                async with aclosing(self._stream(path, last_event_id)) as stream:
                    async for event in stream:
                        last_event_id, pauses = event.id, iter(RECONNECT_AFTER_SECONDS)
                        yield event
                        if event.is_last:
                            return
            except (ServerUnreachable, ProblemError) as error:
                if isinstance(error, ProblemError) and error.status not in (429, 502, 503, 504):
                    raise
                broke = error
            pause = next(pauses, None)
            if pause is None:
                raise broke
            await asyncio.sleep(max(pause, getattr(broke, "retry_after_seconds", None) or 0.0))

    async def _stream(self, path: str, last_event_id: str) -> AsyncGenerator[ServerEvent, None]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_event_id} if last_event_id else {})}
        async with self._opened(path, headers) as response:
            async for event in httpx2.EventSource(response, MOST_EVENT_BYTES):
                data = self._decoded(event.data or "{}", dict[str, Any])
                if event.event == "problem":  # it came up after the stream had begun
                    raise ProblemError(_status(data.get("status")), data)
                if event.data:
                    yield ServerEvent(event.id, event.event, data)

    @asynccontextmanager
    async def _opened(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(self._timeout, read=max(self._timeout, MOST_SECONDS_WITHOUT_SIGN))
        try:
            async with self._http.stream("GET", f"v1/{path}", headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    raise self._refusal(response)
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        is_safe: bool = False,
    ) -> bytes:
        """Repeated where the server cannot have seen it, or may see it twice."""
        content = None if body is None else encode(body, max_bytes=1 << 62)
        typed = {"Content-Type": "application/json", **(headers or {})} if body is not None else headers
        for pause in (*REPEAT_AFTER_SECONDS, None):
            request = self._http.build_request(method, f"v1/{path}", content=content, params=params, headers=typed)
            try:
                response = await self._http.send(request)
            except httpx2.TransportError as error:
                is_unseen = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if pause is None or not (is_unseen or is_safe):
                    raise self._unreachable(error) from error
                await asyncio.sleep(pause)
            else:
                break
        if not response.is_success:
            raise self._refusal(response)
        return response.content

    def _refusal(self, response: httpx2.Response) -> HeadraceError:
        if response.is_redirect:
            return ServerUnreachable(
                f"{self._server} leads to {response.headers['location']}: give that address instead"
            )
        try:
            problem = msgspec.json.decode(response.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            problem = {}
        return ProblemError(response.status_code, problem, _seconds(response.headers.get("retry-after", "")))

    def _decoded(self, text: str | bytes, answer: type[T]) -> T:
        """The document as it is, if it has what the type promises."""
        try:
            msgspec.json.decode(text, type=answer)
            whole: T = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServerUnreachable(f"{self._server} does not answer like a Headrace API: {error}") from error
        return whole

    def _unreachable(self, error: httpx2.TransportError) -> ServerUnreachable:
        return ServerUnreachable(f"cannot reach {self._server}: {str(error) or type(error).__name__}")


def segment(name: str) -> str:
    """One part of a path, whatever is in it."""
    if not name:
        raise ValueError("an id or a name must not be empty")
    return quote(name, safe="").replace(".", "%2E")  # . and .. would lead elsewhere


def _address(server: str) -> httpx2.URL:
    try:
        url = httpx2.URL(server)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{server!r} is not an address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError(f"{server!r} is not an address like http://127.0.0.1:8080")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _status(value: object) -> int:
    return value if isinstance(value, int) else 500


def _seconds(retry_after: str) -> float | None:
    if not (retry_after.isascii() and retry_after.isdecimal()):
        return None
    return min(float(retry_after), MOST_RETRY_AFTER_SECONDS)
