"""`headrace validate`, `schema` and `init` as a user calls them, and the help that leads there."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from headrace.cli.definitions import Checked, told
from headrace.errors import Problem
from tests import forks

ROOT = Path(__file__).parent.parent.parent
GOOD = "name: good\nnodes:\n  - id: a\n    handler: output\n"
BAD = """\
name: bad
nodes:
  - id: start
    handler: input
  - id: b
    handler: outputt
    dependencies: [strat]
    config:
      text: "the city {{ start.city }}"
"""
SCRIPTS = Path(sys.executable).parent


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        env={**os.environ, "COLUMNS": "80", **environment}, check=False,
    )  # fmt: skip


def headrace(*arguments: str, cwd: Path, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80", **environment}
    ended = forks.headrace(*arguments, cwd=cwd, stdin=text.encode(), environment=environment)
    assert "Traceback" not in ended.stderr
    return ended


def test_validate_names_every_problem_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "trap.yaml").write_text("name: w\nnodes:\n  - {id: a, handler: output, config: {x: {{ input.y }}}}\n")
    ended = headrace("validate", "good.yaml", "bad.yaml", "trap.yaml", "nowhere.yaml", ".", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "good.yaml: ok, 1 node",
        "bad.yaml:6:5: node b: there is no handler outputt: did you mean output?",
        "bad.yaml:7:20: node b: there is no node strat to depend on: did you mean start?",
        "bad.yaml:9:26: node b: config.text: start is not an ancestor of b: add it to its dependencies",
        "Handlers of your own are loaded with --handlers MODULE.",
        'trap.yaml:3:42: a template needs quotes around it: write "{{ input.y }}"',
        "nowhere.yaml: cannot be read: no such file or directory",
        ".: cannot be read: is a directory",
    ]
    assert headrace("validate", "good.yaml", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "w.yaml:1:1: there is nothing in it"),
        (b"# only a comment\n", "w.yaml:1:1: there is nothing in it"),
        (b"name: w\nnodes: caf\xe9\n", "w.yaml:2:11: is not UTF-8 text (byte 0xe9)"),
        (b"\xff\xfen\x00", "w.yaml:1:1: is not UTF-8 text (byte 0xff)"),
        (b"name: w\nname: v\n", "w.yaml:2:1: the key name is there twice"),
        (b"name: w\nnodes:\n\t- id: a\n", "w.yaml:3:1: there is a tab"),
        (b'{"name": "w", "nodes": [}', "w.yaml:1:"),
    ],
)
def test_files_that_cannot_be_read(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_bytes(content)
    ended = headrace("validate", "w.yaml", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, "")
    assert ended.stdout.startswith(says)
    run = headrace("run", "w.yaml", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", ended.stdout)


def test_validate_reads_stdin_and_answers_in_json(tmp_path: Path) -> None:
    ended = headrace("validate", "-", "--json", cwd=tmp_path, text=BAD)
    assert ended.returncode == 2
    answer = json.loads(ended.stdout)
    [file] = answer["files"]
    assert (answer["valid"], file["valid"], file["file"], file["nodes"]) == (False, False, "<stdin>", None)
    assert file["errors"][0] == {
        "code": "unknown_handler",
        "msg": "there is no handler outputt: did you mean output?",
        "loc": ["nodes", 1, "handler"],
        "node": "b",
        "line": 6,
        "column": 5,
    }
    good = headrace("validate", "-", "--json", cwd=tmp_path, text=GOOD)
    assert json.loads(good.stdout) == {
        "valid": True,
        "files": [{"file": "<stdin>", "valid": True, "name": "good", "nodes": 1, "errors": []}],
    }


def test_on_a_terminal_the_line_is_shown_with_a_caret(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    ours, theirs = pty.openpty()
    ended = subprocess.run(
        [sys.executable, "-m", "headrace", "validate", "bad.yaml"],
        cwd=tmp_path,
        stdout=theirs,
        timeout=120,
        check=False,
    )
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        told = terminal.read(65_536).decode().splitlines()
    assert ended.returncode == 2
    line = next(number for number, text in enumerate(told) if text.startswith("bad.yaml:9:26:"))
    assert told[line + 1 : line + 3] == [
        '     9 |       text: "the city {{ start.city }}"',
        "       |                          ^",
    ]


def test_of_a_long_line_the_part_around_the_caret_is_shown() -> None:
    text = "a: [" + "x, " * 200 + "HERE" + ", y" * 200 + "]"
    problem = Problem("x", "wrong", line=1, column=text.index("HERE") + 1)
    told_lines = list(told(Checked("w.yaml", text, None, (problem,)), with_excerpts=True))
    assert told_lines[0] == "w.yaml:1:605: wrong"
    assert max(map(len, told_lines)) < 120
    assert told_lines[1][told_lines[2].index("^") :].startswith("HERE")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    shell = f"{sys.executable} -m headrace schema | true"
    ended = command("bash", "-c", shell, cwd=tmp_path)
    assert ended.stderr == ""


def test_own_handlers_are_known_where_they_are_loaded(tmp_path: Path) -> None:
    for arguments, code in (((), 2), (("--handlers", "examples.handlers"), 0)):
        ended = headrace("validate", "examples/linear.yaml", *arguments, cwd=ROOT, HEADRACE_HOME=str(tmp_path))
        assert ended.returncode == code
    missing = headrace("validate", "x.yaml", "--handlers", "no_such_module", cwd=tmp_path)
    assert missing.returncode == 2
    assert "no_such_module" in missing.stderr


def test_schema_knows_installed_and_own_handlers(tmp_path: Path) -> None:
    ended = headrace("schema", "--handlers", "examples.handlers", cwd=ROOT, HEADRACE_HOME=str(tmp_path))
    assert ended.returncode == 0
    schema = json.loads(ended.stdout)
    jsonschema_rs.meta.validate(schema)
    assert {"input", "output", "count_words"} <= set(schema["$defs"]["node"]["properties"]["handler"]["enum"])
    check = jsonschema_rs.Draft202012Validator(schema)
    node: dict[str, Any] = {"id": "a", "handler": "flaky", "config": {"fails": "{{ input.n }}"}}
    assert check.is_valid({"name": "w", "nodes": [node]})
    node["config"] = {"fails": "many"}
    assert not check.is_valid({"name": "w", "nodes": [node]})


def test_init_writes_a_project_that_works(tmp_path: Path) -> None:
    ended = headrace("init", "demo", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "demo"
    names = {".gitignore", "README.md", "handlers.py", "headrace.schema.json", "test_workflow.py", "workflow.yaml"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "workflow.yaml").read_text().startswith("# yaml-language-server: $schema=headrace.schema.json\n")
    assert re.findall(r"^wrote demo/(.*)$", ended.stdout, re.MULTILINE) == sorted(names)

    schema = headrace("schema", "--handlers", "handlers", cwd=folder)
    assert schema.stdout == (folder / "headrace.schema.json").read_text()

    _, _, printed = ended.stdout.partition("Next:\n")
    cd, *steps = (line.split() for line in printed.strip().splitlines())
    assert cd == ["cd", "demo"]
    assert [step[0] for step in steps] == ["headrace", "headrace", "pytest"]
    for program, *arguments in steps:
        done = command(str(SCRIPTS / program), *arguments, cwd=folder, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stdout + done.stderr


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("mine")
    (tmp_path / "workflow.yaml").symlink_to("nowhere")
    ended = headrace("init", cwd=tmp_path)
    assert ended.returncode == 2
    assert "handlers.py, workflow.yaml" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"handlers.py", "workflow.yaml"}
    assert (tmp_path / "handlers.py").read_text() == "mine"
    in_the_way = headrace("init", "handlers.py", cwd=tmp_path)
    assert in_the_way.returncode == 2
    assert "cannot write handlers.py" in in_the_way.stderr


COMMANDS = ("init", "run", "validate", "schema", "orchestrator", "worker")


def test_help_lists_the_commands(tmp_path: Path) -> None:
    told = headrace("--help", cwd=tmp_path).stdout
    assert all(re.search(rf"^  {name} +\w.*[^.]\.$", told, re.MULTILINE) for name in COMMANDS)
    assert headrace(cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_exit_codes_and_an_example(name: str, tmp_path: Path) -> None:
    told = headrace(name, "--help", cwd=tmp_path).stdout
    assert "Exit codes: 0" in told
    assert re.search(rf"^  Example: .*headrace {name}", told, re.MULTILINE)
    assert max(map(len, told.splitlines())) <= 82


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"pydantic", "jinja2", "rich", "httpx2", "ruamel.yaml", "structlog", "msgspec", "jsonschema_rs", "asyncio"}
    call = "sys.argv[1:] = ['--help']\ntry: main()\nfinally: print(heavy.intersection(sys.modules))"
    code = f"import sys\nfrom headrace.cli.main import main\nheavy = {heavy!r}\n{call}"
    ended = command(sys.executable, "-c", code, cwd=tmp_path)
    assert ended.stdout.splitlines()[-1] == "set()", ended.stderr
