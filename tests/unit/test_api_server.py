"""How answers are written to a connection."""

from __future__ import annotations

import asyncio
from typing import cast

from headrace.api.server import _Joined


class Wire:
    def __init__(self) -> None:
        self.sent: list[bytes | str] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
        self.sent.append("closed")

    def get_extra_info(self, name: str) -> str:
        return name


def joined() -> tuple[Wire, _Joined]:
    wire = Wire()
    return wire, _Joined(cast("asyncio.Transport", wire), asyncio.get_running_loop())


async def test_head_and_body_go_out_together() -> None:
    wire, transport = joined()
    for data in (b"head ", b"body", b"next head ", b"next body"):
        transport.write(data)
    await asyncio.sleep(0)
    assert wire.sent == [b"head body", b"next head next body"]


async def test_a_head_whose_body_is_not_there_yet_does_not_wait() -> None:
    wire, transport = joined()
    transport.write(b"head")
    await asyncio.sleep(0)
    assert wire.sent == [b"head"]
    transport.write(b"event")
    await asyncio.sleep(0)
    assert wire.sent == [b"head", b"event"]


async def test_what_was_written_goes_out_before_the_end() -> None:
    wire, transport = joined()
    transport.write(b"all")
    transport.close()
    await asyncio.sleep(0)
    assert wire.sent == [b"all", "closed"]
    assert transport.get_extra_info("peername") == "peername"


async def test_nothing_is_written_to_a_connection_that_is_gone() -> None:
    wire, transport = joined()
    transport.write(b"head")
    wire.is_closed = True
    await asyncio.sleep(0)
    assert wire.sent == []
