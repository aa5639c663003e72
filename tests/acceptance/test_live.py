"""`headrace run` on a terminal: a real process on a real pseudo-terminal, and the bytes that arrive there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.roles import GIVE_UP_SECONDS, until

HEIGHT, WIDTH = 24, 80

HANDLERS = r"""
import asyncio, logging, os, pathlib, subprocess, sys
from headrace import handler, Fatal, Retry

@handler("quick")
async def quick(config: dict):
    return {"usage": {"total_tokens": 21}, **config}

@handler("flaky")
async def flaky(config: dict, ctx):
    if ctx.attempt == 1:
        raise Retry("busy for a moment", after=2.5)
    return {}

@handler("wait")
async def wait(config: dict):
    pathlib.Path(config["started"]).touch()
    await asyncio.sleep(600)

@handler("deaf")
async def deaf(config: dict):
    pathlib.Path(config["started"]).touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

EVIL = "\x1b]0;evil title\x07 \x1b[2J\x9b31m [red]no markup[/red]"

@handler("broken")
def broken(config: dict):
    raise Fatal("first line\nsecond line " + EVIL)

@handler("chatty")
async def chatty(config: dict, ctx):
    print("on stdout", EVIL)
    print("on stderr", EVIL, file=sys.stderr)
    ctx.log.warning("a warning", evil=EVIL)
    subprocess.run(["sh", "-c", "echo from a child; printf 'unfinished line' >&2"])
    print("much\n" * 20_000)  # more than a pipe holds
    return {}

@handler("isolated", isolation="process")
def isolated(config: dict):
    os.write(1, b"from an isolated process\n")
    return {}
