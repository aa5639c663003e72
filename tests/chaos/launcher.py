"""The supervisor's end of role.py: a warm process for one version of the engine, asked to fork roles."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import headrace

ROOT = Path(__file__).parent.parent.parent


class Launcher:
    """Roles live as long as it does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    @classmethod
    async def start(cls, source: Path, log: Path) -> Launcher:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.chaos.role"), env=environment, cwd=ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        made = cls(process)
        assert await made._line() == "warm", f"the launcher did not start: see {log}"
        return made

    async def fork(self, order: dict[str, object]) -> int:
        assert self._process.stdin is not None
        async with self._asking:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._line())

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def aclose(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


def version(folder: Path, number: int) -> Path:
    """The same engine with a function library of its own: a comment makes another hash, and so other names. It is a
    copy, so that nobody who works on the source disturbs the run."""
    shutil.copytree(Path(headrace.__file__).parent, folder / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    prelude = folder / "headrace" / "hot" / "lua" / "prelude.lua"
    prelude.write_text(prelude.read_text() + f"\n-- version {number}\n")
    return folder
