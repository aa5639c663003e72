"""`headrace init`: a small project to begin with.

The files are in the folder `project` beside this module, as they will be written. Nothing is ever overwritten: if one
of them is there already, none is written.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from headrace.cli.schema import schema_text
from headrace.cli.startup import USAGE

PROJECT = Path(__file__).with_name("project")
HANDLERS = "headrace.cli.project.handlers"
SCHEMA = "headrace.schema.json"
NAMES = {"gitignore": ".gitignore"}  # under its own name it would hide files of this repository


def init_project(folder: Path) -> int:
    files = {NAMES.get(path.name, path.name): path.read_text("utf-8") for path in PROJECT.iterdir() if path.is_file()}
    files[SCHEMA] = schema_text([HANDLERS])
    try:
        if present := [str(folder / name) for name in sorted(files) if os.path.lexists(folder / name)]:
            print(f"headrace init: nothing written, for there is already {', '.join(present)}", file=sys.stderr)
            return USAGE
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in sorted(files.items()):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
            print(f"wrote {folder / name}")
    except OSError as error:
        print(f"headrace init: cannot write {error.filename or folder}: {error.strerror}", file=sys.stderr)
        return USAGE
    _print_next(folder)
    return 0


def _print_next(folder: Path) -> None:
    print("\nNext:")
    if folder.resolve() != Path.cwd():
        print(f"  cd {shlex.quote(str(folder))}")
    print("  headrace validate workflow.yaml --handlers handlers")
    print("  headrace run workflow.yaml --handlers handlers")
    print("  pytest")
