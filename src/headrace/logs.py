"""Structured logs to stderr: readable on a terminal, one JSON object per line elsewhere.

What libraries say through the standard `logging` comes out the same way. Every line is redacted after it is rendered,
so that no secret gets by inside an exception or an object that writes itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

import structlog
from structlog.typing import Processor

from headrace.redaction import Redactor


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
    _Lines.level = level
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = [structlog.processors.format_exc_info, *_rendering(terminal=sys.stderr.isatty())]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    others = logging.StreamHandler(sys.stderr)
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    others.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=first, processors=[drop_meta, *last]))
    logging.basicConfig(handlers=[others], level=logging.WARNING)


def _rendering(*, terminal: bool) -> tuple[Processor, Processor]:
    """An event becomes a line, and the line is redacted."""
    if terminal:
        return structlog.dev.ConsoleRenderer(), _redacted_text
    return structlog.processors.JSONRenderer(), _redacted_json


def _redacted_text(_: object, __: str, line: Any) -> str:
    return _Lines.redactor.text(line)


def _redacted_json(_: object, __: str, line: Any) -> str:
    return _Lines.redactor.json(line)
