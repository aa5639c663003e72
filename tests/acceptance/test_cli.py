"""`headrace run` as a user calls it: real processes, their output and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.roles import until

ROOT = Path(__file__).parent.parent.parent

HANDLERS = """
import asyncio, os, pathlib
from headrace import handler, Fatal

@handler("wait")
async def wait(config: dict):
    pathlib.Path(config["started"]).write_text(str(os.getpid()))
    await asyncio.sleep(600)

@handler("deaf")
async def deaf(config: dict):
    pathlib.Path(config["started"]).touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

@handler("broken")
def broken(config: dict):
    raise Fatal("out of order")

@handler("slow")
async def slow(config: dict):
    await asyncio.sleep(0.5)
    return {"usage": {"total_tokens": 1200}}

@handler("hostile")
def hostile(config: dict):
    print("printed")
    os.write(1, b"written")
    raise Fatal("one\\n\\x1b[2Jtwo\\x9b31m")
"""


def headrace(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return forks.headrace(*arguments, cwd=cwd, environment={**os.environ, **environment})


def write(folder: Path, name: str, document: Any) -> str:
    (folder / "own.py").write_text(HANDLERS)
    (folder / name).write_text(json.dumps(document) if not isinstance(document, str) else document)
    return name


def test_inputs_come_from_options_and_files(tmp_path: Path) -> None:
    nodes = [{"id": "o", "handler": "output", "config": {"all": "{{ input }}"}}]
    file = write(tmp_path, "w.json", {"name": "w", "nodes": nodes})
    (tmp_path / "in.yaml").write_text("a: 1\nb: [x, y]\n")
    ended = headrace("run", file, "--input-file", "in.yaml", "--input", "a=2", "--input", "c=some text", cwd=tmp_path)
    assert json.loads(ended.stdout) == {"all": {"a": 2, "b": ["x", "y"], "c": "some text"}}


def test_json_is_all_that_is_on_stdout(tmp_path: Path) -> None:
    nodes = [{"id": "a", "handler": "broken"}, {"id": "b", "handler": "output", "dependencies": ["a"]}]
    file = write(tmp_path, "w.json", {"name": "w", "nodes": nodes})
    ended = headrace("run", file, "--handlers", "own", "--json", cwd=tmp_path)
    assert ended.returncode == 1
    view = json.loads(ended.stdout)
    assert set(view) == {
        "execution_id", "workflow", "version", "status", "run", "input_params", "output", "error", "created_at",
        "started_at", "finished_at", "nodes",
    }  # fmt: skip
    assert set(view["nodes"][0]) == {
        "id", "handler", "status", "attempt", "dependencies", "queued_at", "started_at", "finished_at", "error",
        "reason",
    }  # fmt: skip
    assert view["status"] == "FAILED"
    assert view["error"]["message"] == "out of order"
    assert [node["status"] for node in view["nodes"]] == ["FAILED", "SKIPPED"]


def test_what_handlers_print_is_not_in_the_json(tmp_path: Path) -> None:
    file = write(tmp_path, "w.json", {"name": "w", "nodes": [{"id": "a", "handler": "hostile"}]})
    ended = headrace("run", file, "--handlers", "own", "--json", cwd=tmp_path)
    assert json.loads(ended.stdout)["status"] == "FAILED"
    assert "printed" in ended.stderr
    assert "written" in ended.stderr
    ended = headrace("run", file, "--handlers", "own", cwd=tmp_path)
    assert "printed" in ended.stdout


def test_plain_lines_tell_what_happened_and_what_to_do(tmp_path: Path) -> None:
    nodes = [
        {"id": "bad", "handler": "hostile"},
        {"id": "good", "handler": "slow"},
        {"id": "child", "handler": "output", "dependencies": ["bad"]},
        {"id": "other", "handler": "output", "dependencies": ["good"]},
    ]
    ended = headrace("run", write(tmp_path, "w.json", {"name": "w", "nodes": nodes}), "--handlers", "own", cwd=tmp_path)
    assert ended.returncode == 1
    lines = [line[12:].rstrip() for line in ended.stderr.splitlines()]  # without the time
    assert "bad    FAILED: Fatal: one" in lines
    assert r"    \x1b[2Jtwo\x9b31m" in lines
    assert "child  skipped: bad failed" in lines
    assert "other  skipped: the execution failed first" in lines
    assert "failed; waiting for 1 running node (Ctrl-C: do not wait)" in lines
    assert any(line.startswith("FAILED: 1 of 4 nodes completed in ") for line in lines)
    assert any(line.endswith("1 failed, 2 skipped, 1,200 tokens") for line in lines)
    assert any(line.startswith("Change node bad (handler hostile)") for line in lines)


def test_an_execution_that_takes_too_long_says_so(tmp_path: Path) -> None:
    nodes = [{"id": "a", "handler": "slow"}, {"id": "b", "handler": "output", "dependencies": ["a"]}]
    file = write(tmp_path, "w.json", {"name": "w", "nodes": nodes, "timeout_seconds": 0.1})
    ended = headrace("run", file, "--handlers", "own", cwd=tmp_path)
    assert ended.returncode == 1
    assert "longer than its timeout_seconds" in ended.stderr
    assert "skipped: time was up" in ended.stderr


def test_a_large_graph_does_not_flood_the_log(tmp_path: Path) -> None:
    nodes = [{"id": f"n{i}", "handler": "broken" if i % 2 else "output"} for i in range(1000)]
    file = write(tmp_path, "w.json", {"name": "w", "nodes": nodes, "on_failure": "continue"})
    ended = headrace("run", file, "--handlers", "own", cwd=tmp_path)
    assert ended.returncode == 1
    assert "FAILED: 500 of 1,000 nodes completed" in ended.stderr
    assert "500 failed" in ended.stderr
    assert len(ended.stderr.splitlines()) < 80


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    file = write(tmp_path, "w.json", {"name": "w", "nodes": [{"id": "a", "handler": "output", "config": {"x": 1}}]})
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "headrace", "run", file],
        cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(writing)
    assert ended.returncode == 0
    assert b"BrokenPipe" not in ended.stderr


@pytest.mark.parametrize(
    ("document", "arguments", "says"),
    [
        ("name: w\nnodes: [{id: a, handler: outputt}]\n", (), "did you mean output"),
        ("name: w\nnodes: [{id: a, handler: output, config: {x: {{ y }} }}]\n", (), "needs quotes"),
        ("name: w\nnodes: [{id: a, handler: output}]\n", ("--input", "x"), "KEY=VALUE"),
        ("name: w\nnodes: [{id: a, handler: output}]\n", ("--handlers", "nowhere"), "nowhere"),
        ("name: w\nnodes: [{id: a, handler: output}]\n", ("--input-file", "nowhere"), "nowhere"),
        ("name: w\ninputs: {n: {type: integer}}\nnodes: [{id: a, handler: output}]\n", ("--input", "n=x"), "n"),
    ],
)
def test_bad_usage(document: str, arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    ended = headrace("run", write(tmp_path, "w.yaml", document), *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_store_that_cannot_be_started(tmp_path: Path) -> None:
    file = write(tmp_path, "w.yaml", "name: w\nnodes: [{id: a, handler: output}]\n")
    (tmp_path / "file").touch()
    ended = headrace("run", file, cwd=tmp_path, HEADRACE_HOME=str(tmp_path / "file" / "home"))
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr


def test_roles_without_a_server(tmp_path: Path) -> None:
    assert headrace("worker", cwd=tmp_path).returncode == 2
    ended = headrace("orchestrator", cwd=tmp_path, REDIS_URL=f"unix://{tmp_path}/nowhere.sock")
    assert ended.returncode == 3
    assert "cannot reach Valkey" in ended.stderr


Start = Callable[..., Awaitable[subprocess.Popen[bytes]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a run that waits in its handler; what a failed test leaves behind is killed."""
    processes: list[subprocess.Popen[bytes]] = []

    async def run(name: str, handler: str = "wait") -> subprocess.Popen[bytes]:
        mark = tmp_path / f"{name}.started"
        nodes = [{"id": "a", "handler": handler, "config": {"started": str(mark)}}]
        file = write(tmp_path, f"{name}.json", {"name": name, "nodes": nodes})
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "headrace", "run", file, "--handlers", "own"],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        await until(mark.exists, "the handler runs")
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def servers(folder: Path) -> list[str]:
    """The command lines of live servers whose data is below this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder) in os.readlink(entry / "cwd"):
                command = (entry / "cmdline").read_bytes()
                found += [command.decode()] if command.replace(b"\0", b" ").split(b" ")[0].endswith(b"-server") else []
        except OSError:
            continue
    return found


async def test_a_handler_that_does_not_listen_cannot_keep_the_command_from_ending(start: Start) -> None:
    process = await start("w", "deaf")
    process.send_signal(signal.SIGINT)
    _, told = await asyncio.to_thread(process.communicate)
    assert process.returncode == 130
    assert b"CANCELLED" in told


async def test_ctrl_c_cancels(start: Start, tmp_path: Path) -> None:
    process = await start("w")
    process.send_signal(signal.SIGINT)
    _, told = await asyncio.to_thread(process.communicate)
    assert process.returncode == 130
    assert b"CANCELLED" in told
    assert servers(tmp_path) == []


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
async def test_two_runs_in_one_folder_and_a_killed_one_leaves_nothing(start: Start, tmp_path: Path) -> None:
    first = await start("first")
    second = await start("second")
    assert len(servers(tmp_path)) == 2
    first.kill()
    await asyncio.to_thread(first.communicate)
    await until(lambda: len(servers(tmp_path)) == 1, "the killed run's server is gone")
    assert second.poll() is None
    second.send_signal(signal.SIGINT)
    await asyncio.to_thread(second.communicate)
    assert second.returncode == 130
    ended = headrace("run", write(tmp_path, "w.yaml", "name: w\nnodes: [{id: a, handler: output}]\n"), cwd=tmp_path)
    assert ended.returncode == 0
    assert [path.name for path in (tmp_path / ".headrace" / "run").iterdir()] == ["lock"], (
        "the killed run's folder is gone"
    )
