"""Markdown that reads well as source too: tables with aligned columns, code marked as code."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

# In a description: templates, options, names of settings, addresses and patterns.
_code = re.compile(r"\{\{.*?\}\}|--[a-z-]+|\b[A-Z]+_[A-Z_<>*]+|[^\s,(]*(?:://|\*)[^\s,)]*[^\s,.;)]")


def code(text: str) -> str:
    return f"`{text}`"


def prose(text: str) -> str:
    """A description from the code, with what is code in it marked."""
    return _code.sub(lambda found: code(found[0]), " ".join(text.split()))


def literal(value: Any) -> str:
    """A value as one would write it."""
    return code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def listed(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """All columns but the last one are padded, so that the source is a table, too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head) - 1)]
    lines = [_line(row, widths) for row in cells]
    rule = _line(["-" * width for width in (*widths, len(head[-1]))], widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return f"| {' | '.join([*padded, row[-1]])} |"


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def fence(text: str, language: str = "") -> str:
    return f"```{language}\n{text}\n```"
