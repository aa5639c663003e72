"""The client commands and `headrace run --server`, as a user calls them, against a `headrace dev` of its own."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Client
from tests import forks
from tests.forks import Fork

GIVE_UP_SECONDS = 90
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
NOBODY = "01a1e258-a5f5-7023-bfb3-55a2aaaa3d0a"

HANDLERS = """\
import asyncio, pathlib
from headrace import Fatal, handler

@handler("until")
async def until(config: dict) -> dict:
    '''Runs until a file is there.'''
    while not pathlib.Path(config["file"]).exists():
        await asyncio.sleep(0.02)
    return {"file": config["file"]}

@handler("boom")
async def boom(config: dict) -> dict:
    if pathlib.Path("mended").exists():
        return {"mended": True}
    raise Fatal("it is \\x1b[31mbroken\\r" + "x" * 200)
"""
GOOD = """\
name: good
inputs: {who: {type: string}}
nodes:
  - {id: start, handler: input}
  - {id: done, handler: output, dependencies: [start], config: {text: "Hello {{ start.who }}"}}
"""
WAITS = """\
name: waits
nodes:
  - {id: first, handler: output, config: {x: 1}}
  - {id: long, handler: until, dependencies: [first], config: {file: FILE}}
  - {id: last, handler: output, dependencies: [long], config: {text: the end}}
"""
FAILS = """\
name: fails
nodes:
  - {id: a, handler: boom}
  - {id: b, handler: output, dependencies: [a], config: {text: well}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)
    return found


@dataclass
class Dev:
    """`headrace dev` as a process, in a folder of its own."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: Fork | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["headrace", "dev", "--port", str(self.port), "--handlers", "own_handlers"]
        with (self.folder / "dev.log").open("ab") as log, open(os.devnull, "rb") as nothing:
            self.process = Fork(command, os.environ | self.environment, self.folder, (nothing, log, log))
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self.process and self.process.poll() is None, (self.folder / "dev.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(100)
        except OSError:
            return False

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(number)
            self.process.wait(GIVE_UP_SECONDS)

    def _shell(self) -> dict[str, str]:
        """The environment that a command finds."""
        return {**os.environ, "COLUMNS": "80", "HEADRACE_SERVER": self.url, "TERM": "xterm", **self.environment}

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The command line itself, for what is done to it while it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments], cwd=self.folder, text=True, env=self._shell(),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )  # fmt: skip

    def headrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ended = forks.headrace(*arguments, cwd=self.folder, environment=self._shell())
        assert "Traceback" not in ended.stderr, ended.stderr
        assert "\x1b" not in ended.stdout + ended.stderr
        return ended

    def json(self, *arguments: str) -> Any:
        ended = self.headrace(*arguments, "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return json.loads(ended.stdout)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        """In this process, which is quicker than a command."""

        async def run() -> Any:
            async with Client(self.url, self.environment.get("HEADRACE_API_KEY")) as client:
                return await question(client)

        with asyncio.Runner() as runner:
            return runner.run(run())

    def newest(self, workflow: str) -> str:
        page = self.ask(lambda client: client.page(workflow=workflow, limit=1))
        return str(page["items"][0]["execution_id"])

    def status(self, execution_id: str) -> str:
        return str(self.ask(lambda client: client.get(execution_id))["status"])

    def running_node(self, workflow: str, node: str) -> str:
        """Waits until a node of the workflow's newest execution runs; the id of the execution."""
        running: dict[str, Any] = wait_until(
            lambda: self.ask(lambda client: client.page(workflow=workflow, status="RUNNING"))["items"]
        )[0]
        execution_id = str(running["execution_id"])
        wait_until(lambda: self.ask(lambda client: client.node(execution_id, node))["status"] == "RUNNING")
        return execution_id


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Dev]:
    (folder / "own_handlers.py").write_text(HANDLERS)
    dev = Dev(folder, environment)
    try:
        dev.start()
        yield dev
    finally:
        dev.end()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with running(tmp_path_factory.mktemp("dev")) as started:
        yield started


def fits(text: str) -> bool:
    return all(len(line) <= 80 for line in text.splitlines())


# headrace run --server


