"""Reading definition files and telling their problems, for every command that takes one.

`validate` and `run` say the same about the same file: one line per problem, `file:line:column: node x: message`, in the
form that terminals and editors make clickable. On a terminal the line of the file follows, with a caret below it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.startup import Usage
from headrace.errors import InvalidDefinition, Problem
from headrace.model.configs import HandlerSpec
from headrace.model.definition import Definition
from headrace.model.document import Document, load
from headrace.model.payload import shown
from headrace.model.validation import validate
from headrace.settings import Settings
from headrace.worker.registry import Registry

STDIN = Path("-")
_EXCERPT_CHARS = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """One file, and what is in it: a definition, or else problems in the order of the text."""

    name: str
    text: str
    definition: Definition | None
    problems: tuple[Problem, ...]


def read_document(file: Path) -> Document:
    """What a YAML or JSON file holds, or Usage."""
    text, problems = _read(file)
    try:
        if not problems:
            return load(text, source_name=name_of(file))
    except InvalidDefinition as error:
        problems = error.problems
    raise Usage(*told(Checked(name_of(file), text, None, problems), with_excerpts=sys.stderr.isatty()))


def read_definition(file: Path, registry: Registry, settings: Settings) -> Definition:
    """The definition in a file, or Usage with everything that is wrong with it."""
    checked = check_file(file, specs(registry), settings.max_nodes)
    if checked.definition is None:
        raise Usage(*told(checked, with_excerpts=sys.stderr.isatty()))
    return checked.definition


def specs(registry: Registry) -> dict[str, HandlerSpec]:
    return {handler.name: HandlerSpec(handler.name, handler.config_schema) for handler in registry}


def check_file(file: Path, handlers: Mapping[str, HandlerSpec], max_nodes: int) -> Checked:
    name = name_of(file)
    text, problems = _read(file)
    if problems:
        return Checked(name, text, None, problems)
    try:
        document = load(text, source_name=name)
    except InvalidDefinition as error:
        return Checked(name, text, None, error.problems)
    try:
        return Checked(name, text, validate(document.data, handlers=handlers, max_nodes=max_nodes), ())
    except InvalidDefinition as error:
        return Checked(name, text, None, document.located(error.problems))


def name_of(file: Path) -> str:
    return "<stdin>" if file == STDIN else str(file)


def _read(file: Path) -> tuple[str, tuple[Problem, ...]]:
    """The text of the file, or the problem that it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
        return data.decode().removeprefix("\ufeff"), ()
    except OSError as error:
        reason = error.strerror or str(error)
        return "", (Problem("unreadable", f"cannot be read: {reason[:1].lower()}{reason[1:]}"),)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text (byte 0x{data[error.start]:02x}): save it with the encoding UTF-8"
        return "", (Problem("not_utf8", message, line=line, column=error.start - data.rfind(b"\n", 0, error.start)),)


def told(checked: Checked, *, with_excerpts: bool) -> Iterator[str]:
    """The problems of a file as lines: where it is, which node, what is wrong."""
    lines = checked.text.split("\n") if with_excerpts else []
    for problem in checked.problems:
        where = ":".join(str(part) for part in (checked.name, problem.line, problem.column) if part is not None)
        node = f"node {shown(problem.node)}: " if problem.node else ""
        yield f"{where}: {node}{problem.message}"
        yield from _excerpt(lines, problem)
    if any(problem.code == "unknown_handler" for problem in checked.problems):
        yield "Handlers of your own are loaded with --handlers MODULE."


def _excerpt(lines: Sequence[str], problem: Problem) -> Iterator[str]:
    """The line of the problem and a caret below its column; of a long line, the part around it."""
    if problem.line is None or problem.column is None or problem.line > len(lines):
        return
    start = max(0, problem.column - _EXCERPT_CHARS // 2) if problem.column > _EXCERPT_CHARS else 0
    text = shown(lines[problem.line - 1][start:].rstrip("\r").replace("\t", " "), _EXCERPT_CHARS)
    yield f"{problem.line:>6} | {text}"
    yield f"{'':>6} | {'^':>{problem.column - start}}"
