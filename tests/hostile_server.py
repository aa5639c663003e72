"""An HTTP server on loopback that does what a test says, byte by byte, and remembers who came.

It speaks the protocol only as far as reading a request; the answer is whatever the script writes. A script that returns
has its connection kept for the next request, as HTTP/1.1 does, unless it closed it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seen:
    """A request as it came in; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HostileServer:
    port: int = 0
    connections: int = 0
    requests: list[Seen] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has come."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection has ended; one whose script never ends can only be ended by the client."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


Script = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def saying(answer: bytes) -> Script:
    """Always the same bytes."""

    async def say(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return say


def ending(answer: bytes) -> Script:
    """The same bytes, and then the connection ends."""

    async def end(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    return end


def endless(start: bytes, more: bytes, *, pause_seconds: float = 0) -> Script:
    """Never comes to an end by itself."""

    async def go_on(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return go_on


def answer(body: bytes | str = b"", *, status: int = 200, headers: dict[str, str] | None = None) -> bytes:
    """A proper answer."""
    content = body.encode() if isinstance(body, str) else body
    given = {"Content-Length": str(len(content)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode("latin-1") + content


def redirect(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Elsewhere\r\nContent-Length: 0\r\nLocation: ".encode() + location.encode() + b"\r\n\r\n"


@asynccontextmanager
async def serving(
    script: Script | bytes = b"", *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[HostileServer]:
    server = HostileServer()
    perform = saying(script or answer("hello")) if isinstance(script, bytes) else script
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            while not writer.is_closing() and (seen := await _request(reader)):
                server.requests.append(seen)
                server.came.set()
                await _perform_while_heard(perform(seen, writer), reader)
        finally:
            server.gone.set()
            writer.close()
            if tls is not None:
                writer.transport.abort()  # no closing handshake with a client that has just gone
            with suppress(OSError):
                await writer.wait_closed()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(connected(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(start, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()


async def _perform_while_heard(script: Awaitable[None], reader: asyncio.StreamReader) -> None:
    """Until the script ends or the client is gone; it has nothing to say meanwhile, so any read means that it is."""
    talking = asyncio.ensure_future(script)
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait([talking, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        talking.cancel()
        leaving.cancel()
        await asyncio.gather(talking, leaving, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, target, _ = first.split(" ")
        return Seen(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
    except (OSError, asyncio.IncompleteReadError):
        return None