def test_run_there_prints_what_run_here_prints(dev: Dev) -> None:
    file = dev.write("good.yaml", GOOD)
    there = dev.headrace("run", file, "--input", "who=Ada", "--server", dev.url)
    here = dev.headrace("run", file, "--input", "who=Ada")
    assert there.returncode == here.returncode == 0
    assert json.loads(there.stdout) == json.loads(here.stdout) == {"text": "Hello Ada"}
    assert re.match(rf"execution {UUID}\n", there.stderr)

    def told(stderr: str) -> list[str]:
        return sorted(re.sub(r"[\d.]+ s", "", line).strip() for line in stderr.splitlines() if " s  " in line)

    assert told(there.stderr) == told(here.stderr)
    assert re.search(r"COMPLETED: 2 of 2 nodes completed in [\d.]+ s\n$", there.stderr)


def test_run_there_with_json_prints_the_execution_as_the_api_shows_it(dev: Dev) -> None:
    ended = dev.json("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    assert (ended["status"], ended["output"], ended["input_params"]) == (
        "COMPLETED",
        {"text": "Hello Ada"},
        {"who": "Ada"},
    )
    assert ended == dev.json("executions", "show", ended["execution_id"])


def test_run_there_names_every_problem_with_its_line(dev: Dev) -> None:
    text = "name: wrong\nnodes:\n  - id: a\n    handler: nothing\n    dependencies: [zz]\n"
    ended = dev.headrace("run", dev.write("wrong.yaml", text), "--server", dev.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    first, second, hint = ended.stderr.splitlines()
    assert first.startswith("wrong.yaml:4:5: node a: there is no handler nothing")
    assert second == "wrong.yaml:5:20: node a: there is no node zz to depend on"
    assert "headrace workers" in hint


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--input", "who=7"), "input_params"),
        (("--handlers", "own_handlers"), "leave --handlers out"),
        (("--input", "nonsense"), "write it as KEY=VALUE"),
        (("--server", "no-address"), "is not an address"),
    ],
)
def test_run_there_says_what_is_wrong_with_its_use(dev: Dev, arguments: tuple[str, ...], says: str) -> None:
    ended = dev.headrace("run", dev.write("good.yaml", GOOD), "--server", dev.url, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr


def test_run_there_fails_like_run_here(dev: Dev) -> None:
    ended = dev.headrace("run", dev.write("fails.yaml", FAILS), "--server", dev.url)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "a  FAILED: Fatal: it is \\x1b[31mbroken\\rxxx" in ended.stderr
    assert "b  skipped: a failed" in ended.stderr
    assert f"headrace executions retry {dev.newest('fails')}" in ended.stderr


def test_ctrl_c_cancels_there(dev: Dev) -> None:
    file = dev.write("waits.yaml", WAITS.replace("FILE", "never"))
    process = dev.popen("run", file, "--server", dev.url)
    execution_id = dev.running_node("waits", "long")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=GIVE_UP_SECONDS)
    assert (process.returncode, json.loads(stdout)) == (130, {"x": 1})  # what its output nodes gave nevertheless
    assert "Traceback" not in stderr and "CANCELLED: 1 of 3 nodes completed" in stderr
    assert dev.status(execution_id) == "CANCELLED"
    assert dev.headrace("executions", "cancel", execution_id).returncode == 1


# headrace executions, why


