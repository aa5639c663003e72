"""From plain values to YAML that people like to read: the counterpart of `document`, for definitions made in Python.

What is written reads back as the same value, here and by readers of YAML 1.1: any text that could be taken for
something else stands in quotes, and what YAML does not allow in a text is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

SHORT_LIST_CHARS: Final = 100

_plain: Final = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_ ./()-]*[A-Za-z0-9_./()-])?")
_words: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_lines_of_text: Final = re.compile(r"[^\s].*\n(?:.*\n)*.*\S\n?")


def write(value: dict[str, Any]) -> str:
    """A mapping of JSON values, not empty, as a YAML document."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: dict[str, Any] | list[Any], margin: str = "") -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        head = f"{margin}-" if key is None else f"{margin}{_scalar(key)}:"
        if isinstance(item, str) and _is_block(item):
            yield f"{head} |" if item.endswith("\n") else f"{head} |-"
            yield from (f"{margin}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        elif (text := _inline(item)) is not None:
            yield f"{head} {text}"
        else:
            inner = _lines(item, margin + "  ")
            yield f"{head} {next(inner).lstrip()}" if key is None else head
            yield from inner


def _is_block(text: str) -> bool:
    return bool(_lines_of_text.fullmatch(text)) and text.replace("\n", "").isprintable()


def _inline(value: Any) -> str | None:
    """A value that stands on one line; None when it needs several."""
    if not isinstance(value, dict | list):
        return _scalar(value)
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict) or any(isinstance(item, dict | list) for item in value):
        return None
    text = f"[{', '.join(map(_scalar, value))}]"
    return text if len(text) <= SHORT_LIST_CHARS else None


def _scalar(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _plain.fullmatch(value) and value.lower() not in _words:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
