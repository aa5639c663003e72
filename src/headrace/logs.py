"""Structured logs to stderr: readable on a terminal, one JSON object per line elsewhere.

What libraries say through the standard `logging` comes out the same way. Every line is redacted after it is rendered,
so that no secret gets by inside an exception or an object that writes itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.redaction import Redactor

if TYPE_CHECKING:  # structlog brings rich along: a tenth of a second, which commands that log nothing do without
    from structlog.typing import EventDict, Processor

BOUND = ("execution_id", "node_id", "run", "attempt", "idempotency_key")  # they are known from where it is kept
MOST_LINES = 200
MOST_BYTES = 16_384
MOST_LINE_BYTES = 4_096
_kept: ContextVar[list[str] | None] = ContextVar("headrace_kept_lines", default=None)


def keep() -> list[str]:
    """Where what handlers log in this asyncio task is collected from now on, redacted, as JSON objects; not without
    end."""
    lines: list[str] = []
    _kept.set(lines)
    return lines


class _Lines:
    """How lines are made: from the level on, without these values."""

    level = "info"
    redactor = Redactor()


def level() -> str:
    return _Lines.level


def hide(values: Iterable[str]) -> None:
    """From now on, put a mark in the place of these values in all logs of this process."""
    _Lines.redactor = Redactor(values)


def configure(level: str = "info") -> None:
    import structlog

    _Lines.level = level
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _keep,
        _drop_below(logging.getLevelNamesMapping()[level.upper()]),
    ]
    last: list[Processor] = [structlog.processors.format_exc_info, *_rendering(terminal=sys.stderr.isatty())]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(
            min(logging.INFO, logging.getLevelNamesMapping()[level.upper()])  # what is kept is kept from info on
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    others = logging.StreamHandler(sys.stderr)
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    others.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=first, processors=[drop_meta, *last]))
    logging.basicConfig(handlers=[others], level=logging.WARNING)


def _keep(_: object, __: str, event: EventDict) -> EventDict:
    """A line of a handler's own logger stays with its attempt."""
    lines = _kept.get()
    if lines is not None and "idempotency_key" in event:
        size = sum(map(len, lines))
        if len(lines) < MOST_LINES and size < MOST_BYTES:
            lines.append(_Lines.redactor.json(_as_json(event)))
    return event


def _drop_below(least: int) -> Processor:
    from structlog import DropEvent

    numbers = logging.getLevelNamesMapping()

    def drop(_: object, __: str, event: EventDict) -> EventDict:
        if numbers.get(str(event.get("level", "")).upper(), logging.INFO) < least:
            raise DropEvent
        return event

    return drop


def _as_json(event: EventDict) -> str:
    told = {key: value for key, value in event.items() if key not in BOUND}
    try:
        text = msgspec.json.encode(told, enc_hook=repr).decode()
    except Exception as error:  # whatever a handler logs, logging it must not fail
        text = ""
        told = {"event": f"a line that cannot be kept: {type(error).__name__}"}
    if not text or len(text) > MOST_LINE_BYTES:
        short = {"timestamp": event.get("timestamp"), "level": event.get("level"), "event": ascii(told["event"])[:1000]}
        text = msgspec.json.encode(short, enc_hook=repr).decode()
    return text


def _rendering(*, terminal: bool) -> tuple[Processor, Processor]:
    """An event becomes a line, and the line is redacted."""
    from structlog.dev import ConsoleRenderer
    from structlog.processors import JSONRenderer

    return (ConsoleRenderer(), _redacted_text) if terminal else (JSONRenderer(), _redacted_json)


def _redacted_text(_: object, __: str, line: Any) -> str:
    return _Lines.redactor.text(line)


def _redacted_json(_: object, __: str, line: Any) -> str:
    return _Lines.redactor.json(line)
