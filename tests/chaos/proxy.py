"""A TCP proxy between the roles and one of their stores, which does what networks do.

It delays what passes, cuts it into pieces, resets connections, and lets them go dead without a word. Above all it can
let a command through, see it answered, and keep the answer: the caller cannot know that its command was applied.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CHUNK = 1 << 16
SURELY_APPLIED_SECONDS = 0.02  # between the first answer that is kept and the reset: commands are pipelined
PIECES = 8
NO_LINGER = struct.pack("ii", 1, 0)  # a close becomes a reset


@dataclass(eq=False)
class Drop:
    """Wait for a command with this in it, and keep its answer."""

    marker: bytes
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Connection:
    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._drop: Drop | None = None
        self.live = asyncio.Event()  # cleared: nothing passes any more, and nobody is told
        self.live.set()

    async def pump(self, up: asyncio.StreamReader, down: asyncio.StreamReader) -> None:
        """Until either side closes."""
        pumps = [asyncio.create_task(self._pump_up(up)), asyncio.create_task(self._pump_down(down))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                if pump.done() and not isinstance(pump.exception(), OSError | None):
                    pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            self._client.close()
            self._server.close()

    async def _pump_up(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            await self.live.wait()
            if self._drop is None:
                self._drop = self._proxy.take_drop(data)
            await self._pass_on(data, self._server)

    async def _pump_down(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            await self.live.wait()
            if self._drop is not None:
                await asyncio.sleep(SURELY_APPLIED_SECONDS)
                self.reset()
                self._drop.done.set()
                return
            await self._pass_on(data, self._client)

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._proxy.latency_seconds:
            await asyncio.sleep(self._proxy.latency_seconds * random.random() * 2)
        for piece in _pieces(data) if self._proxy.splits else (data,):
            if writer.is_closing():
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()
            if self._proxy.splits:
                await asyncio.sleep(0.001)

    def reset(self) -> None:
        if not self._client.is_closing():
            self._client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self._client.transport.abort()
        self._server.transport.abort()
        self.live.set()


class Proxy:
    """In front of a Unix socket; `port` is where roles connect to."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.port = 0
        self.latency_seconds = 0.0
        self.splits = False
        self.connections: set[Connection] = set()
        self._drops: list[Drop] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        self.reset_all()
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await asyncio.open_unix_connection(self.target)
        except OSError:
            client.transport.abort()
            return
        connection = Connection(self, client, server)
        self.connections.add(connection)
        try:
            await connection.pump(client_reader, server_reader)
        finally:
            self.connections.discard(connection)

    # ---- faults

    def reset_all(self) -> int:
        connections = tuple(self.connections)
        for connection in connections:
            connection.reset()
        return len(connections)

    def reset_some(self, count: int) -> int:
        some = random.sample(tuple(self.connections), min(count, len(self.connections)))
        for connection in some:
            connection.reset()
        return len(some)

    @contextmanager
    def half_open(self, count: int) -> Iterator[int]:
        """Some connections go dead; those that are still there afterwards are reset."""
        some = random.sample(tuple(self.connections), min(count, len(self.connections)))
        for connection in some:
            connection.live.clear()
        try:
            yield len(some)
        finally:
            for connection in some:
                connection.reset()

    async def drop_reply(self, marker: str, within_seconds: float) -> bool:
        """Whether a command with this in it came, was applied and was not answered."""
        drop = Drop(marker.encode())
        self._drops.append(drop)
        try:
            async with asyncio.timeout(within_seconds):
                await drop.done.wait()
        except TimeoutError:
            return False
        finally:
            if drop in self._drops:
                self._drops.remove(drop)
        return True

    def take_drop(self, data: bytes) -> Drop | None:
        for drop in self._drops:
            if drop.marker in data:
                self._drops.remove(drop)
                return drop
        return None


def _pieces(data: bytes) -> Iterator[bytes]:
    cuts = sorted(random.randrange(len(data)) for _ in range(min(PIECES, len(data)) - 1))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if start < end:
            yield data[start:end]
