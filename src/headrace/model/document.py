"""From the text of a file to plain Python values, with the line of everything in it.

Text is hostile until `load` has read it: its size, its depth, and how far aliases may swell it are bounded, and keys
are unique. JSON goes through the standard library's C parser, and lines are only looked for when an error asks.
YAML is read event by event with ruamel's parser and our own table of YAML 1.2's core types, so that nothing recurses,
no tag makes an object, and `on`, `yes` and `1_000` are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace.errors import InvalidDefinition, Problem
from headrace.model.payload import shown

MAX_CHARS: Final = 32 * 1024 * 1024
MAX_YAML_CHARS: Final = 8 * 1024 * 1024
MAX_EXPANDED_CHARS: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 100

Loc = tuple[str | int, ...]
Position = tuple[int, int]


@dataclass(frozen=True)
class Document:
    """A text that was read: its value, and where in the text each part of it is."""

    data: Any
    source_name: str
    _children: Callable[[Any], dict[str | int, tuple[Position, Any]]] = field(repr=False, compare=False)
    _root: Any = field(repr=False, compare=False)

    def position(self, loc: Loc) -> Position | None:
        """Line and column, from 1, of what is at `loc` or, where nothing is, of the nearest thing around it."""
        place, found = self._root, None
        for step in loc:
            entry = self._children(place).get(step)
            if entry is None:
                break
            found, place = entry
        return found or (1, 1)

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The same problems, with their lines."""
        placed = []
        for problem in problems:
            line, column = self.position(problem.loc) or (None, None)
            placed.append(problem if problem.line is not None else replace(problem, line=line, column=column))
        return tuple(placed)


def load(text: str, *, source_name: str = "") -> Document:
    """Read YAML or JSON. InvalidDefinition says with line and column what cannot be read."""
    if len(text) > MAX_CHARS:
        raise _invalid("too_large", f"the text has {len(text):,} characters, and at most {MAX_CHARS:,} are allowed")
    text = text.removeprefix("\ufeff")
    is_json, is_yaml = (source_name.lower().endswith(ends) for ends in (".json", (".yaml", ".yml")))
    if is_json or text.lstrip()[:1] in ("{", "["):
        try:
            return _load_json(text, source_name)
        except json.JSONDecodeError as error:
            looks_json = not is_yaml and re.match(r'\s*[{\[]\s*["{\[]', text)
            if is_json or looks_json or len(text) > MAX_YAML_CHARS:
                raise _invalid("syntax", f"not JSON: {error.msg}", (error.lineno, error.colno)) from None
    return _load_yaml(text, source_name)


def _invalid(code: str, message: str, position: Position | None = None) -> InvalidDefinition:
    line, column = position or (None, None)
    return InvalidDefinition([Problem(code, message, line=line, column=column)])


# JSON


def _load_json(text: str, source_name: str) -> Document:
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
    index = _JsonIndex(text)
    return Document(data, source_name, index.children, index.skip_space(0))


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
        self._skip_value = json.JSONDecoder().raw_decode
        self._known: dict[int, dict[str | int, tuple[Position, int]]] = {}

    def skip_space(self, at: int) -> int:
        while self._text[at] in " \t\n\r":
            at += 1
        return at

    def children(self, at: int) -> dict[str | int, tuple[Position, int]]:
        if at not in self._known:
            self._known[at] = self._scan(at) if self._text[at] in "{[" else {}
        return self._known[at]

    def _scan(self, at: int) -> dict[str | int, tuple[Position, int]]:
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


# YAML


