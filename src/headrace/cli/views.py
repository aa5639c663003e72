"""The view of a run that fits where it is shown: drawn on a terminal that allows it, else plain lines."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headrace.cli.lines import Lines
from headrace.cli.progress import Progress
from headrace.model.definition import Definition
from headrace.model.messages import Event


class View(AbstractAsyncContextManager["View"], Protocol):
    """Shows a run while it is open, and how it ended when it closes."""

    def show(self, event: Event) -> None: ...

    def interrupted(self) -> None: ...


def fitting(definition: Definition, *, quiet: bool) -> View:
    progress = Progress(definition)
    if not quiet and sys.stderr.isatty():
        from headrace.cli.live import LiveView, terminal

        if console := terminal():
            return LiveView(progress, console)
    return Lines(progress, quiet=quiet)
