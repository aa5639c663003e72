"""`make bench-inside`: where Valkey's one thread spends its time while diamonds run.

Each function of the library is timed by the server's own clock of CPU time, in a scratch copy in which all of them are
wrapped. The commands in them are what INFO commandstats says; their time is part of the functions'.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from bench import engine_alone, shapes
from bench.cluster import Cluster, cluster
from bench.engine_alone import DIAMOND_NODES
from bench.report import RESULTS, Row, load, save, table
from bench.scratch import Edit, edited, run
from bench.usage import CpuTime
from headrace.hot import library
from headrace.process import run_loop

TIMED = '''
SPENT_LUA = """
local SPENT = {}
local function timed(name, callback)
  local spent = {0, 0}
  SPENT[name] = spent
  return function(keys, args)
    local began = os.clock()
    local answer = callback(keys, args)
    spent[1], spent[2] = spent[1] + 1, spent[2] + os.clock() - began
    return answer
  end
end
local function spent() return cjson.encode(SPENT) end
"""


@cache
def _assembled'''
EDITS = (
    Edit("hot/library.py", "\n@cache\ndef _assembled", TIMED),
    Edit("hot/library.py", "callback = {name}, flags", "callback = timed('{name}', {name}), flags"),
    Edit("hot/library.py", '"\\n".join(parts)', '"\\n".join((SPENT_LUA, *parts))'),
    Edit("hot/library.py", '    "settle": ("allow-oom",),\n}', '    "settle": ("allow-oom",),\n    "spent": (),\n}'),
    Edit("hot/library.py", "(*SHARED, *FUNCTIONS)", '(*SHARED, *(name for name in FUNCTIONS if name != "spent"))'),
)


async def _functions(engine: Cluster) -> dict[str, list[float]]:
    """Function -> calls, seconds."""
    found: dict[str, list[float]] = json.loads(await engine.store._link.call("FCALL", library.function("spent"), 0))
    return found


async def _commands(engine: Cluster) -> dict[str, list[float]]:
    """Command -> calls, seconds."""
    info = (await engine.store._link.call("INFO", "commandstats")).decode()
    found = {}
    for line in info.splitlines():
        name, _, told = line.removeprefix("cmdstat_").partition(":")
        if told:
            values = dict(part.split("=") for part in told.split(","))
            found[name] = [float(values["calls"]), float(values["usec"]) / 1e6]
    return found


async def measure(count: int) -> None:
    """In the copy: what one node costs, as JSON."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        async with cluster(Path(folder) / "valkey") as engine:
            await engine.run(shapes.diamond(), 500)
            before, cpu = (await _functions(engine), await _commands(engine)), CpuTime(engine.pids)
            took = await engine_alone.seconds(engine.run(shapes.diamond(), count))
            nodes = count * DIAMOND_NODES
            used = cpu.us_per(nodes)
            after = await _functions(engine), await _commands(engine)
    parts = [
        {
            name: [
                (values[0] - earlier.get(name, [0, 0])[0]) / nodes,
                1e6 * (values[1] - earlier.get(name, [0, 0])[1]) / nodes,
            ]
            for name, values in later.items()
        }
        for earlier, later in zip(before, after, strict=True)
    ]
    wall = 1e6 * took / nodes
    print(json.dumps({"us_per_node": wall, "cpu_us_per_node": used, "functions": parts[0], "commands": parts[1]}))


def rows(found: dict[str, Any]) -> list[Row]:
    made: list[Row] = [("", "calls per 1,000 nodes", "us per node")]
    made.append(("Valkey's process", "", f"{found['cpu_us_per_node']['Valkey']:.1f}"))
    for title, part in (("function", "functions"), ("command", "commands")):
        ordered = sorted(found[part].items(), key=lambda item: -item[1][1])
        made += [
            (f"{title} {name}", f"{1000 * calls:,.0f}", f"{us:.1f}") for name, (calls, us) in ordered if us >= 0.05
        ]
    return table(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.inside", description=__doc__)
    parser.add_argument("--count", type=int, default=5_000, help="how many diamonds (default 5000)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        run_loop(measure(given.count))
    else:
        load_before = load()
        with edited(EDITS) as source:
            measured = run("bench.inside", source, "--measure", "--count", str(given.count))
        save(RESULTS / "inside", {"load_before": load_before, **measured}, rows(measured))
