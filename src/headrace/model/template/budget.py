"""What a template may cost, and the frame that counts it while one renders.

Every evaluation closure gets a `Frame`. It pays there before it does anything whose size depends on data: `spend` for
work, `produce` for what it is about to build. The invariant: no single operation runs long or allocates much before
one of the two has refused it, so a hostile template ends in TemplateLimit and the process stays as it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import TemplateError, TemplateLimit


@dataclass(frozen=True, slots=True)
class Limits:
    """All budgets of templates. The first group holds while compiling, the second while rendering."""

    source_characters: int = 64 * 1024
    tokens: int = 20_000
    syntax_nodes: int = 5_000
    syntax_depth: int = 100
    open_brackets: int = 30  # Jinja's parser takes 15 Python frames for each, out of 1,000
    open_blocks: int = 30
    inline_chain: int = 60  # `else` and unary operators of one tag, each a Python frame in the parser
    number_characters: int = 400

    steps: int = 100_000
    output_characters: int = 4 * 1024 * 1024
    range_elements: int = 10_000
    value_depth: int = 200  # what C code may compare or encode recursively
    integer: int = 2**63 - 1
    strip_characters: int = 100
    attribute_parts: int = 20


LIMITS: Final = Limits()

ELEMENT: Final = 16
"""Characters that one element of a list or object counts as, when a list or object is built."""


class Absent:
    """The type of ABSENT, which stands for "nothing there" where None is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class Frame:
    """One rendering: the context it reads, its local variables, and what is left of its budgets."""

    __slots__ = ("context", "room", "slots", "steps")

    def __init__(self, context: Mapping[str, Any], slots: int) -> None:
        self.context = context
        self.slots: list[Any] = [ABSENT] * slots
        self.steps = LIMITS.steps
        self.room = LIMITS.output_characters

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TemplateLimit(f"it takes more than {LIMITS.steps:,} steps")

    def produce(self, characters: int) -> None:
        self.room -= characters
        if self.room < 0:
            raise TemplateLimit(f"it produces more than {LIMITS.output_characters:,} characters in all")

    def produce_list(self, elements: int) -> None:
        """Pay for a list that is about to be built by C code."""
        self.spend(1 + (elements >> 3))
        self.produce(elements * ELEMENT)

    def scan(self, characters: int) -> None:
        """Pay for string work that reads this many characters."""
        self.spend(1 + characters // 100)

    def weigh(self, value: Any, indent: int = 0) -> int:
        """Pay for walking through a value, and return about how many characters it has as JSON.

        Level by level and never recursive, so that neither deep values nor lists that contain the same list many
        times over can do harm. After it, C code may walk through the value recursively.
        """
        characters = 0
        depth = 0
        level = [value]
        while level:
            depth += 1
            if depth > LIMITS.value_depth:
                raise TemplateLimit(f"a value is nested deeper than {LIMITS.value_depth} levels")
            below: list[Any] = []
            for item in level:
                kind = type(item)
                if kind is str:
                    characters += len(item) + 3
                elif kind is dict or kind is list:
                    self.spend(1 + (len(item) >> 3))
                    characters += 2
                    if kind is dict:
                        characters += _key_characters(item)
                        below.extend(item.values())
                    else:
                        below.extend(item)
                elif kind is int or kind is bool or item is None or (kind is float and math.isfinite(item)):
                    characters += 5
                else:
                    raise TemplateError(f"{describe(item)} is not a JSON value")
            characters += len(level) * indent * depth
            level = below
        self.scan(characters)
        return characters


def _key_characters(value: dict[Any, Any]) -> int:
    characters = 0
    for key in value:
        if type(key) is not str:
            raise TemplateError(f"an object's key must be text, not {describe(key)}")
        characters += len(key) + 4
    return characters


_KINDS: Final = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}


def describe(value: Any) -> str:
    """What a value is, in the words of error messages."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return "a number that is not finite"
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    return _KINDS.get(kind, f"a Python {kind.__name__}")


_encode_compact: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(frame: Frame, value: Any, indent: int | None = None) -> str:
    """JSON text, compact unless an indent is given. Escapes may make it longer than paid for: that is paid after."""
    expected = frame.weigh(value, indent or 0)
    frame.produce(expected)
    try:
        if indent is None:
            result = _encode_compact(value)
        else:
            result = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError as error:  # an integer of thousands of digits
        raise TemplateLimit(f"a number is too long to be written: {error}") from None
    frame.produce(max(0, len(result) - expected))
    return result


def to_text(frame: Frame, value: Any) -> str:
    """What a value becomes inside text: a string as it is, everything else as compact JSON."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is int:
        if -LIMITS.integer <= value <= LIMITS.integer:
            return str(value)
        return to_json(frame, value)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    return to_json(frame, value)
