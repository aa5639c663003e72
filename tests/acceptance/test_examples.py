"""The examples: every command in examples/README.md is run as a user would, and must print what is written there.

So the table is the list of expected outputs. What the commands cannot show, further tests look at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text()
YAML = sorted(EXAMPLES.rglob("*.yaml"))

PORT = "8765"  # in the README; tests let the system choose one


@dataclass(frozen=True)
class Row:
    command: str
    output: str


def rows() -> list[Row]:
    """The lines of the table that have a command, and what it prints."""
    cells = r"^\| [^|]* \| `((?:[^`|]|\\\|)+)` \| `([^`]+)` \|$"
    found = re.findall(cells, README, flags=re.MULTILINE)
    return [Row(command.replace(r"\|", "|"), output) for command, output in found]


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Of the server of the HTTP examples."""
    arguments = [sys.executable, "examples/http/server.py"]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip().removeprefix("http://127.0.0.1:")
        server.terminate()


def run(command: str, home: Path, port: str = PORT) -> subprocess.CompletedProcess[str]:
    """A command of the README in a shell at the root of the project, as after `source .venv/bin/activate`."""
    if port != PORT:
        command = f"{command.replace(PORT, port)} --input server=http://127.0.0.1:{port}"
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HEADRACE_HOME": str(home),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.command) for row in rows()])
def test_every_command_prints_what_the_readme_says(row: Row, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    port = request.getfixturevalue("port") if PORT in row.command else PORT
    ended = run(row.command, tmp_path, port)
    told = ended.stdout + ended.stderr
    if row.output.startswith("exit code "):
        assert f"exit code {ended.returncode}" == row.output, told
        return
    assert ended.returncode == 0, told
    if row.output.startswith("{"):
        assert json.loads(ended.stdout) == json.loads(row.output)
        assert "COMPLETED" in ended.stderr
    else:
        assert row.output in ended.stdout.splitlines()[-1]


def test_every_example_is_in_the_table() -> None:
    run_there = set()
    for row in rows():
        folder = match[1] if (match := re.match(r"cd (\S+) && ", row.command)) else "."
        run_there |= {(ROOT / folder / word).resolve() for word in row.command.split() if word.endswith(".yaml")}
    assert run_there == set(YAML)
    scripts = [path for path in EXAMPLES.rglob("*.py") if '__name__ == "__main__"' in path.read_text()]
    assert all(f"python {path.relative_to(ROOT).as_posix()}" in README for path in scripts)
    lines = [line for line in README.splitlines() if line.startswith("|")]
    assert len(rows()) == len(lines) - 2, "a line of the table cannot be read"


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (EXAMPLES / link).exists(), link


@pytest.mark.parametrize("path", [pytest.param(path, id=path.relative_to(EXAMPLES).as_posix()) for path in YAML])
def test_an_example_begins_with_what_it_shows_and_how_to_run_it(path: Path) -> None:
    comment = re.match(r"(# .*\n(?:#   .*\n){1,2})name: ", path.read_text())
    assert comment is not None
    folder = path.parent if path.parent.name == "shop" else ROOT
    assert f"headrace run {path.relative_to(folder).as_posix()}" in comment[1]


def test_every_example_is_valid(tmp_path: Path) -> None:
    shop, others = EXAMPLES / "shop" / "workflow.yaml", [path.relative_to(ROOT) for path in YAML]
    others.remove(shop.relative_to(ROOT))
    modules = "--handlers examples.handlers --handlers examples.repaired"
    for command in (
        f"headrace validate {' '.join(map(str, others))} {modules}",
        f"cd {shop.parent} && headrace validate workflow.yaml --handlers handlers",
    ):
        ended = run(command, tmp_path)
        assert ended.returncode == 0, ended.stdout


def test_make_run_runs_an_example() -> None:
    makefile = (ROOT / "Makefile").read_text()
    example = re.search(r"^EXAMPLE \?= (\S+)$", makefile, flags=re.MULTILINE)
    command = re.search(r"headrace run \$\(EXAMPLE\) (.*)$", makefile, flags=re.MULTILINE)
    assert example is not None
    assert command is not None
    assert f"headrace run {example[1]} {command[1]}" in [row.command for row in rows()]


def test_loopback_is_refused_unless_it_is_allowed(port: str, tmp_path: Path) -> None:
    ended = run("headrace run examples/http/weather.yaml", tmp_path, port)
    assert ended.returncode == 1
    assert f"127.0.0.1 is a loopback address: to allow it, set HTTP_ALLOWED_HOSTS=127.0.0.1:{port}" in ended.stderr


@pytest.mark.parametrize("secret", ["", "HEADRACE_SECRET_DEMO=wrong-7f3a9c2e "], ids=["none", "wrong"])
def test_without_its_secret_the_example_fails(secret: str, port: str, tmp_path: Path) -> None:
    ended = run(f"{secret}HTTP_ALLOWED_HOSTS=127.0.0.1:{PORT} headrace run examples/http/secret.yaml", tmp_path, port)
    assert ended.returncode == 1
    assert ("401 Unauthorized" if secret else "set HEADRACE_SECRET_DEMO") in ended.stderr
    assert "wrong-7f3a9c2e" not in ended.stderr + ended.stdout


def test_the_secret_is_nowhere_in_the_whole_execution(port: str, tmp_path: Path) -> None:
    secret = "demo-7f3a9c2e"
    command = f"HEADRACE_SECRET_DEMO={secret} HTTP_ALLOWED_HOSTS=127.0.0.1:{PORT} headrace run --json"
    ended = run(f"{command} examples/http/secret.yaml", tmp_path, port)
    assert json.loads(ended.stdout)["status"] == "COMPLETED"
    assert secret not in ended.stdout + ended.stderr


def test_the_repaired_example_says_what_the_readme_says(tmp_path: Path) -> None:
    transcript = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL)
    assert transcript is not None
    assert run("python examples/repaired.py", tmp_path).stdout == transcript[1]


def test_a_thousand_nodes(tmp_path: Path) -> None:
    ended = run("python examples/thousand.py | headrace validate - --handlers examples.thousand", tmp_path)
    assert ended.stdout == "<stdin>: ok, 1,000 nodes\n"
