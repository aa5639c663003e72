"""YAML to plain Python values, event by event, with the position of everything.

ruamel's parser gives the events; our own table of YAML 1.2's core types gives the values, so that nothing recurses, no
tag makes an object, and `on`, `yes` and `1_000` are text. Where the parser can go on after a mistake we go on, too:
all of them come in one answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from headrace.errors import InvalidDefinition, Problem
from headrace.model.document import MAX_DEPTH, Index, Members, Position, in_text
from headrace.model.payload import shown
from headrace.model.yaml_mistakes import explained, unquoted_template

MAX_EXPANDED_CHARS: Final = 32 * 1024 * 1024
MAX_PROBLEMS: Final = 100


def read(text: str) -> tuple[Any, Index]:
    """The value of the text and where its parts are, or InvalidDefinition."""
    builder = _Builder(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        builder.add_last(explained(error, builder.lines, builder.is_within_flow))
    except ReaderError as error:
        line, column = text.count("\n", 0, error.position) + 1, error.position - text.rfind("\n", 0, error.position)
        message = f"the character {error.character:#x} is not allowed in YAML: remove it, or write JSON"
        builder.add_last(Problem("syntax", message, line=line, column=column))
    except (YAMLError, ValueError) as error:
        builder.add_last(Problem("syntax", f"not YAML: {' '.join(str(error).split())}"))
    except _TooMuch:
        pass
    if builder.problems:
        raise InvalidDefinition(sorted(builder.problems, key=in_text))
    return builder.root, _YamlIndex(builder.root_place)


class _TooMuch(Exception):
    """No use in reading on; the problems say why."""


@dataclass(frozen=True, slots=True)
class _YamlIndex:
    """The place of a collection is a table of its members, the place of a scalar its span."""

    root: Any

    def members(self, place: Any) -> Members:
        return place if isinstance(place, dict) else {}

    def span(self, place: Any) -> tuple[int, int]:
        return place if isinstance(place, tuple) else (0, 0)


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    value: dict[Any, Any] | list[Any]
    places: dict[str | int, tuple[Position, Any]]
    anchor: str | None
    position: Position
    is_flow: bool
    chars: int = 1
    key: Any = None
    key_position: Position | None = None


class _Builder:
    """Builds the value from YAML's events. `chars` counts what the text would be with its aliases written out."""

    def __init__(self, text: str) -> None:
        self.root: Any = None
        self.root_place: Any = None
        self.problems: list[Problem] = []
        self.lines = text.split("\n")
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, Any, int]] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        position = (event.start_mark.line + 1, event.start_mark.column + 1)
        if kind == "ScalarEvent":
            span = (event.start_mark.index, event.end_mark.index) if "{" in event.value else None
            self._done(self._scalar(event, position), span, len(event.value) + 1, position, event.anchor)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._open(event, position, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            top = self._stack.pop()
            self._done(top.value, top.places, top.chars, top.position, top.anchor)
        elif kind == "AliasEvent":
            if event.anchor not in self._anchors:
                name = shown(event.anchor)
                message = f"there is no finished anchor &{name} before this: put quotes around *{name} if it is text"
                self._fail("unknown_alias", message, position)
            self._done(*self._anchors[event.anchor], position, None)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                self._fail("several_documents", "the text has more than one YAML document", position)

    def is_within_flow(self, position: Position) -> bool:
        """Whether this position is between the { } or [ ] of a collection that is open."""
        return any(each.is_flow and each.position < position for each in self._stack)

    def add_last(self, problem: Problem) -> None:
        """What stopped the parser, unless a mistake that is known already did."""
        if problem.line is None or all(known.line != problem.line for known in self.problems):
            self.problems.append(problem)

    def _note(self, code: str, message: str, position: Position) -> None:
        self.problems.append(Problem(code, message, line=position[0], column=position[1]))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _TooMuch

    def _fail(self, code: str, message: str, position: Position) -> NoReturn:
        self._note(code, message, position)
        raise _TooMuch

    def _open(self, event: Any, position: Position, value: dict[Any, Any] | list[Any]) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._fail("too_deep", f"the text is nested deeper than {MAX_DEPTH} levels", position)
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._note("bad_tag", f"the tag {shown(event.tag)} is not supported", position)
        self._stack.append(_Open(value, {}, event.anchor, position, bool(event.flow_style)))

    def _done(self, value: Any, place: Any, chars: int, position: Position, anchor: str | None) -> None:
        """A value is complete: give it to the collection around it."""
        if anchor is not None:
            self._anchors[anchor] = (value, place, chars)
        if not self._stack:
            self.root, self.root_place = value, place
            return
        top = self._stack[-1]
        top.chars += chars
        if top.chars > MAX_EXPANDED_CHARS:
            message = f"with its aliases written out the text has more than {MAX_EXPANDED_CHARS:,} characters"
            self._fail("too_large", message, position)
        if isinstance(top.value, list):
            top.places[len(top.value)] = (position, place)
            top.value.append(value)
        elif top.key_position is None:
            self._take_key(top, value, position)
        else:
            top.places[top.key] = (top.key_position, place)
            top.value[top.key] = value
            top.key_position = None

    def _take_key(self, top: _Open, key: Any, position: Position) -> None:
        if isinstance(key, dict | list):
            self._note_collection_as_key(top, position)
            key = ""
        elif key == "<<":
            self._note("bad_key", "merge keys (<<) are not part of YAML 1.2: write the fields out", position)
        elif not isinstance(key, str):
            self._note("bad_key", f"the key {key} must be text: put quotes around it", position)
        elif key in top.value:
            self._note("duplicate_key", f"the key {shown(key)} is there twice", position)
        top.key, top.key_position = key, position

    def _note_collection_as_key(self, top: _Open, position: Position) -> None:
        """To YAML, `{{ x }}` is a mapping with a mapping as its key."""
        line, column = position
        if self.lines[line - 1][column - 2 : column] != "{{":
            self._note("bad_key", "a key must be text", position)
            return
        start = (line, column - 1)
        message = unquoted_template(self.lines[line - 1], column - 2, is_flow=self.is_within_flow(start))
        self._note("unquoted_template", message, start)

    def _scalar(self, event: Any, position: Position) -> Any:
        if event.tag in ("!", "tag:yaml.org,2002:str") or (event.tag is None and not event.implicit[0]):
            return event.value
        if event.tag is not None:
            tag = shown(event.tag)
            self._note("bad_tag", f"the tag {tag} is not supported: put quotes around it if it is text", position)
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
