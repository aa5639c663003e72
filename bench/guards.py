"""`make bench-guards`: what each guard costs, by taking one away at a time in a scratch copy.

Rounds are interleaved, and each variant is compared with the engine as it is in the same round. What is measured this
way would lose or double work in a crash; it is never in the source.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import engine_alone
from bench.cluster import cluster
from bench.engine_alone import Figures, note
from bench.hops import quantiles
from bench.report import RESULTS, Row, load, save, table
from bench.scratch import DoesNotApply, Edit, edited, run
from headrace.process import run_loop

AS_IT_IS = "as it is"
GUARDS: dict[str, Sequence[Edit]] = {
    AS_IT_IS: (),
    "lease: a timer per attempt": (
        Edit("hot/lua/claim.lua", "set_timer(P, lease_ends, timer('L', X, name, attempt))", ""),
        Edit("hot/lua/report.lua", "stop_timer(P, 'L|' .. whose)", ""),
    ),
    "event: the outbox of the record": (
        Edit(
            "hot/lua/outbox.lua",
            "  local change = state .. TEXT[attempt] .. ' ' .. more\n",
            "  do return end\n  local change\n",
        ),
        Edit(
            "hot/lua/outbox.lua",
            "    if changes then\n      local count = #changes\n      if size",
            "    if not changes then write_field(P, X, '@m', pack_execution(X)) end\n"
            "    if changes then\n      local count = #changes\n      if size",
        ),
    ),
    "token: epoch, run and attempt are compared": (
        Edit("hot/lua/records.lua", " and X.epoch == epoch and X.run == run then", " then"),
        Edit("hot/lua/claim.lua", " and attempt == entries[i + 6] then", " then"),
        Edit("hot/lua/report.lua", " and attempt == items[at + 4] then", " then"),
        Edit("hot/lua/advance.lua", "  if attempt ~= items[at + 5] then return 0, true end\n", ""),
    ),
    "hints stay pending until their successor exists": (
        Edit(
            "hot/streams.py",
            '"BLOCK", self.block_ms, "STREAMS", self._key("results"',
            '"BLOCK", self.block_ms, "NOACK", "STREAMS", self._key("results"',
        ),
        Edit(
            "hot/lua/outbox.lua",
            "  if #hints == 0 then return end\n",
            "  do if #hints > 0 then call('XTRIM', P.results, 'MINID', '~', hints[#hints]) end return end\n",
        ),
    ),
    "append-only file": (Edit("embedded.py", '"appendonly": "yes"', '"appendonly": "no"'),),
}
COMPARED = {
    "diamonds_per_second": "diamonds/s",
    "hop_ms idle p50": "hop p50",
    "cpu_us_per_node Valkey": "Valkey per node",
}


async def measure(scale: float) -> None:
    """In the copy: one round, as JSON."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        async with cluster(Path(folder) / "valkey") as engine:
            await engine_alone.diamonds(engine, {}, round(500 * scale))
            await engine_alone.diamonds(engine, figures, round(4_000 * scale))
            hops = await engine_alone.hops_idle_ms(engine, max(1, round(20 * scale)))
            note(figures, **quantiles(hops, "hop_ms idle"))
    print(json.dumps({name: values[0] for name, values in figures.items()}))


def rounds(count: int, scale: float) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with ExitStack() as stack:
        sources = {}
        for name, edits in GUARDS.items():
            try:
                sources[name] = stack.enter_context(edited(edits))
            except DoesNotApply as error:
                print(f"{name}: does not apply: {error}", file=sys.stderr)
        for number in range(1, count + 1):
            for name, source in sources.items():
                note(found.setdefault(name, {}), **run("bench.guards", source, "--measure", "--scale", str(scale)))
            print(f"round {number}: load {load()}", file=sys.stderr, flush=True)
    return found


def rows(found: dict[str, Figures]) -> list[Row]:
    base = found[AS_IT_IS]
    made: list[Row] = [("without", *COMPARED.values())]
    for name, figures in found.items():
        cells = []
        for key in COMPARED:
            if name == AS_IT_IS:
                unit = "/s" if "second" in key else "ms" if "ms" in key else "us"
                cells.append(f"{statistics.median(figures[key]):,.2f} {unit}")
            else:
                ratios = [one / two for one, two in zip(figures[key], base[key], strict=True)]
                cells.append(f"{statistics.median(ratios):.2f} x")
        made.append((name, *cells))
    return table(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.guards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each variant is run (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads (default 1.0)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        run_loop(measure(given.scale))
    else:
        before = load()
        measured = rounds(given.rounds, given.scale)
        save(RESULTS / "guards", {"load_before": before, "guards": measured}, rows(measured))
