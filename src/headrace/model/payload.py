"""JSON at the border: what handlers answer, and what may stand in a config or in input_params.

A value that one of our stores would refuse or change (NaN, a lone surrogate, NUL, an integer beyond 64 bits, a key
that is not text) is refused here, where it enters, so that it can never stop an orchestrator or the archiver later.
`encode` is on the hot path of every node. It lets msgspec write and read the value and compares in C: what comes back
equal is JSON. Only what does not is walked in Python, to convert models and tuples or to say what is wrong and where.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.errors import BadValue

MAX_DEPTH = 64
MAX_INT = 2**63 - 1
MIN_INT = -(2**63)
_BACKSLASH = ord("\\")

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 19


class Flaw(NamedTuple):
    """Why a value is not JSON that we can keep, and where in it."""

    message: str
    loc: tuple[str | int, ...]


def encode(value: object, *, max_bytes: int) -> str:
    """The value as JSON text, at most `max_bytes` long in UTF-8, or BadValue."""
    data = _quickly(value)
    if data is None:
        plain = _plain(value, ())
        for flaw in flaws(plain):
            raise BadValue(f"{dotted(flaw.loc) or 'the value'} {flaw.message}")
        data = _encode(plain)
    if len(data) > max_bytes:
        raise BadValue(f"the value is {len(data):,} bytes of JSON, and at most {max_bytes:,} are allowed")
    return data.decode()


def as_output(value: object) -> dict[str, Any]:
    """A node's output is an object: anything else goes into its `result`."""
    if type(value) is dict:
        return value
    opened = _opened(value)
    return opened if isinstance(opened, dict) else {"result": value}


def is_plain(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether `flaws` would find nothing; several times as fast."""
    kind = type(value)
    if kind is str:
        return _text_flaw(value) is None  # type: ignore[arg-type]
    if kind is bool or value is None:
        return True
    if kind is int:
        return MIN_INT <= value <= MAX_INT  # type: ignore[operator]
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if depth == 0:
        return False
    if kind is dict:
        return all(
            type(key) is str and _text_flaw(key) is None and is_plain(item, depth - 1)
            for key, item in value.items()  # type: ignore[attr-defined]
        )
    return kind is list and all(is_plain(item, depth - 1) for item in value)  # type: ignore[attr-defined]


def flaws(value: object, loc: tuple[str | int, ...] = (), depth: int = MAX_DEPTH) -> Iterator[Flaw]:
    """Everything in the value that is not JSON, depth first. Take only as many as you need."""
    kind = type(value)
    if kind is dict or kind is list:
        if depth == 0:
            yield Flaw(f"is nested deeper than {MAX_DEPTH} levels", loc)
            return
        items: Iterable[tuple[Any, Any]] = (
            value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
        )
        for key, item in items:
            yield from _key_flaws(key, loc) if kind is dict else ()
            yield from flaws(item, (*loc, key if isinstance(key, int) else str(key)), depth - 1)
        return
    message = _scalar_flaw(value)
    if message is not None:
        yield Flaw(message, loc)


def dotted(loc: tuple[str | int, ...]) -> str:
    """A path as people write it: config.items[0].url"""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in loc)
    return text.removeprefix(".")


def shown(text: str, limit: int = 80) -> str:
    """Text as a message may quote it: printable, and not longer than a line."""
    printable = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: limit + 1])
    return printable if len(text) <= limit else printable[:limit] + "…"


def _quickly(value: object) -> bytes | None:
    """The JSON of a value that is plain JSON beyond doubt, else None."""
    try:
        data: bytes = _encode(value)
        if decode(data) != value:
            return None
    except Exception:  # whatever an unknown object does when written or compared, the slow way explains it
        return None
    doubtful = (
        (_BACKSLASH in data and rb"\u0000" in data)
        or data.translate(_TO_ZEROS).find(_LONG_NUMBER) >= 0
        or (len(data) > 2 * MAX_DEPTH and data.count(b"{") + data.count(b"[") > MAX_DEPTH)
    )
    return data if not doubtful or is_plain(value) else None


def _plain(value: object, loc: tuple[str | int, ...]) -> object:
    """The value with tuples as lists, models as objects, and subclasses of JSON's types as these types."""
    if len(loc) > MAX_DEPTH:  # raised at once, not collected: the value may contain itself
        raise BadValue(f"{dotted(loc[:3])}… is nested deeper than {MAX_DEPTH} levels")
    value = _opened(value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item, (*loc, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*loc, index)) for index, item in enumerate(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__index__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _plain_key(key: object) -> object:
    return str.__str__(key) if isinstance(key, str) else key


def _opened(value: object) -> object:
    """What a model, dataclass or enumeration member holds; any other value as it is."""
    if isinstance(value, type):
        return value
    if callable(getattr(value, "model_dump", None)):
        try:
            return value.model_dump(mode="json")  # type: ignore[attr-defined]
        except Exception as error:
            raise BadValue(f"{type(value).__name__} cannot be turned into JSON: {error}") from error
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _key_flaws(key: object, loc: tuple[str | int, ...]) -> Iterator[Flaw]:
    if type(key) is not str:
        yield Flaw(f"has the key {shown(repr(key))}, which is not text", loc)
        return
    message = _text_flaw(key)
    if message is not None:
        yield Flaw(f"has a key that {message}", loc)


def _scalar_flaw(value: object) -> str | None:
    if type(value) is str:
        return _text_flaw(value)
    if value is None or type(value) is bool:
        return None
    if type(value) is int:
        return None if MIN_INT <= value <= MAX_INT else "is an integer beyond 64 bits: send it as text"
    if type(value) is float:
        return None if math.isfinite(value) else f"is {value}, which JSON does not have"
    return f"is a {type(value).__name__}, which JSON does not have"


def _text_flaw(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not Unicode text"
    return None
