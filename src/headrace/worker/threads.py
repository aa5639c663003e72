"""Sync handlers, each in a daemon thread of its own, as futures of the loop.

Not an executor: its threads are joined when the interpreter ends, so that one stuck handler would keep a worker from
ever ending, and a stop meant for one call could hit the next call of the same thread. A fresh thread costs some tens
of microseconds, little beside what a sync handler does.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Stopped(BaseException):
    """Raised inside a thread that should end. Not an Exception, so that a handler's `except Exception` lets it by."""


class Call(Generic[T]):
    """A function that runs in a thread, and the future of what it returns. The function must not raise."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._inside = False  # the thread is where Stopped may reach it
        self._asked = False
        self.future: asyncio.Future[T] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="headrace-handler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread, once, to end. It notices when it next runs Python code: never inside a blocking call."""
        if self._asked:
            return
        with self._lock:
            self._asked = True
            if self._inside:
                thread = ctypes.c_ulong(self._thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))

    def _run(self) -> None:
        try:
            with self._lock:
                self._inside = not self._asked
            if not self._inside:
                raise Stopped
            value = self._context.run(self._function)
            with self._lock:
                self._inside = False
        except Stopped:
            self._settle(self.future.cancel)
        else:
            self._settle(lambda: self.future.set_result(value))

    def _settle(self, settle: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(lambda: None if self.future.done() else settle())
