"""What the commands print: tables that never cut an id, JSON that a terminal does not obey, complaints on stderr."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from headrace.cli.words import one_line

GAP = 2
LEAST_CHARS_OF_TEXT = 20

# What JSON may contain as it is, and a terminal may obey: DEL and the C1 controls, marks that turn text around.
_obeyed = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def print_json(document: Any, file: TextIO | None = None) -> None:
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    put(_obeyed.sub(lambda match: f"\\u{ord(match[0]):04x}", text), file=file)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, cuts_last: bool = False) -> None:
    put(*table(headings, rows, shutil.get_terminal_size().columns, cuts_last=cuts_last))


def put(*lines: str, file: TextIO | None = None) -> None:
    out = file or sys.stdout
    try:
        print(*lines, sep="\n", file=out, flush=True)
    except BrokenPipeError:  # whoever reads it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def complain(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, cuts_last: bool = False) -> list[str]:
    """Columns that do not fit beside the ones before them go on below, indented, and the words of the last column on
    further lines: nothing is ever cut, except with `cuts_last` the last column, if its beginning will do."""
    cells = [[one_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(headings))]
    longest_word = 0 if cuts_last else max((_width(word) for row in cells for word in row[-1].split()), default=0)
    widths[-1] = max(longest_word, min(widths[-1], LEAST_CHARS_OF_TEXT))
    lines = [*_lines(widths, width)]
    room = max(1, width - lines[-1][-1][1])
    told: list[str] = []
    for row in cells:
        row[-1], *more = _fitted(row[-1], room, cuts=cuts_last)
        told += (_joined([(row[column], start) for column, start in line]) for line in lines)
        told += (_joined([(each, lines[-1][-1][1])]) for each in more)
    return [line for line in told if line]


def _fitted(text: str, room: int, *, cuts: bool) -> list[str]:
    """The text as lines that fit, as far as its words do; or as much of it as fits on one."""
    from rich.cells import set_cell_size

    if cuts:
        return [text if _width(text) <= room else set_cell_size(text, room - 1) + "…"]
    lines = [""]
    for word in text.split():
        if lines[-1] and _width(lines[-1]) + 1 + _width(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _joined(placed: Sequence[tuple[str, int]]) -> str:
    line = ""
    for text, start in placed:
        line += " " * (start - _width(line)) + text
    return line.rstrip()


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _lines(widths: Sequence[int], width: int) -> Iterator[list[tuple[int, int]]]:
    """The columns of each line of a row, with where they begin."""
    line: list[tuple[int, int]] = []
    at = 0
    for column, needed in enumerate(widths):
        if line and at + needed > width:
            yield line
            line, at = [], GAP
        line.append((column, at))
        at += needed + GAP
    yield line


def seconds_since(text: str | None) -> float | None:
    """Of a time as the API writes it."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(text or "")).total_seconds()
    except (ValueError, TypeError):
        return None


def age(seconds: float | None) -> str:
    """`7 s`, `3 min`, `5 h`, `12 d`"""
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
