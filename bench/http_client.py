"""As much of HTTP/1.1 as is needed to ask our own server again and again, and no more: the client is not measured."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, method: str, path: str, body: bytes = b"", *, expected: int = 200) -> Any:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", answer, re.IGNORECASE)
        text = await self._reader.readexactly(int(length[1]) if length else 0)
        if int(answer.split(b" ", 2)[1]) != expected:
            raise RuntimeError(f"{method} {path}: {answer.decode()}{text.decode()}")
        return msgspec.json.decode(text)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    opened = [await Connection.to(port) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()