"""


class Terminal:
    """A `headrace run` whose stderr, and stdout unless it is given, is a terminal; and what was written there."""

    def __init__(
        self, folder: Path, document: dict[str, Any], *arguments: str, stdout: int | None = None, **environment: str
    ) -> None:
        (folder / "own.py").write_text(HANDLERS)
        (folder / "w.json").write_text(json.dumps(document))
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (HEIGHT, WIDTH))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", "w.json", "--handlers", "own", *arguments],
            cwd=folder, stdin=slave, stdout=slave if stdout is None else stdout, stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        os.close(slave)
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        return self._written.decode(errors="replace")

    def ended(self) -> str:
        """All that was written, once the process has ended."""
        self.process.wait(GIVE_UP_SECONDS)
        self._reader.join(GIVE_UP_SECONDS)
        return self.text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(GIVE_UP_SECONDS)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # nobody has the other side open any more
                return
            if not data:
                return
            self._written += data


Run = Callable[..., Terminal]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    terminals: list[Terminal] = []

    def start(
        *nodes: dict[str, Any], arguments: tuple[str, ...] = (), stdout: int | None = None, **environment: str
    ) -> Terminal:
        document = {"name": "w", "nodes": list(nodes)}
        terminals.append(Terminal(tmp_path, document, *arguments, stdout=stdout, **environment))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def node(name: str, handler: str, *parents: str, **config: Any) -> dict[str, Any]:
    return {"id": name, "handler": handler, "dependencies": list(parents), "config": config}


def plain(text: str) -> str:
    """Without the escape sequences that Rich writes: styles, cursor up, erase line, cursor on and off."""
    return re.sub(r"\x1b\[([0-9;]*m|1A|2K|\?25[lh])", "", text).replace("\r", "")


def final(text: str) -> str:
    """What is left on the screen: whatever follows the last time that lines were erased."""
    return plain(text.rpartition("\x1b[2K")[2])


def assert_harmless(text: str) -> None:
    assert re.findall(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", plain(text)) == []
    assert "evil title" not in text or r"\x1b]0;evil title\x07 \x1b[2J\x9b31m [red]no markup[/red]" in text


def test_a_run_is_drawn_and_its_end_stays(run: Run) -> None:
    terminal = run(node("first", "quick"), node("again", "flaky", "first"), node("done", "output", "again", x=1))
    text = terminal.ended()
    assert terminal.process.returncode == 0
    assert re.search(r"next attempt in [012]\.", text)
    assert "Retry: busy for a moment" in plain(text)
    shown = final(text)
    for line in ("✓ first", "✓ again", "after 2 attempts", "✓ done"):
        assert line in shown
    assert re.search(r"✓ COMPLETED {2}3 of 3 nodes completed in \d+\.\d\d s, 1 retry, 21 tokens", shown)
    assert json.loads(shown[shown.index("{") :]) == {"x": 1}, "the output follows"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is back"


def test_a_failure_is_told_in_full_and_stays(run: Run) -> None:
    terminal = run(node("bad", "broken"), node("child", "quick", "bad"))
    text = terminal.ended()
    assert terminal.process.returncode == 1
    assert_harmless(text)
    shown = final(text)
    assert "  Fatal: first line\n  second line" in shown
    assert "skipped: bad failed" in shown
    assert "✗ FAILED  0 of 2 nodes completed" in shown
    assert "Change node bad" in shown


def test_what_handlers_print_appears_once_above_the_view(run: Run) -> None:
    terminal = run(node("a", "chatty"), node("b", "isolated", "a"), node("c", "output", "b"))
    text = terminal.ended()
    assert terminal.process.returncode == 0
    assert_harmless(text)
    shown = plain(text)
    for line in ("on stdout", "on stderr", "a warning", "from a child", "unfinished line", "from an isolated process"):
        assert shown.count(line) == 1, line
    assert shown.count("much\n") == 20_000
    assert "from an isolated process" not in final(text)


def test_stdout_that_leads_elsewhere_is_left_alone(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        terminal = run(node("a", "chatty"), node("b", "output", "a", x="\x9b2J"), stdout=out.fileno())
        text = terminal.ended()
    assert terminal.process.returncode == 0
    assert "✓ COMPLETED" in text
    assert "on stdout" not in text
    written = (tmp_path / "out").read_text()
    assert "on stdout" in written and "from a child" in written  # in whatever order two processes come
    assert written.endswith('{\n  "x": "\\u009b2J"\n}\n')
    assert "✓" not in written


def test_json_on_a_terminal_has_no_view(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        terminal = run(node("a", "chatty"), node("b", "isolated", "a"), arguments=("--json",), stdout=out.fileno())
        text = terminal.ended()
    assert json.loads((tmp_path / "out").read_text())["status"] == "COMPLETED"
    assert "on stdout" in text, "what handlers print goes to stderr"
    assert "✓" not in text


@pytest.mark.parametrize("setting", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_simple_terminals(setting: dict[str, str], run: Run) -> None:
    text = run(node("a", "quick"), **setting).ended()
    assert "COMPLETED" in text
    if "NO_COLOR" in setting:
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)
    else:
        assert "\x1b" not in text


def test_a_large_graph_never_takes_more_than_the_screen(run: Run) -> None:
    many = [node(f"n{i}", "quick", "start") for i in range(1000)]
    terminal = run(node("start", "quick"), *many, node("done", "output", *(one["id"] for one in many)))
    text = terminal.ended()
    assert terminal.process.returncode == 0
    redrawn = [len(ups) // len("\x1b[1A\x1b[2K") for ups in re.findall(r"(?:\x1b\[1A\x1b\[2K)+", text)]
    assert redrawn
    assert max(redrawn) < HEIGHT
    assert "1,002 of 1,002 nodes completed" in final(text)
    assert len(final(text).splitlines()) < HEIGHT


@pytest.mark.parametrize("handler", ["wait", "deaf"])
async def test_ctrl_c_cancels_and_says_so(handler: str, run: Run, tmp_path: Path) -> None:
    started = tmp_path / "started"
    terminal = run(node("a", handler, started=str(started)), node("b", "quick", "a"))
    await until(started.exists, "the handler runs")
    await until(lambda: "running" in terminal.text, "it is on the screen")
    terminal.process.send_signal(signal.SIGINT)
    text = await asyncio.to_thread(terminal.ended)
    assert terminal.process.returncode == 130
    assert "⊘ CANCELLED  0 of 2 nodes completed" in final(text)
    assert "cancelled before it started" in final(text)


async def test_a_second_ctrl_c_ends_at_once_and_leaves_the_cursor(run: Run, tmp_path: Path) -> None:
    started = tmp_path / "started"
    terminal = run(node("a", "deaf", started=str(started)))
    await until(started.exists, "the handler runs")
    terminal.process.send_signal(signal.SIGINT)
    await until(lambda: "Ctrl-C again" in terminal.text, "the first one is noticed")
    terminal.process.send_signal(signal.SIGINT)
    text = await asyncio.to_thread(terminal.ended)
    assert terminal.process.returncode == 130
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
