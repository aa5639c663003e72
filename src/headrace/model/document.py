"""From the text of a file to plain Python values, with the line of everything in it.

Text is hostile until `load` has read it: its size, its depth, and how far aliases may swell it are bounded, and keys
are unique. JSON goes through the standard library's C parser, and lines are only looked for when an error asks. YAML
is read by `yaml_reader`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from headrace.errors import InvalidDefinition, Problem
from headrace.model.findings import Loc
from headrace.model.payload import shown

MAX_CHARS: Final = 32 * 1024 * 1024
MAX_YAML_CHARS: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 100

Position = tuple[int, int]
Members = Mapping[str | int, tuple[Position, Any]]

_template_begins: Final = re.compile(r"\{[{%]")


class Index(Protocol):
    """Where the parts of a text are. What a place is, only the index knows."""

    @property
    def root(self) -> Any: ...

    def members(self, place: Any) -> Members:
        """The position and the place of each part of a mapping or list; of anything else, nothing."""

    def span(self, place: Any) -> tuple[int, int]:
        """From where to where a text goes; nothing for anything else."""


class Document(msgspec.Struct, frozen=True, dict=True, eq=False):
    """A text that was read: its value, and where in the text each part of it is."""

    data: Any
    source_name: str
    text: str
    index: Index

    def position(self, loc: Loc, part: str = "") -> Position:
        """Line and column, from 1, of what is at `loc` or, where nothing is, of the nearest thing around it.

        Of a member of a mapping that is its key. `part` is a name in the templates of a text at `loc`.
        """
        place, found = self.index.root, (1, 1)
        for step in loc:
            entry = self.index.members(place).get(step)
            if entry is None:
                return found
            found, place = entry
        return (part and self._position_in(place, part)) or found

    def _position_in(self, place: Any, part: str) -> Position | None:
        start, end = self.index.span(place)
        template = _template_begins.search(self.text, start, end)
        name = re.compile(rf"(?<![\w.]){re.escape(part)}(?!\w)")
        found = template and name.search(self.text, template.start(), end)
        if not found:
            return None
        line = bisect_right(self._line_starts, found.start())
        return line, found.start() - self._line_starts[line - 1] + 1

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The same problems with their lines, in the order of the text."""
        return tuple(sorted((self._placed(problem) for problem in problems), key=in_text))

    def _placed(self, problem: Problem) -> Problem:
        if problem.line is not None or problem.code == "too_many_problems":
            return problem
        line, column = self.position(problem.loc, problem.part)
        return replace(problem, line=line, column=column)


def in_text(problem: Problem) -> tuple[float, int]:
    """A key to sort problems by: as they come in the text, those without a line at the end."""
    return (problem.line if problem.line is not None else float("inf")), problem.column or 0


def load(text: str, *, source_name: str = "") -> Document:
    """Read YAML or JSON. InvalidDefinition says with line and column what cannot be read."""
    if len(text) > MAX_CHARS:
        raise _invalid("too_large", f"the text has {len(text):,} characters, and at most {MAX_CHARS:,} are allowed")
    text = text.removeprefix("\ufeff")
    ends = source_name.lower()
    is_json, is_yaml = ends.endswith(".json"), ends.endswith((".yaml", ".yml"))
    begins = text.lstrip()[:1]
    if begins in ("{", "[") or (is_json and begins):
        try:
            return _load_json(text, source_name)
        except json.JSONDecodeError as error:
            looks_json = not is_yaml and re.match(r'\s*[{\[]\s*["{\[]', text)
            if is_json or looks_json or len(text) > MAX_YAML_CHARS:
                raise _invalid("syntax", f"not JSON: {error.msg}", (error.lineno, error.colno)) from None
    if len(text) > MAX_YAML_CHARS:
        message = f"YAML of {len(text):,} characters is too long (at most {MAX_YAML_CHARS:,}): send it as JSON"
        raise _invalid("too_large", message)
    from headrace.model.yaml_reader import read

    data, index = read(text)
    return Document(data, source_name, text, index)


def _invalid(code: str, message: str, position: Position | None = None) -> InvalidDefinition:
    line, column = position or (None, None)
    return InvalidDefinition([Problem(code, message, line=line, column=column)])


# JSON


def _load_json(text: str, source_name: str) -> Document:
    try:
        data = _decode_unique(text)
    except (ValueError, RecursionError):
        data = _decode_carefully(text)
    return Document(data, source_name, text, _JsonIndex(text))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError("a key is there twice")
    return built


_decode = json.JSONDecoder().raw_decode
_decode_unique = json.JSONDecoder(object_pairs_hook=_unique).decode  # what it refuses is read again, to say why


def _decode_carefully(text: str) -> Any:
    repeated: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            seen: set[str] = set()
            repeated.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return built

    try:
        data = json.loads(text, object_pairs_hook=build)
    except RecursionError:
        raise _invalid("too_deep", f"the text is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise _invalid("syntax", f"not JSON: {error}") from None
    if repeated:
        raise InvalidDefinition([_duplicate_in_json(text, key) for key in repeated[:100]])
    return data


def _duplicate_in_json(text: str, key: str) -> Problem:
    """Where a key stands twice; its last place is a good enough pointer, for the key is nearly always rare."""
    at = text.rfind(json.dumps(key, ensure_ascii=False))
    line, column = _line_and_column(text, at) if at >= 0 else (None, None)
    return Problem("duplicate_key", f"the key {shown(key)} is there twice", line=line, column=column)


def _line_and_column(text: str, at: int) -> Position:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


class _JsonIndex:
    """The places of the members of objects and lists in valid JSON text, found for one of them when it is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._skip_value = _decode
        self._known: dict[int, Members] = {}

    @property
    def root(self) -> int:
        return self.skip_space(0)

    def skip_space(self, at: int) -> int:
        while self._text[at] in " \t\n\r":
            at += 1
        return at

    def members(self, at: int) -> Members:
        if at not in self._known:
            self._known[at] = self._scan(at) if self._text[at] in "{[" else {}
        return self._known[at]

    def span(self, at: int) -> tuple[int, int]:
        return (at, self._skip_value(self._text, at)[1]) if self._text[at] == '"' else (0, 0)

    def _scan(self, at: int) -> Members:
        text, is_object = self._text, self._text[at] == "{"
        members: dict[str | int, tuple[Position, int]] = {}
        line, column = _line_and_column(text, at)
        counted, at = at, self.skip_space(at + 1)
        while text[at] not in "}]":
            key: str | int = len(members)
            breaks = text.count("\n", counted, at)
            line, column = line + breaks, at - text.rfind("\n", 0, at) if breaks else column + at - counted
            counted = start = at
            if is_object:
                key, at = self._skip_value(text, at)
                start = self.skip_space(self.skip_space(at) + 1)
            members[key] = ((line, column), start)
            at = self.skip_space(self._skip_value(text, start)[1])
            if text[at] == ",":
                at = self.skip_space(at + 1)
        return members
