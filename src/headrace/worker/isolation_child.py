"""The other end of `isolation.py`: a process that runs isolated handlers, one at a time, as `python -m` of this module.

It talks over one inherited socket, so stdin, stdout and stderr are the handler's own. A daemon thread does the
reading, and that is also the lifeline: when the parent is gone, however it went, the read ends and this process kills
its group, in the middle of a busy loop if need be. Code in C that never lets go of the interpreter would not let that
thread run; on Linux the kernel kills us all the same.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import signal
import socket
import struct
import sys
import threading
from datetime import datetime

import msgspec
import structlog

from headrace import logs
from headrace.errors import BadValue, HandlerNotFound
from headrace.model.messages import Outcome
from headrace.redaction import Redactor
from headrace.worker.outcomes import arguments, called, called_sync, checked_config, failed, raised, readable, storable
from headrace.worker.registry import Context, Handler, describe, import_handlers, marked

HEAD = struct.Struct("!I")
PR_SET_PDEATHSIG = 1


class Load(msgspec.Struct, frozen=True, tag=True):
    """Import a handler, before the clock of its timeout starts. The answer is an empty Outcome, or a failure."""

    module: str
    name: str
    path: list[str]
    log_level: str = "info"
    confidential: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, tag=True):
    """Run a handler that was loaded. The answer is the attempt's Outcome."""

    name: str
    config: bytes
    max_output_bytes: int
    execution_id: str
    node_id: str
    run: int
    attempt: int
    idempotency_key: str
    deadline: datetime | None
    traceparent: str | None = None


def frame(message: Load | Job | Outcome) -> bytes:
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body)) + body


def context_of(job: Job) -> Context:
    ids = {
        "execution_id": job.execution_id,
        "node_id": job.node_id,
        "run": job.run,
        "attempt": job.attempt,
        "idempotency_key": job.idempotency_key,
    }
    log = structlog.get_logger(**ids)
    return Context(**ids, deadline=job.deadline, log=log, traceparent=job.traceparent)  # type: ignore[arg-type]


def load(request: Load) -> Handler:
    sys.path[:] = request.path
    for function in marked(import_handlers(request.module)):
        found = describe(function)
        if found.name == request.name:
            return found
    raise HandlerNotFound(f"module {request.module} has no handler {request.name!r} at its top level")


def perform(job: Job, handler: Handler, runner: asyncio.Runner) -> Outcome:
    try:
        config = checked_config(handler, job.config)
    except BadValue as error:
        return failed("bad_config", str(error), type=type(error).__name__)
    given = arguments(handler, config, lambda: context_of(job))
    if not handler.is_async:
        return called_sync(handler, given, job.max_output_bytes)
    try:
        return runner.run(called(handler, given, job.max_output_bytes))
    except BaseException as error:  # cancelled from inside, or interrupted
        return raised(error)


def answer(request: Load | Job, handlers: dict[str, Handler], runner: asyncio.Runner) -> Outcome:
    if isinstance(request, Job):
        return perform(request, handlers[request.name], runner)
    try:
        handlers[request.name] = load(request)
    except Exception as error:
        return failed("error", f"its own process cannot load it: {readable(error)}", type=type(error).__name__)
    return Outcome()


def prepared(request: Load) -> Redactor:
    """Log as the parent does; and redact as it does, for it would not know a secret again that is shortened here."""
    logs.configure(request.log_level)
    logs.hide(request.confidential)
    return Redactor(request.confidential)


def listen(connection: socket.socket, requests: queue.SimpleQueue[Load | Job]) -> None:
    """Read requests for as long as the parent lives, and not a moment longer."""
    decode = msgspec.msgpack.Decoder(Load | Job).decode
    try:
        with connection.makefile("rb") as stream:
            while head := stream.read(HEAD.size):
                requests.put(decode(stream.read(HEAD.unpack(head)[0])))
    finally:
        os.killpg(0, signal.SIGKILL)


def main(descriptor: int) -> None:
    os.set_inheritable(descriptor, False)  # programs that a handler starts must not hold it
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = socket.socket(fileno=descriptor)
    requests: queue.SimpleQueue[Load | Job] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(connection, requests), name="headrace-lifeline", daemon=True).start()
    handlers: dict[str, Handler] = {}
    redactor = Redactor()
    with asyncio.Runner() as runner:
        while True:
            request = requests.get()
            if isinstance(request, Load):
                redactor = prepared(request)
            limit = request.max_output_bytes if isinstance(request, Job) else 0
            connection.sendall(frame(storable(answer(request, handlers, runner), redactor, limit)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
