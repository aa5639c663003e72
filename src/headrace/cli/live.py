"""Progress as a live view on the terminal behind stderr, drawn with Rich; frame.py says what is on it.

The event loop composes a frame at most ten times a second; a thread writes it, so that a slow or stopped terminal does
not hold up the engine. What handlers print and log meanwhile appears above the view, with colours but without any other
escape sequence; where stdout is not this terminal, it is left alone. The last frame stays.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.cli.capture import Capture
from headrace.cli.frame import Frames
from headrace.cli.progress import Progress
from headrace.cli.words import printable
from headrace.model.messages import Event

SECONDS_BETWEEN_FRAMES = 0.1
SHARE_OF_TIME = 20  # drawing takes about one part in so many, at most
MOST_SECONDS_BETWEEN = 1.0  # also when the terminal was stopped for a while

_colour = re.compile(r"(\x1b\[[0-9;]{0,40}m)")


def terminal() -> Console | None:
    """The terminal behind stderr, if a view can be drawn on it."""
    file = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace")  # 2 itself will be captured
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if console.is_interactive:
        return console
    file.close()
    return None


class LiveView:
    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._frames = Frames(progress, console)
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, vertical_overflow="crop"
        )
        self._writing = threading.Lock()  # one writer at a time: Rich counts lines from where the last one ended
        self._writer = ThreadPoolExecutor(1, "headrace-screen")
        self._capture = Capture([2, 1] if _same_terminal(1, 2) else [2], self._write_above)
        self._cancelling = False
        self._stop = asyncio.Event()

    async def __aenter__(self) -> LiveView:
        self._resize()
        self._live.start()
        self._capture.__enter__()
        self._drawing = asyncio.create_task(self._draw())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        try:
            await self._drawing
        finally:
            self._capture.__exit__(kind, error, trace)
            width, height = self._resize()
            if self._progress.is_over:
                self._live.update(self._frames.last(width, height))
            self._live.stop()
            self._writer.shutdown()
            self._console.file.close()

    def show(self, event: Event) -> None:
        self._progress.apply(event)

    def interrupted(self) -> None:
        self._cancelling = True
        self._console.show_cursor()  # a second Ctrl-C ends the process without more words

    async def _draw(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            began = time.monotonic()
            frame = self._frames.live(*self._resize(), cancelling=self._cancelling)
            await loop.run_in_executor(self._writer, self._write, frame)
            pause = min(max(SECONDS_BETWEEN_FRAMES, SHARE_OF_TIME * (time.monotonic() - began)), MOST_SECONDS_BETWEEN)
            try:
                await asyncio.wait_for(self._stop.wait(), pause)
            except TimeoutError:
                continue

    def _resize(self) -> tuple[int, int]:
        """The size of the terminal as it is now, less one column: a full line would wrap on some."""
        width, height = os.get_terminal_size(self._console.file.fileno())
        self._console.size = width or 80, height or 24
        return (width or 80) - 1, height or 24

    def _write(self, frame: Text) -> None:
        with self._writing:
            self._live.update(frame, refresh=True)

    def _write_above(self, text: str) -> None:
        pieces = _colour.split(text)
        shown = "".join(piece if i % 2 else printable(piece) for i, piece in enumerate(pieces))
        with self._writing:
            self._console.print(Text.from_ansi(shown), soft_wrap=True)


def _same_terminal(one: int, other: int) -> bool:
    """Whether both are terminals, and the same one."""
    try:
        return os.ttyname(one) == os.ttyname(other)
    except OSError:
        return False