def test_watch_follows_from_the_middle_to_the_end(dev: Dev) -> None:
    flag = dev.folder / "go-on"
    runs = dev.popen("run", dev.write("waits.yaml", WAITS.replace("FILE", str(flag))), "--server", dev.url, "--json")
    execution_id = dev.running_node("waits", "long")
    assert dev.headrace("why", execution_id, "last").stdout == "last: waits for long\n"
    assert dev.headrace("why", execution_id, "first").stdout == "first: COMPLETED\n"
    assert [each["node"] for each in dev.json("why", execution_id)["nodes"]] == ["long", "last"]

    gives_up = dev.popen("executions", "watch", execution_id)
    assert gives_up.stderr is not None
    wait_until(lambda: "long" in gives_up.stderr.readline())  # type: ignore[union-attr]
    gives_up.send_signal(signal.SIGINT)
    _, stderr = gives_up.communicate(timeout=GIVE_UP_SECONDS)
    assert gives_up.returncode == 130 and "Traceback" not in stderr
    assert dev.status(execution_id) == "RUNNING"

    watches = dev.popen("executions", "watch", execution_id)
    assert watches.stderr is not None
    before = [watches.stderr.readline() for _ in range(4)]
    flag.touch()
    after, stdout = watches.stderr.read(), watches.communicate(timeout=GIVE_UP_SECONDS)[0]
    assert (watches.returncode, stdout) == (0, "")
    assert [re.sub(r"[\d.]+ s", "S", line).split() for line in before] == [
        ["S", "waits:", "3", "nodes"],
        ["S", "first", "running"],
        ["S", "first", "completed", "in", "S"],
        ["S", "long", "running"],
    ]
    assert re.search(r"last +completed.*\n.*COMPLETED: 3 of 3 nodes", after)
    ended = json.loads(runs.communicate(timeout=GIVE_UP_SECONDS)[0])
    assert dev.json("executions", "watch", execution_id) == ended  # it has ended: then this tells how


def test_watch_goes_on_when_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        flag = dev.folder / "go-on"
        file = dev.write("waits.yaml", WAITS.replace("FILE", str(flag)))
        runs = dev.popen("run", file, "--server", dev.url)
        assert runs.stderr is not None
        wait_until(lambda: "long" in runs.stderr.readline())  # type: ignore[union-attr]
        dev.end(signal.SIGKILL)
        flag.touch()
        dev.start()
        stdout, stderr = runs.communicate(timeout=GIVE_UP_SECONDS)
    assert (runs.returncode, json.loads(stdout)) == (0, {"x": 1, "text": "the end"})
    assert "COMPLETED: 3 of 3 nodes" in stderr


