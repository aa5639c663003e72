"""The connection: pipelining, errors, timeouts, broken and cancelled calls, on a real server and on stubborn ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.errors import StoreUnavailable, StoreUnsupported
from headrace.hot.wire import Address, BlockingLinks, Link, Refused, Wire


@pytest.fixture
async def link(valkey_url: str) -> AsyncIterator[Link]:
    made = Link(Address.parse(valkey_url), 10)
    await made.call("FLUSHALL")
    yield made
    await made.aclose()


def test_addresses() -> None:
    assert Address.parse("redis://localhost") == Address(None, "localhost", 6379, False, None, None, 0)
    assert Address.parse("rediss://u:p%40ss@h:7000/3") == Address(None, "h", 7000, True, "u", "p@ss", 3)
    assert Address.parse("redis://:pw@h") == Address(None, "h", 6379, False, None, "pw", 0)
    unix = Address.parse("unix:///a%20b/c.sock?db=2")
    assert (unix.path, unix.db) == ("/a b/c.sock", 2)
    assert "p@ss" not in str(Address.parse("redis://u:p%40ss@h:7000/3"))
    for bad in ("http://h", "h:6379", "redis://h:port", "redis://h/db"):
        with pytest.raises(StoreUnsupported):
            Address.parse(bad)


async def test_concurrent_calls_get_their_own_answers(link: Link) -> None:
    await link.call_all([("SET", f"k{i}", i) for i in range(500)])
    answers = await link.call_all([("GET", f"k{i}") for i in range(500)])
    assert answers == [str(i).encode() for i in range(500)]


async def test_an_error_is_raised_to_its_caller_alone(link: Link) -> None:
    good, bad = await asyncio.gather(link.call("SET", "k", "text"), link.call("INCR", "k"), return_exceptions=True)
    assert good == b"OK"
    assert isinstance(bad, Refused)
    assert await link.call("GET", "k") == b"text"


async def test_a_cancelled_call_does_not_shift_the_answers(link: Link) -> None:
    await link.call("SET", "a", "1")
    await link.call("SET", "b", "2")
    lost = asyncio.create_task(link.call("GET", "a"))
    await asyncio.sleep(0)
    lost.cancel()
    assert await link.call("GET", "b") == b"2"


async def test_a_killed_connection_is_made_anew(link: Link, valkey_url: str) -> None:
    await link.call("PING")
    other = Link(Address.parse(valkey_url), 10)
    await other.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await link.call("PING") == b"PONG"
    await other.aclose()


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "v") as server:
        link = Link(Address.parse(server.url), 10)
        await link.call("SET", "k", "kept")
    with pytest.raises(StoreUnavailable):
        await link.call("GET", "k")
    with EmbeddedValkey(tmp_path / "v"):
        assert await link.call("GET", "k") == b"kept"
    await link.aclose()


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(swallow, str(path))
    wire = await Wire.connect(Address.parse(f"unix://{path}"), 0.2)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await wire.call("PING")
    assert not wire.is_open
    await _ended(server)


async def test_nonsense_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "nonsense.sock"

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"what?\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(babble, str(path))
    wire = await Wire.connect(Address.parse(f"unix://{path}"), 5)
    with pytest.raises(StoreUnavailable):
        await wire.call("PING")
    await _ended(server)


async def test_a_cancelled_blocking_call_harms_nobody(valkey_url: str, link: Link) -> None:
    blocking = BlockingLinks(lambda: Link(Address.parse(valkey_url), 30))
    waiting = asyncio.create_task(blocking.call("XREAD", "BLOCK", 20_000, "STREAMS", "s", "0-0"))
    while b"cmd=xread" not in await link.call("CLIENT", "LIST"):
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await link.call("XADD", "s", "1-1", "k", "v")
    answer = await blocking.call("XREAD", "BLOCK", 20_000, "STREAMS", "s", "0-0")
    assert answer == [[b"s", [[b"1-1", [b"k", b"v"]]]]]
    await blocking.aclose()


async def test_a_wrong_password_is_final(valkey_url: str) -> None:
    with pytest.raises(StoreUnsupported):
        await Wire.connect(Address.parse(valkey_url.replace("unix://", "unix://user:secret@")), 5)


async def test_nobody_there() -> None:
    with pytest.raises(StoreUnavailable, match="cannot reach Valkey"):
        await Link(Address.parse("unix:///nowhere/at/all.sock"), 1).call("PING")


async def _ended(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
    while len(asyncio.all_tasks()) > 1:  # its handlers see the end of their connections
        await asyncio.sleep(0.01)
