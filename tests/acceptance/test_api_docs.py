"""docs/api.md, followed: its files are written, its commands run against a real `headrace dev`, its answers compared.

Shown answers are shortened by `…`, which stands for anything. Ids, keys and times differ from run to run: the first
time that one is shown it stands for what came instead, and from then on, also in commands, for the same. What only
reads is asked again until the answer fits, as a reader would; what changes something is asked once.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api.app import ROUTERS
from tests.acceptance import test_docs
from tests.acceptance.test_docs import ROOT, Block, blocks

PAGE = "docs/api.md"
SHOWN_ADDRESS = "http://127.0.0.1:8080"
STARTED_BY_US = "headrace dev --handlers shop\n"
FITS_WITHIN_SECONDS = 30.0
COMMAND_SECONDS = 60
CHANGES_SOMETHING = re.compile(r"curl .*( -d | -X | --data)|curl -iN|^(?!curl)")
REST = "…"

# What a reader's own server makes anew: execution ids and the like, API keys, ids of events. A time fits any time.
ANEW = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|hr_[\w-]{43}|\b[\w-]{12}\.\d+\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Mismatch(Exception):
    pass


class Names:
    """What stands on the page -> what it is here."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def in_command(self, text: str) -> str:
        return ANEW.sub(lambda found: self._known.get(found[0], found[0]), text)

    def check(self, shown: str, actual: str) -> None:
        new: list[str] = []
        match = re.fullmatch(self._pattern(shown, new), actual, re.DOTALL)
        if not match:
            raise Mismatch(f"the page shows {shown!r}, it is {actual!r}")
        self._known |= zip(new, match.groups(), strict=True)

    def _pattern(self, shown: str, new: list[str]) -> str:
        pattern, end = "", 0
        for found in re.finditer(f"{ANEW.pattern}|{TIME.pattern}|{REST}", shown):
            pattern += re.escape(shown[end : found.start()])
            end = found.end()
            if found[0] == REST:
                pattern += ".*"
            elif TIME.fullmatch(found[0]):
                pattern += TIME.pattern
            elif found[0] in self._known or found[0] in new:
                pattern += re.escape(self._known.get(found[0], found[0]))
            else:
                new.append(found[0])
                pattern += f"({ANEW.pattern})"
        return pattern + re.escape(shown[end:])


def parsed(shown: str) -> Any:
    """JSON in which `…` may be the last of an object's or a list's items."""
    text = re.sub(rf"{REST}(?=\s*\}})", f'"{REST}": 0', shown)
    return json.loads(re.sub(rf"{REST}(?=\s*\])", f'"{REST}"', text))


def compare(shown: Any, actual: Any, names: Names) -> None:
    match shown, actual:
        case dict(), dict():
            wanted = shown.keys() - {REST}
            if not (wanted <= actual.keys() if REST in shown else wanted == actual.keys()):
                raise Mismatch(f"the page shows the keys {sorted(wanted)}, there are {sorted(actual)}")
            for key in wanted:
                compare(shown[key], actual[key], names)
        case list(), list():
            items = [item for item in shown if item != REST]
            if not (len(items) <= len(actual) if REST in shown else len(items) == len(actual)):
                raise Mismatch(f"the page shows {len(items)} items, there are {len(actual)}: {actual}")
            for one, other in zip(items, actual, strict=False):
                compare(one, other, names)
        case str(), str():
            names.check(shown, actual)
        case float(), float():
            pass  # ages and the like
        case _:
            if shown != actual:
                raise Mismatch(f"the page shows {shown!r}, it is {actual!r}")


def compare_answer(shown: str, actual: str, names: Names) -> None:
    """Status, the headers that are shown, and the body: JSON, events, or text."""
    shown_head, _, shown_body = shown.partition("\n\n")
    head, _, body = actual.partition("\n\n")
    status, *headers = shown_head.strip().split("\n")
    actual_status, *actual_headers = head.split("\n")
    names.check(status, actual_status)
    there = dict(line.lower().split(": ", 1) for line in actual_headers)
    for name, value in (line.split(": ", 1) for line in headers):
        names.check(value.lower(), there.get(name.lower(), "(no such header)"))
    if there.get("content-type", "").startswith("text/event-stream"):
        compare_events(events(shown_body), events(body), names)
    elif shown_body.startswith(("{", "[")):
        compare(parsed(shown_body), json.loads(body), names)
    else:
        names.check(shown_body.strip(), body.strip())


def events(text: str) -> list[dict[str, str]]:
    frames = [frame for frame in text.strip().split("\n\n") if not frame.startswith(":")]
    return [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in frames]


def compare_events(shown: list[dict[str, str]], actual: list[dict[str, str]], names: Names) -> None:
    """The first is the first, the last is the last, and those between come in this order among others."""
    coming = iter(actual)
    for wanted in shown:
        compare_event(wanted, next(event for event in coming if _is_like(wanted, event, names)), names)
    if shown[0]["event"] != actual[0]["event"] or shown[-1]["event"] != actual[-1]["event"]:
        raise Mismatch(f"the page shows {[one['event'] for one in shown]}, it is {[one['event'] for one in actual]}")