def test_watch_draws_on_a_terminal(dev: Dev) -> None:
    dev.headrace("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    ours, theirs = pty.openpty()
    process = dev.popen("executions", "watch", dev.newest("good"), stderr=theirs, stdout=theirs)
    os.close(theirs)
    shown = ""
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        try:
            shown += os.read(ours, 1 << 16).decode()
        except OSError:  # the terminal's other end is closed
            break
    os.close(ours)
    assert process.wait(GIVE_UP_SECONDS) == 0
    assert "✓" in shown and "COMPLETED" in shown


def test_lists_fit_80_columns_and_cut_no_id(dev: Dev) -> None:
    name = "w" * 64
    dev.headrace("run", dev.write("long.yaml", FAILS.replace("name: fails", f"name: {name}")), "--server", dev.url)
    execution_id = dev.newest(name)
    listed = dev.headrace("executions", "list", "--workflow", name)
    assert fits(listed.stdout) and execution_id in listed.stdout and f"  {name} v1\n" in listed.stdout
    letters = dev.headrace("dlq", "list", "--workflow", name)
    [letter] = dev.json("dlq", "list", "--workflow", name)["items"]
    assert fits(letters.stdout)
    assert {letter["id"], execution_id} <= set(letters.stdout.split())
    shown = dev.headrace("executions", "show", execution_id)
    assert execution_id in shown.stdout.splitlines() and "upstream_failed" in shown.stdout
    node = dev.headrace("executions", "show", execution_id, "a")
    assert "a: FAILED, handler boom" in node.stdout and "config:" in node.stdout
    assert fits(dev.headrace("workflows", "list").stdout.replace(name, ""))
    assert dev.headrace("executions", "list", "--query", "no such text").stderr == "There are none.\n"


def test_pages_lead_to_each_other(dev: Dev) -> None:
    for _ in range(3):
        dev.headrace("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = dev.headrace("executions", "list", "--workflow", "good", "--limit", "2", *cursor)
        seen += re.findall(rf"^{UUID}", page.stdout, re.MULTILINE)
        more = re.search(r"There are more: (--cursor) (\S+)", page.stderr)
        if not more:
            break
        cursor = [*more.groups()]
    assert len(seen) == len(set(seen)) >= 3
    assert seen == sorted(seen, reverse=True)


def test_what_is_not_there_or_not_allowed_is_exit_code_1(dev: Dev) -> None:
    dev.headrace("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    ended_id = dev.newest("good")
    for arguments in [
        ("executions", "show", NOBODY),
        ("executions", "show", "../../readyz"),
        ("executions", "show", ended_id, "nothing"),
        ("executions", "watch", NOBODY),
        ("executions", "cancel", ended_id),
        ("executions", "retry", ended_id),
        ("why", NOBODY),
        ("why", ended_id, "nothing"),
        ("dlq", "show", NOBODY),
        ("dlq", "retry", NOBODY),
        ("dlq", "drop", NOBODY),
        ("workflows", "show", "nothing"),
        ("workflows", "show", "good", "--version", "99"),
    ]:
        ended = dev.headrace(*arguments)
        assert (ended.returncode, ended.stdout) == (1, ""), arguments
        assert re.match("headrace: .+", ended.stderr), arguments
    for arguments in [
        ("executions", "list", "--status", "ODD"),
        ("dlq", "retry"),
        ("executions", "list", "--since", "x"),
    ]:
        assert dev.headrace(*arguments).returncode == 2, arguments


# headrace dlq, workers, queues, workflows


def test_dead_letters_are_shown_retried_and_dropped(dev: Dev) -> None:
    file = dev.write("letters.yaml", FAILS.replace("name: fails", "name: letters"))
    for _ in range(3):
        dev.headrace("run", file, "--server", dev.url)
    letters = dev.json("dlq", "list", "--workflow", "letters")["items"]
    assert len(letters) == 3
    first, second, third = (letter["id"] for letter in letters)
    shown = dev.headrace("dlq", "show", first)
    assert letters[0]["execution_id"] in shown.stdout and '"attempts"' in shown.stdout
    assert dev.json("dlq", "show", first)["task"]["id"] == "a"

    (dev.folder / "mended").touch()
    try:
        retried = dev.headrace("dlq", "retry", first)
        assert (retried.returncode, retried.stdout) == (0, f"{letters[0]['execution_id']}: run 2 starts\n")
        assert dev.headrace("executions", "watch", letters[0]["execution_id"]).returncode == 0
        assert dev.headrace("dlq", "drop", second).returncode == 0
        assert dev.headrace("dlq", "drop", second).returncode == 1
        rest = dev.json("dlq", "retry", "--workflow", "letters")
        assert [each["execution_id"] for each in rest["retried"]] == [letters[2]["execution_id"]]
        assert dev.headrace("executions", "watch", letters[2]["execution_id"]).returncode == 0
    finally:
        (dev.folder / "mended").unlink()
    assert dev.json("dlq", "list", "--workflow", "letters")["items"] == []
    known = {each["id"]: each["status"] for each in dev.json("dlq", "list", "--status", "all")["items"]}
    assert (known[first], known[second], known[third]) == ("RETRIED", "DROPPED", "RETRIED")


def test_a_retry_goes_on_with_what_is_complete(dev: Dev) -> None:
    dev.headrace("run", dev.write("fails.yaml", FAILS), "--server", dev.url)
    execution_id = dev.newest("fails")
    (dev.folder / "mended").touch()
    try:
        assert dev.headrace("executions", "retry", execution_id).stdout == f"{execution_id}: run 2 starts\n"
        assert dev.headrace("executions", "watch", execution_id).returncode == 0
    finally:
        (dev.folder / "mended").unlink()
    assert "fails v1: COMPLETED, run 2" in dev.headrace("executions", "show", execution_id).stdout


def test_a_complete_execution_is_run_again_from_a_node(dev: Dev) -> None:
    dev.headrace("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    execution_id = dev.newest("good")
    nodes = [each["id"] for each in dev.json("executions", "show", execution_id)["nodes"]]
    refused = dev.headrace("executions", "retry", execution_id, "--from", nodes[-1], "--from", "nobody")
    assert refused.returncode == 2 and "there is no node nobody" in refused.stderr
    retried = dev.headrace("executions", "retry", execution_id, "--from", nodes[-1], "--from", nodes[-1])
    assert retried.stdout == f"{execution_id}: run 2 starts\n"
    assert dev.headrace("executions", "watch", execution_id).returncode == 0
    ran = {each: len(dev.json("executions", "show", execution_id, each)["attempts"]) for each in nodes}
    assert ran == {each: 2 if each == nodes[-1] else 1 for each in nodes}


def test_workers_queues_and_workflows(dev: Dev) -> None:
    workers = dev.headrace("workers").stdout
    [worker] = dev.json("workers")["items"]
    assert worker["name"] in workers and "alive" in workers and fits(workers)
    assert set(worker["handlers"]) <= set(workers.replace(",", " ").split())
    dev.headrace("run", dev.write("good.yaml", GOOD), "--input", "who=Ada", "--server", dev.url)
    queued = {each["handler"]: each["depth"] for each in dev.json("queues")["items"]}
    assert queued.get("output", 0) == 0
    shown = dev.headrace("workflows", "show", "good")
    assert shown.stderr == "good v1\n"
    assert "good" in {each["name"] for each in dev.json("workflows", "list")["items"]}
    again = dev.json("run", dev.write("again.yaml", shown.stdout), "--input", "who=Bo", "--server", dev.url)
    assert (again["version"], again["output"]) == (1, {"text": "Hello Bo"})  # the same content is the same version


# Keys, and servers that are none


def test_keys_let_in_until_they_are_revoked(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        assert dev.headrace("keys", "list").stderr.startswith("There are none.")
        made = dev.headrace("keys", "create", "reader \x1b[31m", "--scope", "read")
        assert made.returncode == 2 and "printable" in made.stderr
        made = dev.headrace("keys", "create", "reader", "--scope", "read")
        reads = made.stdout.strip()
        assert re.fullmatch(r"hr_[\w-]{43}", reads) and reads not in made.stderr
        runs = dev.json("keys", "create", "runner", "--scope", "run", "--scope", "read")
        assert sorted(runs["scopes"]) == ["read", "run"]

        refused = wait_until(lambda: (ended := dev.headrace("workers")).returncode and ended)  # once the API has looked
        assert refused.returncode == 2
        assert "HEADRACE_API_KEY" in refused.stderr
        file = dev.write("good.yaml", GOOD)
        dev.environment["HEADRACE_API_KEY"] = reads
        assert dev.headrace("workers").returncode == 0
        refused = dev.headrace("run", file, "--input", "who=Ada", "--server", dev.url)
        assert (refused.returncode, reads in refused.stderr) == (2, False)
        dev.environment["HEADRACE_API_KEY"] = runs["key"]
        assert dev.headrace("run", file, "--input", "who=Ada", "--server", dev.url).returncode == 0

        listed = dev.headrace("keys", "list")
        assert fits(listed.stdout) and runs["id"] in listed.stdout and "hr_" not in listed.stdout
        assert dev.headrace("keys", "revoke", runs["id"]).returncode == 0
        assert dev.headrace("keys", "revoke", runs["id"]).returncode == 1
        wait_until(lambda: dev.headrace("workers").returncode == 2)
        assert [bool(key["revoked_at"]) for key in dev.json("keys", "list")["items"]] == [False, True]


def test_without_a_server_it_says_what_to_do(tmp_path: Path) -> None:
    nowhere = Dev(tmp_path)
    nowhere.write("good.yaml", GOOD)
    for arguments in [("executions", "list"), ("workers",), ("run", "good.yaml", "--server", nowhere.url)]:
        ended = nowhere.headrace(*arguments)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert f"cannot reach {nowhere.url}" in ended.stderr
        assert "headrace dev" in ended.stderr and "HEADRACE_SERVER" in ended.stderr


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", b"SSH-2.0-\x1b[31m\r\n", b"", b"\xff" * 99]
)
def test_a_server_of_another_kind_is_none(tmp_path: Path, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Dev(tmp_path, port=listener.getsockname()[1])
        process = other.popen("executions", "show", NOBODY)
        listener.settimeout(0.1)
        while process.poll() is None:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
        stdout, stderr = process.communicate(timeout=GIVE_UP_SECONDS)
    assert (process.returncode, stdout) == (3, "")
    assert "Traceback" not in stderr and "\x1b" not in stderr and "HEADRACE_SERVER" in stderr