def _load_yaml(text: str, source_name: str) -> Document:
    if len(text) > MAX_YAML_CHARS:
        message = f"YAML of {len(text):,} characters is too long (at most {MAX_YAML_CHARS:,}): send it as JSON"
        raise _invalid("too_large", message)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    builder = _YamlBuilder(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        hint = builder.hint_at(mark.line) if mark else ""
        where = (mark.line + 1, mark.column + 1) if mark else None
        builder.problems.append(_invalid("syntax", f"not YAML: {what}{hint}", where).problems[0])
    except (YAMLError, ValueError) as error:  # characters that YAML does not allow
        builder.problems.append(Problem("syntax", f"not YAML: {' '.join(str(error).split())}"))
    if builder.problems:
        raise InvalidDefinition(builder.problems)
    return Document(builder.root, source_name, lambda place: place or {}, builder.root_places)


@dataclass
class _Open:
    """A collection that is being read."""

    value: dict[Any, Any] | list[Any]
    places: dict[str | int, tuple[Position, Any]]
    anchor: str | None
    position: Position
    chars: int = 1
    key: Any = None
    key_position: Position | None = None


class _YamlBuilder:
    """Builds the value from YAML's events. `chars` counts what the text would be with its aliases written out."""

    def __init__(self, text: str) -> None:
        self.root: Any = None
        self.root_places: Any = None
        self.problems: list[Problem] = []
        self._lines = text.split("\n")
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, Any, int]] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        position = (event.start_mark.line + 1, event.start_mark.column + 1)
        if kind == "ScalarEvent":
            value = self._scalar(event, position)
            self._done(value, None, len(event.value) + 1, position, event.anchor)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._open(event, position, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            top = self._stack.pop()
            self._done(top.value, top.places, top.chars, top.position, top.anchor)
        elif kind == "AliasEvent":
            if event.anchor not in self._anchors:
                self._fail("unknown_alias", f"there is no finished anchor &{shown(event.anchor)} before this", position)
            self._done(*self._anchors[event.anchor], position, None)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                self._fail("several_documents", "the text has more than one YAML document", position)

    def hint_at(self, line: int) -> str:
        around = "\n".join(self._lines[max(0, line - 1) : line + 1])
        return ": a value that begins with {{ or {% needs quotes around it" if re.search(r"\{[{%]", around) else ""

    def _fail(self, code: str, message: str, position: Position) -> None:
        """Stop here; what was found so far is reported with it."""
        problem = Problem(code, message, line=position[0], column=position[1])
        raise InvalidDefinition([*self.problems, problem])

    def _note(self, code: str, message: str, position: Position) -> None:
        self.problems.append(Problem(code, message, line=position[0], column=position[1]))
        if len(self.problems) >= 100:
            raise InvalidDefinition(self.problems)

    def _open(self, event: Any, position: Position, value: dict[Any, Any] | list[Any]) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._fail("too_deep", f"the text is nested deeper than {MAX_DEPTH} levels", position)
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key_position is None:
            line, column = position
            is_template = self._lines[line - 1][column - 2 : column] == "{{"
            message = 'a template needs quotes around it: "{{ … }}"' if is_template else "a key must be text"
            self._fail("unquoted_template" if is_template else "bad_key", message, position)
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._note("bad_tag", f"the tag {shown(event.tag)} is not supported", position)
        self._stack.append(_Open(value, {}, event.anchor, position))

    def _done(self, value: Any, places: Any, chars: int, position: Position, anchor: str | None) -> None:
        """A value is complete: give it to the collection around it."""
        if anchor is not None:
            self._anchors[anchor] = (value, places, chars)
        if not self._stack:
            self.root, self.root_places = value, places
            return
        top = self._stack[-1]
        top.chars += chars
        if top.chars > MAX_EXPANDED_CHARS:
            message = f"with its aliases written out the text has more than {MAX_EXPANDED_CHARS:,} characters"
            self._fail("too_large", message, position)
        if isinstance(top.value, list):
            top.places[len(top.value)] = (position, places)
            top.value.append(value)
        elif top.key_position is None:
            self._take_key(top, value, position)
        else:
            top.places[top.key] = (top.key_position, places)
            top.value[top.key] = value
            top.key_position = None

    def _take_key(self, top: _Open, key: Any, position: Position) -> None:
        if isinstance(key, dict | list):
            self._fail("bad_key", "a key must be text", position)
        if key == "<<":
            self._note("bad_key", "merge keys (<<) are not part of YAML 1.2: write the fields out", position)
        elif not isinstance(key, str):
            self._note("bad_key", f"the key {key} must be text: put quotes around it", position)
        elif key in top.value:
            self._note("duplicate_key", f"the key {shown(key)} is there twice", position)
        top.key, top.key_position = key, position

    def _scalar(self, event: Any, position: Position) -> Any:
        if event.tag in ("!", "tag:yaml.org,2002:str") or (event.tag is None and not event.implicit[0]):
            return event.value
        if event.tag is not None:
            self._note("bad_tag", f"the tag {shown(event.tag)} is not supported", position)
            return event.value
        try:
            return _core_type(event.value)
        except ValueError as error:
            self._note("not_json", f"{shown(event.value, 40)} {error}", position)
        return event.value


_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_integer = re.compile(r"[-+]?[0-9]+")
_based = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_float = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_special = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_date = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")


def _core_type(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema, without regard to YAML 1.1's dates: these must be quoted."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _integer.fullmatch(text) or _based.fullmatch(text):
        if len(text) > 1_000:
            raise ValueError("is a number of too many digits: put quotes around it")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _float.fullmatch(text):
        return float(text)
    if _special.fullmatch(text):
        return float(text.lower().replace(".", ""))
    if _date.fullmatch(text):
        raise ValueError("looks like a date, which JSON does not have: put quotes around it")
    return text
