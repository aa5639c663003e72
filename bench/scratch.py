"""The engine with something changed, in a scratch copy that is gone afterwards: the source itself is never touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.cluster import ROOT, SOURCE

GIVE_UP_SECONDS = 300.0


class Edit(NamedTuple):
    """In this file of the package, this text, which is there once, becomes that."""

    file: str
    old: str
    new: str


class DoesNotApply(Exception):
    """The text is no longer there: the edit has to follow the source."""


@contextmanager
def edited(edits: Sequence[Edit]) -> Iterator[Path]:
    """A folder to be put on PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="headrace-scratch-") as name:
        package = Path(name, "headrace")
        shutil.copytree(SOURCE / "headrace", package, ignore=shutil.ignore_patterns("__pycache__", "static"))
        for edit in edits:
            text = (package / edit.file).read_text()
            if text.count(edit.old) != 1:
                raise DoesNotApply(f"{edit.file}: {edit.old.strip().splitlines()[0]}")
            (package / edit.file).write_text(text.replace(edit.old, edit.new))
        yield Path(name)


def run(module: str, source: Path, *arguments: str) -> Any:
    """What this module prints as JSON, with the package of that folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=GIVE_UP_SECONDS
    )
    return json.loads(done.stdout)
