"""The processes that most tests start: a fork does what the command line does, and ends with its pytest."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.integration.test_embedded import is_running
from tests.roles import Process, until

SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
PARENT = """
import os, sys
from pathlib import Path
from tests.forks import Fork

nothing = open(os.devnull, "r+b")
print(Fork(["sleeper"], dict(os.environ), Path(sys.argv[1]), (nothing, nothing, nothing)).pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("no-such-command",), ("validate", "-"), ("run", "-", "--handlers", "own"), ("run", "nowhere.yaml")],
    ids=" ".join,
)
def test_it_does_what_the_command_line_does(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import os, sys\nprint(sys.argv, sys.path[0], os.environ['OWN'], os.getcwd())\n")
    text = b"name: w\nnodes: [{id: a, handler: nothing}]\n"
    environment = {**os.environ, "OWN": "its own", "COLUMNS": "80"}
    command = [sys.executable, "-m", "headrace", *arguments]
    real = subprocess.run(command, cwd=tmp_path, env=environment, input=text, capture_output=True, check=False)
    fork = forks.headrace(*arguments, cwd=tmp_path, environment=environment, stdin=text)
    assert (fork.returncode, fork.stdout, fork.stderr) == (real.returncode, real.stdout.decode(), real.stderr.decode())


async def test_it_is_a_process_of_its_own_that_can_be_killed(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    first, second = (Process(["sleeper"], {"PYTHONPATH": str(tmp_path)}, tmp_path / name) for name in ("one", "two"))
    await until(lambda: first.log.read_text() == second.log.read_text() == "here\n", "both to run")
    assert len({os.getpid(), first.pid, second.pid}) == 3
    with pytest.raises(subprocess.TimeoutExpired):
        first.process.wait(timeout=0.01)
    first.kill()
    assert (first.process.returncode, second.process.poll()) == (-signal.SIGKILL, None)
    second.send(signal.SIGINT)
    assert second.process.wait(timeout=60) == -signal.SIGINT
    assert "KeyboardInterrupt" in second.log.read_text()


async def test_it_ends_with_its_pytest(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    started = await asyncio.to_thread(subprocess.run, command, cwd=forks.ROOT, stdout=subprocess.PIPE)
    assert started.returncode == -signal.SIGKILL
    await until(lambda: not is_running(int(started.stdout)), "its end")
