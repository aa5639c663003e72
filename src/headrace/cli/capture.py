"""What handlers, libraries and child processes write to the terminal while a view is drawn there.

Their file descriptors lead into a pipe for that time, so that nothing, not even a child's output, tears the view or
reaches the terminal unseen; a thread hands on what arrives, whole lines at a time and in order. A thread, because a
handler that blocks the event loop while it prints would otherwise wait for itself.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

MOST_BYTES_OF_A_LINE = 1 << 16


class Capture:
    def __init__(self, descriptors: Iterable[int], show: Callable[[str], None]) -> None:
        self._descriptors = tuple(descriptors)
        self._show = show
        self._end = secrets.token_hex(16).encode()  # children may hold the pipe open, so it has no end of its own
        self._thread = threading.Thread(target=self._hand_on, name="headrace-capture", daemon=True)

    def __enter__(self) -> Capture:
        _flush()
        self._kept = {descriptor: os.dup(descriptor) for descriptor in self._descriptors}
        self._read_end, self._write_end = os.pipe()
        for descriptor in self._descriptors:
            os.dup2(self._write_end, descriptor)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _flush()
        for descriptor, kept in self._kept.items():
            os.dup2(kept, descriptor)
            os.close(kept)
        os.write(self._write_end, self._end)
        os.close(self._write_end)
        self._thread.join()
        os.close(self._read_end)

    def _hand_on(self) -> None:
        started = b""
        while self._end not in started:
            lines, newline, started = (started + os.read(self._read_end, 1 << 16)).rpartition(b"\n")
            if not newline and len(started) > MOST_BYTES_OF_A_LINE:
                lines, newline, started = started, b"\n", b""
            if newline:
                self._show(lines.decode(errors="backslashreplace"))
        if last := started.partition(self._end)[0]:
            self._show(last.decode(errors="backslashreplace"))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream:  # one that was closed before we started is None
            stream.flush()
