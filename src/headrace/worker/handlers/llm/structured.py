"""JSON answers: which schemas we check with, and whether an answer fits.

Schemas come from definitions and answers from remote servers, and both are hostile: references are written out within
a budget (checking with references can take exponential time), and a long answer is not held against a long schema.
An answer that does not fit is worth another attempt, so it is a Retry that says what is wrong without repeating it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import Retry
from headrace.model.definition import MAX_SCHEMA_CHARS, validator
from headrace.model.payload import MAX_DEPTH, dotted, shown

MAX_SCHEMA_PARTS = 10_000
MAX_CHECK = 1 << 31  # bytes of schema times bytes of answer: about a second at worst
_REFUSED = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")
_FENCE = "```"

_decode = msgspec.json.Decoder().decode


def usable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its references written out; ValueError where it is not one that we can check with."""
    written_out: dict[str, Any] = _WriteOut(schema)(schema, 0, ())
    if len(msgspec.json.encode(written_out)) > MAX_SCHEMA_CHARS:
        raise ValueError(f"the schema is longer than {MAX_SCHEMA_CHARS:,} characters")
    try:
        validator(written_out)
    except ValueError as error:
        told = shown(getattr(error, "message", str(error)), 300)
        raise ValueError(f"this is not a usable JSON Schema: {told}") from None
    return written_out


def json_answer(text: str, schema: dict[str, Any] | None) -> Any:
    """The JSON of an answer that fits the schema, if there is one; raises Retry."""
    value = parsed(text)
    if schema is not None:
        check(value, text, schema)
    return value


def parsed(text: str) -> Any:
    """The JSON of an answer, also from inside a fence; raises Retry."""
    try:
        return _parsed(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Retry(f"the answer is not JSON: {error}. It begins with: {shown(text.strip(), 60)}") from None


def check(value: object, text: str, schema: dict[str, Any]) -> None:
    """Raises Retry where a parsed answer does not fit the schema."""
    written_out = usable(schema)
    if len(msgspec.json.encode(written_out)) * len(text) > MAX_CHECK:
        raise Retry(f"the answer is too long to be checked with this schema: {len(text):,} characters")
    try:
        validator(written_out).validate(value)
    except ValueError as error:
        where = dotted(tuple(getattr(error, "instance_path", ()))) or "the whole of it"
        raise Retry(f"the answer does not fit json_schema: {where}: {_brief(getattr(error, 'message', ''))}") from None


def _parsed(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        start, end = text.find(_FENCE), text.rfind(_FENCE)
        if start == end:
            raise
        return _decode(text[start + len(_FENCE) : end].removeprefix("json"))


def _brief(message: str) -> str:
    """A validator's message begins with the value, however long, and ends with what is wrong with it."""
    return shown(message if len(message) <= 240 else f"{message[:60]} … {message[-160:]}", 240)


class _WriteOut:
    """Replaces each `$ref` to the schema's own definitions by what it refers to."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._defined = {
            f"#/{place}/{name}": each
            for place in ("$defs", "definitions")
            for name, each in (schema[place].items() if isinstance(schema.get(place), dict) else ())
        }
        self._left = MAX_SCHEMA_PARTS

    def __call__(self, part: Any, depth: int, inside: tuple[str, ...]) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise ValueError("the schema is too large or too deep when its references are written out")
        if isinstance(part, list):
            return [self(each, depth + 1, inside) for each in part]
        if not isinstance(part, dict):
            return part
        if refused := [name for name in _REFUSED if name in part]:
            raise ValueError(f"{refused[0]} may not be used in the schema")
        rest = {
            name: self(each, depth + 1, inside)
            for name, each in part.items()
            if name != "$ref" and not (depth == 0 and name in ("$defs", "definitions"))
        }
        if "$ref" not in part:
            return rest
        target = self._target(part["$ref"], depth, inside)
        return {"allOf": [target, rest]} if rest else target

    def _target(self, reference: object, depth: int, inside: tuple[str, ...]) -> Any:
        if not isinstance(reference, str) or reference not in self._defined:
            raise ValueError("a $ref in the schema must name one of its own $defs, as #/$defs/name")
        if reference in inside:
            raise ValueError(f"{reference} in the schema refers to itself, and such schemas cannot be checked here")
        return self(self._defined[reference], depth + 1, (*inside, reference))
