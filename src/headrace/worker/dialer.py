"""Connects to addresses that were checked, and to no others: the network backend below the pool of an HTTP client.

A name is resolved once per connection. All its addresses are checked, and the connection goes to one of exactly these,
so that a name which is another address a moment later (DNS rebinding) gains nothing. TLS still verifies the name. This
module imports the HTTP library, which takes a while; `outbound` imports it with the first request.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from ipaddress import ip_address
from typing import Any

import httpcore2

from headrace.errors import Fatal, Retry
from headrace.worker import threads
from headrace.worker.addresses import Address, Reachable

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_ADDRESSES = 8
NEXT_ADDRESS_AFTER_SECONDS = 3.0
READ_BYTES = 8 << 10  # of hostile input the parser takes tens of milliseconds for more, and no other handler runs


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system. In a thread of its own: a slow name server must not hold up the lookups of other nodes."""
    found = await threads.Call(lambda: _lookup(host, port)).future
    if isinstance(found, OSError):
        raise found
    return found


def _lookup(host: str, port: int) -> Sequence[str] | OSError:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)]
    except OSError as error:
        return error


@cache
def ssl_context() -> ssl.SSLContext:
    """Reading the certificates takes as long as several calls. SSL_CERT_FILE and SSL_CERT_DIR are used, if set."""
    return httpcore2.default_ssl_context()


class Dialer(httpcore2.AsyncNetworkBackend):
    def __init__(self, reachable: Reachable, resolve: Resolve) -> None:
        self._reachable = reachable
        self._resolve = resolve
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._checked_addresses(host, port)
        for address in others:
            try:
                return await self._connect(address, port, NEXT_ADDRESS_AFTER_SECONDS)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(last, port, None)

    async def _checked_addresses(self, host: str, port: int) -> Sequence[Address]:
        found = await self._lookup(host, port)
        if refusal := self._reachable.refusal(host, port, found):
            raise Fatal(refusal)
        return found[:MAX_ADDRESSES]

    async def _lookup(self, host: str, port: int) -> Sequence[Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass
        try:
            found = [ip_address(text) for text in await self._resolve(host, port)]
        except OSError as error:
            raise Retry(f"the address of {host} cannot be found: {error.strerror or error}") from error
        if not found:
            raise Retry(f"{host} has no address")
        return list(dict.fromkeys(found))

    async def _connect(self, address: Address, port: int, within_seconds: float | None) -> Stream:
        return Stream(await self._network.connect_tcp(str(address), port, within_seconds))

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise Fatal("outgoing HTTP does not use Unix sockets")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class Stream(httpcore2.AsyncNetworkStream):
    """A connection that is read in small portions, and that a cancelled TLS handshake does not leave open."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(min(max_bytes, READ_BYTES), timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> Stream:
        try:
            return Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            await self.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
