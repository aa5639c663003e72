"""As much of HTTP/1.1 as is needed to ask our own server again and again, and no more: the client is not measured, but
it shares the cores with what is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One question at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._received = b""
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None

    async def call(self, method: str, path: str, body: bytes = b"", *, expected: int = 200) -> Any:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head_of_answer, text = await self._answer
        if int(head_of_answer[9:12]) != expected:
            raise RuntimeError(f"{method} {path}: {head_of_answer.decode()}\r\n{text.decode()}")
        return msgspec.json.decode(text)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, text = self._received.partition(b"\r\n\r\n")
        found = _length.search(head)
        if found and len(text) >= int(found[1]) and self._answer is not None:
            self._received = b""
            self._answer.set_result((head, text))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server has closed the connection"))

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()