def _is_like(shown: dict[str, str], actual: dict[str, str], names: Names) -> bool:
    try:
        compare_event(shown, actual, names)
    except Mismatch:
        return False
    return True


def compare_event(shown: dict[str, str], actual: dict[str, str], names: Names) -> None:
    if shown.keys() != actual.keys() or shown["event"] != actual["event"]:
        raise Mismatch(f"the page shows {shown}, it is {actual}")
    compare(parsed(shown["data"]), json.loads(actual["data"]), names)
    if "id" in shown:
        names.check(shown["id"], actual["id"])


class Reader:
    """Somebody who follows the page, in a folder of his own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = Names()
        self.address = SHOWN_ADDRESS
        self.environment = {
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.defpath}",
            "PYTHONPATH": str(ROOT),
            "HEADRACE_HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
        }

    def write(self, block: Block) -> None:
        name, _ = block.file
        (self.folder / name).write_text(block.text.replace(SHOWN_ADDRESS, self.address))

    def follow(self, command: str, shown: str) -> None:
        if given := re.fullmatch(r"([A-Z]+)=(\S+)", command):
            self.environment[given[1]] = self.names.in_command(given[2])
            return
        give_up = time.monotonic() + FITS_WITHIN_SECONDS
        while True:
            written = self._run(command)
            try:
                if command.startswith("curl"):
                    compare_answer(shown, written, self.names)
                else:
                    self.names.check(shown.strip(), written.strip())
            except Mismatch as error:
                if CHANGES_SOMETHING.search(command) or time.monotonic() > give_up:
                    pytest.fail(f"$ {command}\n{error}\nthe page shows\n{shown}\nit is\n{written}")
                time.sleep(0.1)
            else:
                return

    def _run(self, command: str) -> str:
        command = self.names.in_command(command).replace(SHOWN_ADDRESS, self.address)
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, timeout=COMMAND_SECONDS,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
            stderr=subprocess.DEVNULL if command.startswith("curl") else subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout.decode().replace("\r\n", "\n")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    if shutil.which("curl") is None:
        (tmp_path / "bin").mkdir()
        curl = tmp_path / "bin" / "curl"
        curl.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.curl "$@"\n')
        curl.chmod(0o755)
    return Reader(tmp_path)


@pytest.fixture
def dev(reader: Reader) -> Iterator[Reader]:
    """The page's server, with the page's handlers."""
    reader.write(next(block for block in blocks(PAGE) if block.kind == "python"))
    log = reader.folder / "dev.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "dev", "--handlers", "shop", "--port", "0"],
            cwd=reader.folder, env=reader.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        reader.address = _address(process, log)
        yield reader
    finally:
        process.terminate()
        process.wait(COMMAND_SECONDS)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    give_up = time.monotonic() + FITS_WITHIN_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        if found := re.search(r"^  API +(http://\S+) ", log.read_text(), re.MULTILINE):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command, on one line, with what it shows."""
    joined = Block(block.page, block.line, block.kind, re.sub(r" \\\n +", " ", block.text))
    return joined.commands


def test_every_command_answers_as_the_page_says(dev: Reader) -> None:
    dev.follow(f"curl -i {SHOWN_ADDRESS}/v1/handlers", 'HTTP/1.1 200 OK\n\n{"items": [{…}, {"name": "charge", …}, …]}')
    for block in blocks(PAGE):
        match block.kind:
            case "python" | "yaml":
                dev.write(block)
            case "console":
                for command, shown in commands(block):
                    dev.follow(command, shown)
            case "sh":
                assert block.text == STARTED_BY_US
            case _:
                pytest.fail(f"{PAGE}:{block.line}: what is a block of {block.kind!r}?")


def test_every_call_has_its_command() -> None:
    """Of every route of the API there is an example on the page."""
    asked = [
        (method, re.sub(r"\?.*", "", path))
        for block in blocks(PAGE)
        if block.kind == "console"
        for command, _ in commands(block)
        for method, path in _request(command)
    ]
    for router in ROUTERS:
        for route in router.routes:
            for method in getattr(route, "methods", ()):
                pattern = re.sub(r"\{\w+\}", "[^/]+", getattr(route, "path_format", ""))
                assert any(m == method and re.fullmatch(pattern, p) for m, p in asked), (
                    f"no example of {method} {pattern}"
                )


def _request(command: str) -> Iterator[tuple[str, str]]:
    words = shlex.split(command)
    if words[0] == "curl":
        url = next(word for word in words if word.startswith(SHOWN_ADDRESS))
        sends = any(word in ("-d", "--data-binary") for word in words)
        method = words[words.index("-X") + 1] if "-X" in words else "POST" if sends else "GET"
        yield method, url.removeprefix(SHOWN_ADDRESS)


@pytest.mark.parametrize("page", [PAGE, "docs/operations.md", "docs/security.md"])
def test_links_of_the_pages_about_the_service(page: str) -> None:
    test_docs.test_links_lead_somewhere(page)
