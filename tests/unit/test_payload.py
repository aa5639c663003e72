from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadValue
from headrace.model import payload

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
bad_scalars = st.sampled_from(
    [float("nan"), float("inf"), "\0", "a\ud800", 2**63, -(2**63) - 1, 2**64 - 1, 10**400, b"x", {1}, object(), 1j]
) | st.sampled_from(
    [datetime.date(2024, 1, 1), decimal.Decimal("1.5"), {1: 2}, {None: 1}, {"\ud800": 1}, {"\0": 1}, {(1,): 1}, int]
)


def encode(value: object) -> str:
    return payload.encode(value, max_bytes=1 << 20)


@settings(deadline=None)
@given(values)
def test_what_is_json_comes_back_as_it_was(value: Any) -> None:
    assert payload.is_plain(value)
    assert not list(payload.flaws(value))
    text = encode(value)
    assert payload.decode(text) == value
    assert json.loads(text) == value


@settings(deadline=None)
@given(bad_scalars, st.lists(st.sampled_from(["key", "list"]), max_size=5))
def test_what_is_not_json_is_refused_wherever_it_is(bad: Any, wrapping: list[str]) -> None:
    for how in wrapping:
        bad = {"key": bad, "other": 1} if how == "key" else [0, bad]
    assert not payload.is_plain(bad)
    with pytest.raises(BadValue):
        encode(bad)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, float("nan")]}, "a[1] is nan"),
        ({"n": 2**63}, "send it as text"),
        ({"when": datetime.date(2024, 1, 1)}, "when is a date"),
        ({"a": {3: 1}}, "a has the key 3"),
        ("\0", "NUL"),
    ],
)
def test_a_refusal_names_the_place_and_the_reason(value: object, says: str) -> None:
    with pytest.raises(BadValue) as raised:
        encode(value)
    assert says in str(raised.value)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    assert payload.decode(encode(nested(64))) == nested(64)
    for value in (nested(65), nested(100_000)):
        with pytest.raises(BadValue, match="deeper"):
            encode(value)


def test_a_value_that_contains_itself_is_refused_at_once() -> None:
    value: list[Any] = []
    value += [value, value]
    with pytest.raises(BadValue, match="deeper"):
        encode(value)


def test_size_is_bounded_in_bytes_of_utf8() -> None:
    assert payload.encode("ä" * 4, max_bytes=10) == '"ääää"'
    with pytest.raises(BadValue, match="12 bytes"):
        payload.encode("ä" * 5, max_bytes=11)


class Colour(enum.StrEnum):
    RED = "red"


class Model(pydantic.BaseModel):
    when: datetime.date
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


class Pair(msgspec.Struct):
    a: int


def test_models_tuples_and_subclasses_are_written_as_what_they_hold() -> None:
    model = Model(when=datetime.date(2024, 1, 2), tags=("t",))
    assert payload.decode(encode(model)) == {"when": "2024-01-02", "tags": ["t"]}
    assert payload.decode(encode({"m": [model], "p": Point(1, Pair(2))})) == {
        "m": [{"when": "2024-01-02", "tags": ["t"]}],
        "p": {"x": 1, "inner": {"a": 2}},
    }
    assert payload.decode(encode((1, (Colour.RED, True)))) == [1, ["red", True]]
    assert payload.decode(encode({Colour.RED: 1})) == {"red": 1}
    with pytest.raises(BadValue, match=r"inner is a date"):
        encode(Point(1, datetime.date(2024, 1, 1)))


def test_text_that_only_looks_doubtful_is_kept() -> None:
    value = {"a": "\\u0000", "b": "12345678901234567890123", "c": [[i] for i in range(100)]}
    assert payload.decode(encode(value)) == value


def test_an_output_is_an_object() -> None:
    assert payload.as_output({"a": 1}) == {"a": 1}
    assert payload.as_output(Point(1)) == {"x": 1, "inner": None}
    for value in (None, 1, "x", [1], (1, 2)):
        assert payload.as_output(value) == {"result": value}
