"""How the command line says things: text that is safe to show, durations, counts, failures and what to do about them.

Whatever comes from handlers, remote servers or definitions passes `printable` before it reaches a terminal or a log.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the types alone would cost every command, also its help, some milliseconds
    from headrace.model.messages import Failure

_unusual = re.compile(r"[^\n\x20-\x7e]")


def printable(text: str) -> str:
    """Line breaks stay; escape sequences, other control characters and marks that turn text around are spelled out."""
    return _unusual.sub(_spelled, text.replace("\r\n", "\n").expandtabs(4))


def _spelled(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    return " " if unicodedata.category(char) == "Zs" else ascii(char)[1:-1]


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def duration(seconds: float, decimals: int = 1) -> str:
    if seconds < 60:
        return f"{seconds:.{decimals}f} s"
    minutes, whole_seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {whole_seconds:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def failure_text(failure: Failure) -> str:
    """`ConnectionError: refused`, on as many lines as the message has."""
    return printable(f"{failure.type or failure.code}: {failure.message}".strip())


def advice(failure: Failure, node: str, handler: str) -> str:
    """What to do about a node that failed for good; without a node, about an execution that took too long."""
    if not node:
        return "Give the workflow more timeout_seconds, or its slow nodes less to do"
    match failure.code:
        case "template":
            return f"Change the templates in the config of node {node}"
        case "bad_config":
            return f"Change the config of node {node} to what handler {handler} takes"
        case "bad_output":
            return f"Change what handler {handler} returns: JSON, and not too large"
        case "secret_missing":
            return f"Set the secret where the worker runs: {failure.message}"
        case "timeout":
            return f"Give node {node} more timeout_seconds, or handler {handler} less to do"
        case "crashed" | "worker_lost":
            return f"Find out what ends the process of handler {handler} (memory? a native library? an exit?)"
        case _ if failure.retryable:
            return f"If waiting longer helps, raise retry_config.max_retries of node {node}"
        case _:
            return f"Change node {node} (handler {handler}) or what it is given"
