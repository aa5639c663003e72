"""The HTTP client of the handlers: one answer, redirects followed, within a time and a size, from allowed addresses.

Where a connection goes is decided below the pool (`dialer`), so that every request and every redirect passes the same
check. A client has its own pool and no other memory: no cookies, no proxies or passwords from the environment. `send`
raises Fatal for what can never work, and Retry for what the network may have done: failed lookups, refused, cut or
timed-out connections, and answers that are no proper HTTP.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import Fatal, Retry
from headrace.worker.addresses import Reachable
from headrace.worker.answers import Answer, body_of, is_json, refuse_status, retry_after_seconds
from headrace.worker.request import Request

if TYPE_CHECKING:
    import httpcore2

    from headrace.worker.dialer import Resolve

__all__ = ["Answer", "Outbound", "body_of", "is_json", "refuse_status", "retry_after_seconds"]

KEPT_CONNECTIONS = 64
KEPT_SECONDS = 15.0
MAX_HEADERS = 256
FRAMING_BYTES = 64 << 10  # of a compressed body, beyond what its content may have

REDIRECTS = {301, 302, 303, 307, 308}


class Outbound:
    def __init__(
        self, *, allow_private: bool = False, allowed_hosts: Collection[str] = (), resolve: Resolve | None = None
    ) -> None:
        """`allowed_hosts` are entries of HTTP_ALLOWED_HOSTS; `resolve` stands in for the system's name lookup."""
        self._reachable = Reachable(allow_private=allow_private, allowed_hosts=allowed_hosts)
        self._resolve = resolve
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        timeout_seconds: float,
        max_bytes: int,
        redirects: int = 3,
    ) -> Answer:
        """One answer, whatever its status. Without `redirects` a redirect is an answer too.

        `timeout_seconds` is for all of it, from the lookup to the last byte, and `max_bytes` for the decoded body.
        """
        request = Request.checked(method, url, headers or {}, query or {}, content)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._follow(request, max_bytes, redirects)
        except TimeoutError:
            raise Retry(f"{request.host} did not answer within {timeout_seconds:g} seconds") from None

    async def aclose(self) -> None:
        """Close all connections. A later request opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _follow(self, request: Request, max_bytes: int, redirects: int) -> Answer:
        first, left = request.host, redirects
        while True:
            answer = await self._exchange(request, max_bytes)
            if not redirects or answer.status not in REDIRECTS or "location" not in answer.headers:
                return answer
            if not left:
                raise Fatal(f"{first} redirected more than {redirects} times")
            request = request.redirected(answer)
            left -= 1

    async def _exchange(self, request: Request, max_bytes: int) -> Answer:
        host = request.host
        with _network_errors(host):
            response = await self._opened_pool().handle_async_request(request.on_the_wire())
            try:
                headers = _received_headers(host, response.headers)
                content = await _received(host, response, headers, max_bytes)
            finally:
                await response.aclose()
        return Answer(response.status, headers, content, str(request.url))

    def _opened_pool(self) -> httpcore2.AsyncConnectionPool:
        if self._pool is None:
            import httpcore2

            from headrace.worker import dialer

            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=dialer.ssl_context(),
                max_connections=None,  # there are as many as the worker has slots
                max_keepalive_connections=KEPT_CONNECTIONS,
                keepalive_expiry=KEPT_SECONDS,
                network_backend=dialer.Dialer(self._reachable, self._resolve or dialer.resolve),
            )
        return self._pool


def _received_headers(host: str, raw: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    if len(raw) > MAX_HEADERS:
        raise Fatal(f"{host} answered with {len(raw)} headers, and at most {MAX_HEADERS} are read")
    headers: dict[str, str] = {}
    for key, value in raw:
        name, text = key.decode("latin-1").lower(), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


async def _received(host: str, response: httpcore2.Response, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """The decoded body. Never more than `max_bytes` of it are in memory, however well it was compressed."""
    decoder = _decoder(host, headers.get("content-encoding", ""))
    content, raw_bytes = bytearray(), 0
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            raw_bytes += len(chunk)
            content += decoder.decode(chunk, max_bytes + 1 - len(content)) if decoder else chunk
            if len(content) > max_bytes or raw_bytes > max_bytes + FRAMING_BYTES:
                raise Fatal(f"the answer of {host} is larger than the {max_bytes:,} bytes that are allowed")
    if decoder and raw_bytes and not decoder.is_complete:
        raise Retry(f"the compressed answer of {host} ended in the middle")
    return bytes(content)


class _Decoder:
    """Of gzip, in any number of members, and of deflate."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # both formats, told by their first bytes

    def decode(self, data: bytes, max_bytes: int) -> bytes:
        decoded = b""
        while data and len(decoded) < max_bytes:
            if self._zlib.eof:
                self._zlib = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
            decoded += self._zlib.decompress(data, max_bytes - len(decoded))
            data = self._zlib.unused_data
        return decoded

    @property
    def is_complete(self) -> bool:
        return self._zlib.eof


def _decoder(host: str, encoding: str) -> _Decoder | None:
    match encoding.lower().strip():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Decoder()
    raise Fatal(f"{host} answered with the content encoding {encoding[:50]!r}: only gzip and deflate can be read")


@contextmanager
def _network_errors(host: str) -> Iterator[None]:
    import httpcore2

    try:
        yield
    except httpcore2.LocalProtocolError as error:
        raise Fatal(f"the request to {host} cannot be sent: {error}") from error
    except httpcore2.ProtocolError as error:
        if "disconnected" in str(error):
            raise Retry(f"{host} closed the connection before it had answered") from error
        reason = str(error).partition(":")[0]  # after the colon it quotes the server
        raise Retry(f"{host} did not answer in proper HTTP: {reason}") from error
    except zlib.error as error:
        raise Retry(f"the compressed answer of {host} is damaged") from error
    except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        cause = _first_cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise Fatal(f"the certificate of {host} cannot be trusted: {cause.verify_message}") from error
        raise Retry(f"the connection to {host} failed: {cause}") from error


def _first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
