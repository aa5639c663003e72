"""`make bench`: speed and growth, as ratios to the bare bus in the same run.

Rounds of all workloads and of the floor are interleaved, and medians are taken, because machines are shared and noisy.
The whole service, over HTTP and with its record, is measured once on each database, as a share of the engine alone.
The table goes to stdout, all figures to bench/results/latest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from bench import floor, over_http, shapes
from bench.cluster import ROOT, Cluster, cluster
from headrace.process import run_loop

RESULTS = ROOT / "bench" / "results" / "latest.json"
GROWTH_SIZES = (10, 100, 1_000, 10_000)
LIVE_EXECUTIONS = (0, 10_000, 100_000)
OVER_HTTP = {"SQLite": over_http.on_sqlite, "PostgreSQL": over_http.on_postgresql}

Figures = dict[str, list[float]]
Row = tuple[str, str, str]


async def seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def diamonds_per_second(engine: Cluster, count: int) -> float:
    return count / await seconds(engine.run(shapes.diamond(), count))


async def hops_ms(engine: Cluster, length: int, count: int) -> list[float]:
    """From the start of a handler to the start of the next one's, in chains that run alone."""
    hops: list[float] = []
    definition = shapes.chain(length)
    names = [f"n{i}" for i in range(length)]
    for _ in range(count):
        ids = await engine.start(definition, 1)
        await engine.finished(ids, forget=False)
        texts = await engine.store.outputs(ids[0], names, most_bytes=1 << 30)
        at = [json.loads((texts or {})[name])["at"] for name in names]
        hops += [(after - before) / 1e6 for before, after in pairwise(at)]
    return hops


async def speed(engine: Cluster, rounds: int, scale: float) -> Figures:
    figures: Figures = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    fans = {width: shapes.fan(width) for width in (1_000, 10_000)}
    await engine.run(shapes.diamond(), 50)  # everything is loaded
    for _ in range(rounds):
        note("floor_batched_per_second", floor.batched_per_second(engine.url, round(20_000 * scale)))
        note("diamonds_per_second", await diamonds_per_second(engine, round(3_000 * scale)))
        note("floor_round_trip_ms", floor.single_round_trip_ms(engine.url, round(1_000 * scale)))
        hops = sorted(await hops_ms(engine, 20, round(30 * scale)))
        note("hop_p50_ms", hops[len(hops) // 2])
        note("hop_p99_ms", hops[len(hops) * 99 // 100])
        for width, definition in fans.items():
            note(f"fan_in_{width}_seconds", await seconds(engine.run(definition)))
    return figures


async def growth_by_size(engine: Cluster, rounds: int, total: int) -> Figures:
    """Microseconds per node, with the same number of nodes in fewer and larger executions."""
    graphs = {size: shapes.layers(size) for size in GROWTH_SIZES}
    figures: Figures = {}
    for _ in range(rounds):
        for size, definition in graphs.items():
            took = await seconds(engine.run(definition, max(1, total // size)))
            figures.setdefault(str(size), []).append(1e6 * took / (size * max(1, total // size)))
    return figures


async def growth_by_live(engine: Cluster, rounds: int, total: int, scale: float) -> tuple[Figures, float]:
    """Microseconds per node beside executions that live and wait; and what one of those takes in Valkey."""
    figures: Figures = {}
    live, empty = 0, await engine.memory_bytes()
    for wanted in LIVE_EXECUTIONS:
        more = round(wanted * scale) - live
        if more > 0:
            await engine.start(shapes.parked(), more)
            live += more
        for _ in range(rounds):
            took = await seconds(engine.run(shapes.diamond(), total // 5))
            figures.setdefault(str(live), []).append(1e6 * took / total)
    return figures, (await engine.memory_bytes() - empty) / max(live, 1)


def http_rows(figures: dict[str, over_http.Figures], engine_alone: float) -> list[Row]:
    rows: list[Row] = []
    for name, found in figures.items():
        rate = found["diamonds_per_second"]
        rows += [
            (
                f"diamonds over HTTP and archived, {name}",
                f"{rate:,.0f} /s",
                f"{rate / engine_alone:.0%} of the engine alone",
            ),
            ("  greatest lag of the archive", f"{found['greatest_lag_seconds']:.2f} s", ""),
        ]
    return rows


def table(
    speed_figures: Figures,
    by_size: Figures,
    by_live: Figures,
    bytes_each: float,
    by_http: dict[str, over_http.Figures],
) -> str:
    middle = {name: statistics.median(values) for name, values in speed_figures.items()}
    batched, single = middle["floor_batched_per_second"], middle["floor_round_trip_ms"]
    nodes = 5 * middle["diamonds_per_second"]
    rows = [
        ("floor: task round trips, batched", f"{batched:,.0f} /s", ""),
        ("floor: one round trip", f"{single:.2f} ms", ""),
        ("five-node diamonds", f"{middle['diamonds_per_second']:,.0f} /s", ""),
        ("  nodes", f"{nodes:,.0f} /s", f"{nodes / batched:.0%} of the floor"),
        (
            "20-node chain, per hop, p50",
            f"{middle['hop_p50_ms']:.2f} ms",
            f"{middle['hop_p50_ms'] / single:.1f} x floor",
        ),
        (
            "20-node chain, per hop, p99",
            f"{middle['hop_p99_ms']:.2f} ms",
            f"{middle['hop_p99_ms'] / single:.1f} x floor",
        ),
        ("fan-in 1 -> 1,000 -> 1", f"{middle['fan_in_1000_seconds']:.3f} s", ""),
        ("fan-in 1 -> 10,000 -> 1", f"{middle['fan_in_10000_seconds']:.3f} s", ""),
    ]
    for title, figures in (("nodes in a DAG", by_size), ("other live executions", by_live)):
        per_node = {name: statistics.median(values) for name, values in figures.items()}
        least = min(per_node.values())
        rows += [
            (f"{int(name):,} {title}", f"{value:.0f} us per node", f"{value / least:.2f} x the least")
            for name, value in per_node.items()
        ]
    rows.append(("a live execution in Valkey", f"{bytes_each:,.0f} bytes", ""))
    rows += http_rows(by_http, middle["diamonds_per_second"])
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{name:<{width}}  {figure:>16}  {ratio}".rstrip() for name, figure, ratio in rows)


async def main(rounds: int, scale: float) -> None:
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}; medians of {rounds} rounds\n")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        async with cluster(Path(folder) / "valkey") as engine:
            speeds = await speed(engine, rounds, scale)
            by_size = await growth_by_size(engine, rounds, round(10_000 * scale))
            by_live, bytes_each = await growth_by_live(engine, rounds, round(10_000 * scale), scale)
    by_http = {name: await on(round(1_500 * scale)) for name, on in OVER_HTTP.items()}
    print(table(speeds, by_size, by_live, bytes_each, by_http))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "cores": os.cpu_count(),
                "load_before": load,
                "load_after": os.getloadavg(),
                "speed": speeds,
                "us_per_node_by_dag_size": by_size,
                "us_per_node_by_live_executions": by_live,
                "bytes_per_live_execution": bytes_each,
                "over_http": by_http,
            },
            indent=2,
        )
    )
    print(f"\nload after: {os.getloadavg()[0]:.2f}; all figures: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each workload is run (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads (default 1.0)")
    arguments = parser.parse_args()
    run_loop(main(arguments.rounds, arguments.scale))
