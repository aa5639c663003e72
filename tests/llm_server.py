"""A small server that speaks the chat protocol on loopback, with faults on demand.

It answers with the replies it was given, in order, the last one again and again, and keeps every request it got.
A reply is made of raw pieces that are written one by one, so that a test decides where a stream is split or cut.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    is_cut: bool = False  # the connection ends without the end of the body

    def with_headers(self, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Reply(self.status, {**self.headers, **named}, self.pieces, self.is_cut)


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: Any


def completion(text: str | None, **other: Any) -> Reply:
    """A whole answer; `other` replaces or adds fields of the choice, the message, or the answer itself."""
    message = {"role": "assistant", "content": text, **other.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": other.pop("finish_reason", "stop")}
    return as_json({"id": "1", "model": "served-model", "choices": [choice], "usage": USAGE, **other})


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def error(status: int, message: str) -> Reply:
    return as_json({"error": {"message": message, "type": "some_error", "code": None}}, status)


def chunk(text: str | None = None, finish_reason: str | None = None, **other: Any) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return event(json.dumps({"model": "served-model", "choices": [choice], **other}, ensure_ascii=False))


def usage_chunk() -> bytes:
    return event(json.dumps({"model": "served-model", "choices": [], "usage": USAGE}))


def event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def stream(events: Iterable[bytes], *, split_bytes: int | None = None, is_cut: bool = False) -> Reply:
    """Events as they are, or written in pieces of so many bytes."""
    pieces = list(events)
    if split_bytes is not None:
        whole = b"".join(pieces)
        pieces = [whole[at : at + split_bytes] for at in range(0, len(whole), split_bytes)]
    return Reply(200, {"content-type": "text/event-stream; charset=utf-8"}, pieces, is_cut)


class LlmServer:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._replies: list[Reply] = [completion("hello")]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def will_reply(self, *replies: Reply) -> None:
        self._replies = list(replies)

    @property
    def last(self) -> Request:
        return self.requests[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Request(head[0].split()[1], headers, json.loads(body) if body else None))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        lines = [f"HTTP/1.1 {reply.status} Whatever", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for piece in filter(None, reply.pieces):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)  # pieces should not all end up in one packet
        if not reply.is_cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return not reply.is_cut


@asynccontextmanager
async def llm_server() -> AsyncIterator[LlmServer]:
    served = LlmServer()
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.create_task(served.serve(reader, writer))] = writer

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for writer in connections.values():
            writer.transport.abort()
        await asyncio.gather(*connections)
