"""`python -m headrace ...` as a real process, without the second of CPU that its imports take each time.

Each pytest has one server (this module as a program) that imports Headrace and then does nothing but fork. A fork is a
process like any other: its own pid, folder, environment, descriptors and signals, and from `runpy` on it does what
`python -m` does, to the end of the interpreter. It ends with its pytest, however that ends.

Tests of what comes before that (imports, terminals, entry points) start the command line itself, with `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
CHUNK = 1 << 16

# What commands import when they are called, and what that imports when it meets a database.
PRELOADED = (
    *(f"headrace.cli.{name}" for name in ("main", "auditing", "dev", "doctor", "init", "migrate", "recorded", "roles")),
    *(f"headrace.cli.{name}" for name in ("run", "run_on_server", "schema", "validate")),
    *("headrace.api.app", "headrace.api.server", "headrace.engine.recording", "headrace.engine.service"),
    *("headrace.record.layout", "headrace.record.migrations", "headrace.worker.handlers", "headrace.worker.worker"),
    *("sqlalchemy.dialects.postgresql.asyncpg", "sqlalchemy.dialects.sqlite.aiosqlite", "uvloop"),
)


class Fork:
    """Speaks the words of `subprocess.Popen`. `arguments` is what comes after `python -m`, `files` is what becomes its
    standard input, output and error."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], folder: Path, files: tuple[IO[Any], IO[Any], IO[Any]]
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._lifeline, theirs = socket.socketpair()  # each side sees the end of the other
        request = {"arguments": arguments, "environment": environment, "folder": str(folder)}
        with theirs:
            self.pid = _server().ask(request, [*(file.fileno() for file in files), theirs.fileno()])

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._lifeline], [], [], seconds)[0]:
            self.returncode = os.waitstatus_to_exitcode(_server().ask({"wait": self.pid}))
            self._lifeline.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def headrace(
    *arguments: str, cwd: Path, environment: dict[str, str], stdin: bytes = b"", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """The command from its start to its end, like `subprocess.run` with captured output."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        given.write(stdin)
        given.seek(0)
        fork = Fork(["headrace", *arguments], environment, cwd, (given, stdout, stderr))
        try:
            fork.wait(timeout)
        finally:
            fork.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(arguments, fork.wait(), stdout.read().decode(), stderr.read().decode())


class Server:
    """This side of the server: one question at a time, each with one number for an answer."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for pytest; all others end with it
            )  # fmt: skip

    def ask(self, question: Mapping[str, object], descriptors: list[int] | None = None) -> int:
        message = json.dumps(question).encode() + b"\n"
        with self._lock:
            sent = socket.send_fds(self._control, [message], descriptors or [])
            self._control.sendall(message[sent:])
            return int(self._control.recv(CHUNK))

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _server() -> Server:
    server = Server()
    atexit.register(server.close)
    return server


def serve(control: socket.socket) -> list[str]:
    """Answers until there is nobody to ask. Returns only in a fork, with what to run there."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, CHUNK, 4)
        if not message:
            raise SystemExit
        while not message.endswith(b"\n"):
            message += control.recv(CHUNK)
        question = json.loads(message)
        if "wait" in question:
            answer = os.waitpid(question["wait"], 0)[1]
        elif (answer := os.fork()) == 0:
            control.close()
            become(question["environment"], question["folder"], descriptors)
            return list(question["arguments"])
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(str(answer).encode())


def become(environment: dict[str, str], folder: str, descriptors: list[int]) -> None:
    """What `exec` and the start of an interpreter would have made of this process."""
    *files, lifeline = descriptors
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(lifeline, False)
    threading.Thread(target=end_with, args=(lifeline,), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]


def end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # forks share the memory of what nobody touches
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
