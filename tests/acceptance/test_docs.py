"""The pages that users follow, followed: their files are written, their commands run, and what they show compared.

A page is one walk through one folder, from its first block to its last. What a block is, its fence says:

    yaml, python   begins with `# name` and is the whole file of that name, or what is `added at the end` of it
    diff           begins with `# name` and changes that file, at the one place where it fits
    console        `$ command`, run by bash on a real terminal, and what then stands on the screen
    text           what stood on the screen at some moment of the console block before it
    sh             is not run; NOT_RUN has them all

`…` stands for anything that is left out. Times and ids differ from run to run, and are not compared.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.model.definition import RetryConfig
from headrace.model.retry import backoff_seconds
from headrace.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/quick-start.md", "docs/tutorial.md", "docs/how-to/retries.md")
NOT_RUN = {"make run", "make test", "make setup", "git clone ADDRESS headrace", "cd headrace"}
HEIGHT, WIDTH = 50, 100
GIVE_UP_SECONDS = 120
SPLIT = "--- headrace docs: next command ---"

VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d+\.\d+ ?s\b"), "0 s"),
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "⠋"),
    (re.compile(r" +"), " "),
]


@dataclass
class Block:
    page: str
    line: int
    kind: str
    text: str

    @property
    def file(self) -> tuple[str, bool]:
        """The name of the file that it is, and whether it is only the end of it."""
        match = re.match(r"# ([\w./-]+\.\w+)(, added at the end)?\n", self.text)
        assert match, f"{self.page}:{self.line}: a block of {self.kind} begins with the name of its file: # name"
        return match[1], bool(match[2])

    @property
    def below_name(self) -> str:
        return self.text.partition("\n")[2]

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each command with what it shows."""
        pieces = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)
        assert not pieces[0], f"{self.page}:{self.line}: a console block begins with a command: $ command"
        return list(zip(pieces[1::2], pieces[2::2], strict=True))


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])


@dataclass
class Screen:
    """What stands on a terminal that only Rich redraws: lines are erased from below, then written again."""

    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    frames: list[str] = field(default_factory=list)

    @classmethod
    def after(cls, written: str) -> Screen:
        screen, erasing = cls(), False
        for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|[^\x1b\r\n]+", written):
            erases = token in ("\x1b[1A", "\x1b[2K")
            if erases and not erasing:
                screen.frames.append(screen.text)
            erasing = erases
            screen._obey(token)
        return screen

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _obey(self, token: str) -> None:
        if token == "\x1b[1A":
            self.row -= 1
        elif token == "\x1b[2K":
            self.lines[self.row] = ""
        elif token == "\n":
            self.row += 1
            self.lines += [""] * (self.row == len(self.lines))
        elif not token.startswith("\x1b"):
            self.lines[self.row] += token


class Walk:
    """A folder like a fresh clone that is set up, and the folder in it where the page is at the moment."""

    def __init__(self, clone: Path) -> None:
        shutil.copy(ROOT / "pyproject.toml", clone)
        shutil.copytree(ROOT / "examples", clone / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        (clone / ".venv").symlink_to(sys.prefix)
        self._where = clone
        self._screens: list[Screen] = []
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(clone),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def follow(self, block: Block) -> None:
        match block.kind:
            case "yaml" | "python":
                self._write(block)
            case "diff":
                self._change(block)
            case "console":
                self._run(block)
            case "text":
                pattern = _pattern(block.text)
                frames = [frame for screen in self._screens for frame in screen.frames]
                assert any(pattern.search(_comparable(frame)) for frame in frames), "\n\n".join(frames)
            case "sh":
                assert set(block.text.splitlines()) <= NOT_RUN
            case _:
                pytest.fail(f"{block.page}:{block.line}: what is a block of {block.kind!r}?")

    def _write(self, block: Block) -> None:
        name, is_end = block.file
        blank = "\n\n" if block.kind == "python" else ""
        with (self._where / name).open("a" if is_end else "w") as file:
            file.write(blank + block.below_name if is_end else block.text)

    def _change(self, block: Block) -> None:
        name, _ = block.file
        lines = [line if line.strip() else " \n" for line in block.below_name.splitlines(keepends=True)]
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        text = (self._where / name).read_text()
        assert text.count(old) == 1, f"{block.page}:{block.line}: this is {text.count(old)} times in {name}\n{old}"
        (self._where / name).write_text(text.replace(old, new))

    def _run(self, block: Block) -> None:
        commands = block.commands
        self._screens = [Screen.after(written) for written in self._written([command for command, _ in commands])]
        for (command, shown), screen in zip(commands, self._screens, strict=True):
            actual = _comparable(screen.text)
            if not _pattern(shown).fullmatch(actual):
                pytest.fail(f"{block.page}:{block.line}: $ {command}\nthe page shows\n{shown}\nit is\n{screen.text}")

    def _written(self, commands: list[str]) -> list[str]:
        """What each command writes to its terminal. `$?` goes from one to the next, the folder to the next block."""
        step = f'\nstatus=$?; echo "{SPLIT}"; (exit $status)\n'
        script = f"{step.join(commands)}\npwd >&3"
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (HEIGHT, WIDTH))
        end, end_written = os.pipe()
        bash = subprocess.Popen(
            ["bash", "-c", f"exec 3>&{end_written}\n{script}"], cwd=self._where, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, pass_fds=[end_written], start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(end_written)
        written = bytearray()
        reader = threading.Thread(target=_read_all, args=(ours, written))
        reader.start()
        try:
            bash.wait(GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(bash.pid, signal.SIGKILL)
            raise
        finally:
            reader.join(GIVE_UP_SECONDS)
            os.close(ours)
        with os.fdopen(end) as told:
            self._where = Path(told.read().strip())
        return written.decode().replace("\r", "").split(f"{SPLIT}\n")


def _read_all(descriptor: int, into: bytearray) -> None:
    while True:
        try:
            into += os.read(descriptor, 1 << 16)
        except OSError:  # nobody has the other side open any more
            return


def _comparable(text: str) -> str:
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(re.escape(_comparable(shown)).replace("…", ".*"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_is_what_happens(page: str, tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    for block in blocks(page):
        walk.follow(block)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / path) if path else ROOT / page
        assert file.exists(), f"{page}: there is no {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page}: {path} has no heading #{anchor}"


RETRIES = (ROOT / "docs/how-to/retries.md").read_text()


def test_the_defaults_on_the_page_about_retries() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\w.]+) \| `(RETRY_\w+)` \|$", RETRIES, re.MULTILINE)
    fields = {setting.alias: setting.default for setting in Settings.model_fields.values()}
    assert [(name, setting) for name, _, setting in rows] == [
        (name, f"RETRY_{name.upper()}") for name in RetryConfig.__struct_fields__
    ]
    assert [default for _, default, _ in rows] == [str(fields[setting]).lower() for _, _, setting in rows]


def test_the_waits_on_the_page_about_retries() -> None:
    row = re.search(r"^\| seconds \|(.*)\|$", RETRIES, re.MULTILINE)
    assert row
    policy = RetryConfig(max_retries=3, initial_delay=1.0, max_delay=60.0, exponential_base=2.0, jitter=False)
    told = [float(cell) for cell in row[1].split("|")]
    assert told == [backoff_seconds(policy, retries, chance=0.3) for retries in range(len(told))]
