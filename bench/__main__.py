"""`make bench`: speed, latency and growth, as ratios to the bare bus in the same run; `make bench-full` adds the rest.

Rounds of all workloads and of the floor are interleaved, and medians are taken, because machines are shared and noisy:
compare ratios, not runs. The table goes to stdout, with all figures to bench/results.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from bench import engine_alone, judge, large, over_http, soak
from bench.cluster import cluster
from bench.engine_alone import Figures, note
from bench.hops import CHAIN_LENGTH, mean_hop_ms
from bench.report import RESULTS, load, save
from headrace.process import run_loop

DATABASES = ("SQLite", "PostgreSQL")


def told(part: str) -> None:
    print(f"{part}: load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)


async def short(rounds: int, scale: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        async with cluster(Path(folder) / "valkey") as engine:
            told("the engine alone")
            engine_figures = await engine_alone.speed(engine, rounds, scale)
            told("live executions")
            engine_figures |= await engine_alone.beside_live(engine, scale)
    by_http: dict[str, Figures] = {kind: {} for kind in DATABASES}
    for _ in range(max(1, rounds // 2 + 1)):
        for kind, figures in by_http.items():
            told(f"over HTTP, {kind}")
            async with over_http.service(kind) as service:
                note(figures, **await service.diamonds(round(4_000 * scale)))
                note(figures, hop_ms=mean_hop_ms(await service.chain(CHAIN_LENGTH)))
                note(figures, **{"fan_seconds 1000": await service.fan_seconds(round(1_000 * scale))})
    return {"engine": engine_figures, "http": by_http}


async def full(scale: float, soak_minutes: float, found: dict[str, object]) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        async with cluster(Path(folder) / "valkey") as engine:
            told("large DAGs")
            figures = await large.dags(engine, scale)
            told("live executions up to 2 GiB")
            figures |= await large.live(engine, scale)
    history = {}
    for kind in DATABASES:
        told(f"history, {kind}")
        history[kind] = await large.history(kind, scale)
    result: dict[str, object] = {**found, "large": figures, "history": history}
    if soak_minutes:
        rate = judge.middle(judge.over_http(found, "SQLite"))["diamonds_per_second"] / 2
        told(f"soak of {soak_minutes:g} minutes")
        samples = await soak.soak("SQLite", soak_minutes, rate, round(soak.LIVE * scale))
        result["soak"] = {"minutes": soak_minutes, "samples": samples, "growth": soak.growth(samples)}
    return result


async def main(rounds: int, scale: float, soak_minutes: float | None) -> None:
    before = load()
    print(f"{os.cpu_count()} cores, load {before}; medians of {rounds} rounds", file=sys.stderr)
    found = await short(rounds, scale)
    if soak_minutes is not None:
        found = await full(scale, soak_minutes, found)
    name = "trial" if scale != 1 else "latest" if soak_minutes is None else "full"
    save(RESULTS / name, {"rounds": rounds, "scale": scale, "load_before": before, **found}, judge.rows(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each workload is run (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads (default 1.0)")
    parser.add_argument("--full", action="store_true", help="also large DAGs, full memory, history and the soak")
    parser.add_argument("--soak", type=float, default=10.0, help="minutes of soak, with --full; 0: none (default 10)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and all that was started ends
    run_loop(main(given.rounds, given.scale, given.soak if given.full else None))
