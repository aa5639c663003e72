"""How the body of a request is read: in pieces, too late, or all at once; and the body that starts an execution."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from headrace.api import limits
from headrace.api.bodies import Start, _start
from headrace.api.parts import ARRIVED, header
from headrace.api.problems import Refused

MOST = 10


def request(*messages: Message, **scope: Any) -> Request:
    coming = iter(messages)

    async def receive() -> Message:
        for _ in range(3):
            await asyncio.sleep(0)
        message = next(coming, None)
        return message or await asyncio.Event().wait()  # type: ignore[return-value]

    return Request({"type": "http", "headers": [], **scope}, receive)


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_pieces() -> None:
    assert await limits.read_body(request(piece(b"01234", more=True), piece(b"56789")), MOST) == b"0123456789"
    assert await limits.read_body(request({"type": "http.request"}), MOST) == b""


async def test_a_body_is_refused_as_soon_as_it_is_too_large() -> None:
    with pytest.raises(Refused) as refused:
        await limits.read_body(request(piece(b"01234", more=True), piece(b"567890", more=True)), MOST)
    assert refused.value.code == "too_large"


async def test_a_body_that_ends_too_early() -> None:
    with pytest.raises(Refused) as refused:
        await limits.read_body(request(piece(b"01234", more=True), {"type": "http.disconnect"}), MOST)
    assert refused.value.code == "malformed_body"


@pytest.mark.parametrize("messages", [(), (piece(b"01234", more=True),)])
async def test_a_body_that_does_not_come(messages: tuple[Message, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_WITHIN_SECONDS", 0.01)
    with pytest.raises(Refused) as refused:
        await limits.read_body(request(*messages), MOST)
    assert refused.value.code == "body_too_slow"


async def test_a_body_that_is_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_WITHIN_SECONDS", 0.0)
    assert await limits.read_body(request(piece(b"01234"), **{ARRIVED: True}), MOST) == b"01234"


def test_of_a_header_that_is_there_twice_the_first_counts() -> None:
    scope = {"headers": [(b"host", b"a"), (b"origin", b"\xe4"), (b"origin", b"c")]}
    assert (header(scope, b"host"), header(scope, b"origin"), header(scope, b"x-api-key")) == ("a", "ä", None)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("diamond") | st.just([])
fields = st.sampled_from(["workflow", "input_params", "definition", "nodes"])


@given(st.dictionaries(fields, values | st.dictionaries(st.text() | st.integers(), values)))
@example({"workflow": "diamond"})
@example({"workflow": "diamond\n"})
@example({"workflow": "Diamond"})
@example({"workflow": "diamond", "input_params": None})
@example({"workflow": "diamond", "input_params": {"a": [float("nan")]}})
def test_the_quick_way_to_start_finds_what_the_careful_one_does(body: dict[str, Any]) -> None:
    """A version that is null says nothing, and is never on the quick way."""

    def outcome(body: dict[str, Any]) -> Start | tuple[Any, ...]:
        try:
            return _start(body)
        except Refused as refused:
            return refused.code, refused.detail, refused.problems

    quick, careful = outcome(body), outcome({**body, "version": None})
    if "definition" not in body:  # with a definition, a version is one thing too many
        assert repr(quick) == repr(careful)
