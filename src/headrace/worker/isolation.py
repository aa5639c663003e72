"""Handlers with isolation="process": a pool of reusable child processes, each running one handler at a time.

For code that is busy in Python and would stop the worker's heartbeat, or that a timeout must really end: a child is
killed with its whole process group. Children start when first needed, at most `limit` live at once, idle ones are used
again (what a handler leaves in its module's globals is still there), and none outlives the worker. Loading a handler
in a fresh child takes a moment and comes before the attempt's timeout, or a short one could never be met.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from headrace import logs
from headrace.model.messages import Outcome
from headrace.worker.isolation_child import HEAD, Job, Load, frame
from headrace.worker.outcomes import failed
from headrace.worker.registry import Handler

START_WITHIN_SECONDS = 60.0  # some modules import the world
GOODBYE_SECONDS = 2.0  # between a child's last word and its end, either way round

_decode = msgspec.msgpack.Decoder(Outcome).decode
_private: set[int] = set()  # our ends of the sockets: a forked process must not keep children from seeing our end


def _forget_private() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _private:
        os.dup2(nothing, descriptor, inheritable=False)
    _private.clear()
    os.close(nothing)


os.register_at_fork(after_in_child=_forget_private)


class ChildEnded(Exception):
    """A child ended although it was asked something; the text says how."""


class Child:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        descriptor: int,
    ) -> None:
        self.loaded: set[str] = set()
        self.pid = process.pid
        self.exited = asyncio.create_task(process.wait())
        self._reader = reader
        self._writer = writer
        self._descriptor = descriptor

    @classmethod
    async def start(cls) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-u", "-P", "-m", "headrace.worker.isolation_child", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=2,  # what a handler prints must not mix with what our own process says
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        _private.add(ours.fileno())
        return cls(process, reader, writer, ours.fileno())

    async def ask(self, request: Load | Job) -> Outcome:
        """Its answer; raises ChildEnded when it ends instead."""
        self._writer.write(frame(request))
        answer = asyncio.create_task(self._read())
        try:
            await asyncio.wait((answer, self.exited), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((answer,), timeout=GOODBYE_SECONDS)  # it may have answered and ended
            if answer.done() and answer.exception() is None:
                return answer.result()
        finally:
            answer.cancel()
        await asyncio.wait((self.exited,), timeout=GOODBYE_SECONDS)
        told = how_it_ended(self.exited.result()) if self.exited.done() else "closed its connection"
        raise ChildEnded(f"the handler's process {self.pid} {told}")

    async def _read(self) -> Outcome:
        (size,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        return _decode(await self._reader.readexactly(size))

    async def end(self) -> None:
        """Kill it and all that it started, and wait until it is gone."""
        if not self.exited.done():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        _private.discard(self._descriptor)
        self._writer.close()
        await asyncio.wait((self.exited,))


def how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def crashed(error: Exception) -> Outcome:
    return failed("crashed", str(error), type=type(error).__name__, retryable=True)


class Children:
    def __init__(self, limit: int, confidential: Sequence[str] = ()) -> None:
        self._confidential = tuple(confidential)
        self._free = asyncio.Semaphore(limit)
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._starting: set[asyncio.Task[Child]] = set()

    async def ready(self, handler: Handler) -> Child | Outcome:
        """A child with the handler loaded, which is the caller's for one `perform`; or why there is none."""
        await self._free.acquire()
        child: Child | None = None
        refusal: Outcome | None = None
        loaded = False
        try:
            async with asyncio.timeout(START_WITHIN_SECONDS):
                child = await self._take(handler.name)
                refusal = await self._load(child, handler)
            loaded = refusal is None
        except TimeoutError:
            refusal = crashed(ChildEnded(f"the handler's process was not ready in {START_WITHIN_SECONDS:g} seconds"))
        except (ChildEnded, OSError) as error:
            refusal = crashed(error)
        finally:
            if not loaded:
                await self._give_back(child, usable=False)
        return refusal or child  # type: ignore[return-value]

    async def perform(self, child: Child, job: Job) -> Outcome:
        """Run the handler. Cancelled, it kills the child: for busy code nothing softer has a meaning."""
        usable = False
        try:
            outcome = await child.ask(job)
            usable = True
        except ChildEnded as error:
            outcome = crashed(error)
        finally:
            await self._give_back(child, usable=usable)
        return outcome

    async def aclose(self) -> None:
        if self._starting:
            await asyncio.wait(self._starting)
            await asyncio.sleep(0)  # those who wait for them go first
        for child in tuple(self._all):
            await self._drop(child)

    async def _load(self, child: Child, handler: Handler) -> Outcome | None:
        if handler.name not in child.loaded:
            outcome = await child.ask(Load(handler.module, handler.name, sys.path, logs.level(), self._confidential))
            if outcome.failure is not None:
                return outcome
            child.loaded.add(handler.name)
        return None

    async def _take(self, name: str) -> Child:
        for child in [child for child in self._idle if child.exited.done()]:
            await self._drop(child)
        for child in reversed(self._idle):
            if name in child.loaded:
                self._idle.remove(child)
                return child
        return self._idle.pop() if self._idle else await self._start()

    async def _start(self) -> Child:
        """A new child. A start is never broken off half way, where asyncio would lose the process: it goes idle."""
        starting = asyncio.create_task(Child.start())
        self._starting.add(starting)
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._adopt)
            await asyncio.wait((starting,))
            raise
        finally:
            self._starting.discard(starting)
        self._all.add(child)
        return child

    def _adopt(self, starting: asyncio.Task[Child]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._all.add(starting.result())
            self._idle.append(starting.result())

    async def _give_back(self, child: Child | None, *, usable: bool) -> None:
        try:
            if child is not None and usable and child in self._all:
                self._idle.append(child)
            elif child is not None:
                await self._drop(child)
        finally:
            self._free.release()

    async def _drop(self, child: Child) -> None:
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        await child.end()
