"""What to say about text that is not YAML.

A parser speaks of tokens and simple keys. These words speak of what people type: a template without quotes, a colon in
a text, a tab, a quote that is never closed. They are guesses from the line at hand; where none fits, the parser speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.errors import Problem
from headrace.model.payload import shown

_LOOK_AT_CHARS: Final = 1_000  # of a line that may be millions long

_template: Final = re.compile(r"\$?\{\{.*?(?:\}\}|$)|\{%.*?(?:%\}|$)")
_before_value: Final = re.compile(r"(?:^|[:\[{,-])\s*$")
_key: Final = re.compile(r"\s*(?:- +)*[\w.-]+")
_key_without_blank: Final = re.compile(r"\s*(?:- +)*([\w.-]+):(\S.*)")


def explained(error: Any, lines: Sequence[str], is_within_flow: Callable[[tuple[int, int]], bool]) -> Problem:
    """The problem behind ruamel's MarkedYAMLError."""
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark is not None]
    if not marks:
        return Problem("syntax", f"not YAML: {error.problem or error}")
    for mark in marks if re.search("flow|quoted", error.context or "") else marks[:1]:
        for found in _bare_templates(_line(lines, mark.line)):
            position = (mark.line + 1, found.start() + 1)
            is_flow = is_within_flow(position)
            if is_flow or _before_value.search(found.string, 0, found.start()):
                message = unquoted_template(found.string, found.start(), is_flow=is_flow)
                return Problem("unquoted_template", message, line=position[0], column=position[1])
    message, mark = _words(error, lines)
    return Problem("syntax", message, line=mark.line + 1, column=mark.column + 1)


def unquoted_template(line: str, start: int, *, is_flow: bool) -> str:
    """What to write instead of the template that starts there, without quotes."""
    line = line[: start + _LOOK_AT_CHARS]
    found = _template.match(line, start)
    template = found[0] if found else ""
    if not _before_value.search(line, 0, start):
        return f"a text with a template needs quotes here, around all of it: {shown(template)}"
    value = template if is_flow else re.split(r"\s#", line[start:])[0].strip()
    quote = "'" if '"' in value else '"'
    if quote in value:
        return "a template needs quotes around it"
    dollar = "" if is_flow or not value.startswith("{{") or ": " in value else f", or ${shown(value)}"
    return f"a template needs quotes around it: write {quote}{shown(value)}{quote}{dollar}"


def _bare_templates(line: str) -> list[re.Match[str]]:
    """The templates in a line that are not between quotes."""
    return [
        found
        for found in _template.finditer(line, 0, _LOOK_AT_CHARS)
        if not any(line.count(quote, 0, found.start()) % 2 for quote in "\"'")
    ]


def _words(error: Any, lines: Sequence[str]) -> tuple[str, Any]:
    """A message, and the mark that it is about."""
    context, problem = error.context or "", error.problem or ""
    mark, start = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    line = _line(lines, mark.line)
    if "'\\t' that cannot start" in problem:
        return "there is a tab: indent with spaces, YAML allows no tabs there", mark
    if "that cannot start any token" in problem or "expected the node content, but found" in problem:
        return _bad_beginning(line[mark.column : mark.column + 1]), mark
    if re.search("scanning an alias|scanning an anchor|scanning a block scalar", context):
        return _bad_beginning(_line(lines, start.line)[start.column : start.column + 1]), start
    if "unknown escape character" in problem:
        return "a \\ between double quotes is written \\\\: or put the text between single quotes", mark
    if "quoted scalar" in context and "end of stream" in problem:
        return "the quote that opens here is not closed", start
    if closing := re.search(r"expected ',' or '([\]}])'", problem):
        if mark.line == start.line:
            return f"a comma or the closing {closing[1]} is missing here", mark
        return f"this needs its closing {closing[1]} before line {mark.line + 1}", start
    if "mapping values are not allowed" in problem:
        return _unexpected_colon(lines, mark), mark
    if "could not find expected ':'" in problem:
        return f"a colon is missing after {shown(_line(lines, start.line).strip(), 40)}", start
    if "sequence entries are not allowed" in problem:
        return "a list begins on the line below its key: put the - there, or write [a, b]", mark
    if "expected <block end>" in problem:
        return _unexpected_in_block(line, mark), mark
    return "not YAML: " + shown(", ".join(part for part in (context, problem) if part), 300), mark


def _bad_beginning(char: str) -> str:
    return (
        f"a text cannot begin with {shown(char)} here: put quotes around it" if char.strip() else "a value is missing"
    )


def _unexpected_colon(lines: Sequence[str], mark: Any) -> str:
    """A colon in a text, or the key of a line that the value of the one before it swallowed."""
    if not _key.fullmatch(_line(lines, mark.line)[: mark.column]):
        return "a text with a colon in it needs quotes around it"
    above = next((lines[at] for at in range(mark.line - 1, -1, -1) if _line(lines, at).strip()), "")
    if found := _key_without_blank.match(above):
        return f"the line above needs a space after its colon: {shown(found[1], 40)}: {shown(found[2].strip(), 40)}"
    return "this line is indented too far, or the line above lacks a colon"


def _unexpected_in_block(line: str, mark: Any) -> str:
    if line[: mark.column].rstrip().endswith(("'", '"')):
        return "nothing may follow a closing quote: put quotes around all of the text (and write '' for ' between ')"
    return "this line does not fit with those above it: check its indentation"


def _line(lines: Sequence[str], at: int) -> str:
    return lines[at].rstrip("\r") if at < len(lines) else ""
