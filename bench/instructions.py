"""`make bench-instructions`: how many instructions Valkey executes per node, by function, and without each guard.

Counted by valgrind, which has to be installed. Unlike times, these figures hardly depend on the machine's load: two
runs differ by about one percent. One process drives diamonds through the store's functions, a batch at a time, and
counts around each call.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import guards, shapes
from bench.engine_alone import DIAMOND_NODES
from bench.over_http import until
from bench.report import RESULTS, Row, load, save, table
from bench.scratch import DoesNotApply, edited, run
from headrace.embedded import EmbeddedValkey, find_server
from headrace.engine.engine import Engine
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.state import ExecutionState
from headrace.process import run_loop
from headrace.settings import Settings
from headrace.worker.next_steps import NextSteps

TOGETHER = 150  # diamonds
BATCH = 200
READY_WITHIN_SECONDS = 60.0
OUTPUT = '{"at":1234567890123456}'


class Counted:
    """Wraps the calls of a store; what runs between two dumps of callgrind is one call's."""

    def __init__(self, store: HotStore, server: subprocess.Popen[bytes], folder: Path) -> None:
        self.by_function: Counter[str] = Counter()
        self.is_counting = False
        self._server, self._folder = server, folder
        for link in (store._link, store._blocking):
            link.call = self._wrapped(link.call)  # type: ignore[method-assign]

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*command: Any) -> Any:
            if not self.is_counting:
                return await call(*command)
            self._dump()
            answer = await call(*command)
            name = command[1].rpartition("_")[2] if command[0] == "FCALL" else command[0]
            self.by_function[name] += self._dump()
            return answer

        return counted

    def _dump(self) -> int:
        """Instructions since the last time."""
        subprocess.run(["callgrind_control", "-d", str(self._server.pid)], capture_output=True, check=True)
        total = 0
        for path in self._folder.glob("counts.*"):
            found = re.search(r"^(?:summary|totals): (\d+)", path.read_text(errors="replace"), re.MULTILINE)
            total += int(found[1]) if found else 0
            path.unlink()
        return total


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The embedded server with its own options, under valgrind."""
    valkey = EmbeddedValkey(folder)
    count = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts.%p"]
    command = [*count, str(find_server()), *valkey._options(folder / "valkey.log")]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield valkey.url, server
    finally:
        server.terminate()
        server.wait()


async def _prepared(store: HotStore) -> None:
    async def ready() -> bool:
        try:
            await store.prepare()
        except StoreUnavailable:
            return False
        return True

    await until(ready, READY_WITHIN_SECONDS)
    await store.settle(0, await store.unsettled(0))


async def _diamonds(store: HotStore, engine: Engine, steps: NextSteps) -> None:
    """From the start to forgotten, in batches, without any waiting: the worker takes every step itself."""
    diamond = shapes.diamond()
    ids = await engine.start_many(diamond, [{}] * TOGETHER)
    await steps._plans.get(0, diamond.content_hash)
    done = 0
    while done < TOGETHER * DIAMOND_NODES:
        tasks, _ = await store.claim(0, "worker", BATCH, 15_000, ["noop"])
        await store.report(
            0, [report for task in tasks if (report := steps.report(task.token, task.definition, OUTPUT))]
        )
        done += len(tasks)
    events = await store.read_events(0, "0-0", 100_000, block=False)
    ended = {e.execution_id: (e.execution_id, e.epoch, at) for at, e in events if e.status == ExecutionState.COMPLETED}
    if ended.keys() != set(ids) or len(await store.forget(0, [*ended.values()], definition_ttl_seconds=60)) < len(ids):
        raise RuntimeError("not all diamonds have ended")
    await store.trim_events(0, events[-1][0])


async def measure() -> None:
    """In the copy: thousand instructions per node by function, as JSON. The first round only loads everything."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, _server(Path(name)) as (url, server):
        store = HotStore(url, socket_timeout=120)
        try:
            await _prepared(store)
            counted = Counted(store, server, Path(name))
            engine, steps = Engine(store, Settings()), NextSteps(store, Settings())
            for counted.is_counting in (False, True):
                await _diamonds(store, engine, steps)
            nodes = TOGETHER * DIAMOND_NODES
            print(json.dumps({name: count / nodes / 1000 for name, count in counted.by_function.most_common()}))
        finally:
            await store.aclose()


def rows(found: dict[str, dict[str, float]]) -> list[Row]:
    base = found[guards.AS_IT_IS]
    total = sum(base.values())
    made: list[Row] = [("Valkey, thousand instructions per node", "", "")]
    made += [(name, f"{count:.1f}", f"{count / total:.0%}") for name, count in base.items() if count >= 0.05]
    made.append(("in all", f"{total:.1f}", ""))
    for name, by_function in found.items():
        if name != guards.AS_IT_IS:
            without = sum(by_function.values())
            made.append((f"without {name}", f"{without:.1f}", f"{without / total - 1:+.1%}"))
    return table(made)


def main() -> None:
    if not shutil.which("callgrind_control"):
        raise SystemExit("this needs valgrind: install it, and run this again")
    before, found = load(), {}
    for name, edits in guards.GUARDS.items():
        try:
            with edited(edits) as source:
                found[name] = run("bench.instructions", source, "--measure")
        except DoesNotApply as error:
            print(f"{name}: does not apply: {error}", file=sys.stderr)
    save(RESULTS / "instructions", {"load_before": before, "thousand_instructions_per_node": found}, rows(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().measure:
        run_loop(measure())
    else:
        main()
