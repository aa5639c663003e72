"""The fault machine's proxy: what passes, what does not, and what each side sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos.proxy import Proxy

LINE = b"x" * 100_000 + b"\n"
WITHIN_SECONDS = 20


@dataclass
class Server:
    """Answers each line with the same line."""

    lines: list[bytes] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.lines.append(line)
                writer.write(line)
        except OSError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_unix_server(made.answer, tmp_path / "server", limit=1 << 20)
    yield made
    listening.close()


@pytest.fixture
async def proxy(server: Server, tmp_path: Path) -> AsyncIterator[Proxy]:
    made = Proxy(tmp_path / "server")
    await made.start()
    yield made
    await made.aclose()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=1 << 20)
    yield reader, writer
    writer.close()


async def ask(client: Streams, line: bytes) -> bytes:
    reader, writer = client
    writer.write(line)
    async with asyncio.timeout(WITHIN_SECONDS):
        return await reader.readline()


async def test_what_is_split_and_slow_arrives_as_it_was(proxy: Proxy, client: Streams) -> None:
    proxy.splits, proxy.latency_seconds = True, 0.01
    assert await ask(client, LINE) == LINE
    proxy.splits, proxy.latency_seconds = False, 0.0
    assert await ask(client, b"again\n") == b"again\n"


async def test_a_dropped_reply_belongs_to_a_command_that_was_applied(
    proxy: Proxy, server: Server, client: Streams
) -> None:
    dropping = asyncio.create_task(proxy.drop_reply("claim", WITHIN_SECONDS))
    assert await ask(client, b"report\n") == b"report\n"
    with pytest.raises(ConnectionResetError):
        await ask(client, b"claim\n")
    assert await dropping
    assert server.lines == [b"report\n", b"claim\n"]


async def test_a_reply_that_never_comes_is_not_dropped(proxy: Proxy) -> None:
    assert not await proxy.drop_reply("claim", 0.01)


async def test_a_reset_is_seen_at_once(proxy: Proxy, client: Streams) -> None:
    assert await ask(client, b"a\n") == b"a\n"
    assert proxy.reset_some(5) == 1
    with pytest.raises(ConnectionResetError):
        await ask(client, b"b\n")


async def test_a_half_open_connection_says_nothing_until_it_is_reset(
    proxy: Proxy, server: Server, client: Streams
) -> None:
    reader, writer = client
    assert await ask(client, b"a\n") == b"a\n"
    with proxy.half_open(1) as count:
        assert count == 1
        writer.write(b"b\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.05)
        assert server.lines == [b"a\n"]
    with pytest.raises(ConnectionResetError):
        await reader.readline()


async def test_with_the_server_away_the_connection_is_closed(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path / "nobody")
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await reader.read() == b""
    writer.close()
    await proxy.aclose()
