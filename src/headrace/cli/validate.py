"""`headrace validate`: everything that is wrong with some definition files, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace import logs
from headrace.cli.definitions import Checked, check_file, specs, told
from headrace.cli.startup import USAGE, load_registry, load_settings


def validate_files(files: Sequence[Path], modules: Sequence[str], *, json_output: bool) -> int:
    logs.configure("warning")
    settings = load_settings()
    handlers = specs(load_registry([*settings.worker_handlers, *modules], settings))
    is_valid, answers = True, []
    for file in files:
        checked = check_file(file, handlers, settings.max_nodes)
        is_valid = is_valid and checked.definition is not None
        if json_output:
            answers.append(_as_json(checked))
        else:
            _print(checked)
    if json_output:
        print(msgspec.json.format(msgspec.json.encode({"valid": is_valid, "files": answers})).decode())
    return 0 if is_valid else USAGE


def _print(checked: Checked) -> None:
    if checked.definition is not None:
        count = len(checked.definition.nodes)
        print(f"{checked.name}: ok, {count:,} node{'s' * (count != 1)}")
    for line in told(checked, with_excerpts=sys.stdout.isatty()):
        print(line)


def _as_json(checked: Checked) -> dict[str, Any]:
    return {
        "file": checked.name,
        "valid": checked.definition is not None,
        "name": checked.definition and checked.definition.name,
        "nodes": checked.definition and len(checked.definition.nodes),
        "errors": [
            {
                "code": problem.code,
                "msg": problem.message,
                "loc": problem.loc,
                "node": problem.node,
                "line": problem.line,
                "column": problem.column,
            }
            for problem in checked.problems
        ],
    }
