"""What the figures of a run say: medians, their ratios to each other, and the goals that they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from bench.engine_alone import DIAMOND_NODES, Figures
from bench.report import Row, table

HEAD: Row = ("", "median", "ratio", "goal", "met")
PLACES = ("idle", "half load")


def middle(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in figures.items()}


def over_http(found: Mapping[str, object], kind: str) -> Figures:
    return cast("dict[str, Figures]", found["http"])[kind]


def row(name: str, figure: str, ratio: str = "", goal: str = "", met: bool | None = None) -> Row:
    return (name, figure, ratio, goal, "" if met is None else "yes" if met else "NO")


def rows(found: Mapping[str, object]) -> list[Row]:
    engine = middle(cast("Figures", found["engine"]))
    made = [HEAD, *_speed(engine), *_growth(engine), *_cpu(engine, "engine alone"), *_http(found, engine)]
    if "large" in found:
        made += [*_large(middle(cast("Figures", found["large"]))), *_history(found), *_soak(found)]
    return table(made)


def _speed(engine: Mapping[str, float]) -> Iterator[Row]:
    batched, single = engine["floor_per_second"], engine["floor_ms"]
    nodes = DIAMOND_NODES * engine["diamonds_per_second"]
    yield row("floor: task round trips, batched", f"{batched:,.0f} /s")
    yield row("floor: one round trip", f"{single:.2f} ms")
    yield row("five-node diamonds", f"{engine['diamonds_per_second']:,.0f} /s")
    share = nodes / batched
    yield row("  their nodes", f"{nodes:,.0f} /s", f"{share:.0%} of the floor", "50 %", share >= 0.5)
    for place in PLACES:
        for name, times in (("p50", 2.5), ("p99", 5.0), ("p99.9", None)):
            ms = engine[f"hop_ms {place} {name}"]
            goal = times if place == "idle" else None
            yield row(
                f"hop of a 20-node chain, {place}, {name}", f"{ms:.2f} ms", f"{ms / single:.1f} x the floor",
                f"{goal} x" if goal else "", ms <= goal * single if goal else None,
            )  # fmt: skip
    for width, most in ((1_000, 0.15), (10_000, 1.5)):
        took = engine[f"fan_seconds {width}"]
        yield row(f"fan-in 1 -> {width:,} -> 1", f"{took:.3f} s", "", f"{most} s", took <= most)


def _growth(engine: Mapping[str, float]) -> Iterator[Row]:
    yield from _flat(engine, "us_per_node size", "nodes in a DAG")
    yield from _flat(engine, "us_per_node live", "other live executions")
    yield row("a live execution in Valkey, one node waits", f"{engine['bytes_per_live_execution']:,.0f} bytes")
    yield row("a live diamond in Valkey, the last node waits", f"{engine['bytes_per_live_diamond']:,.0f} bytes")


def _flat(figures: Mapping[str, float], prefix: str, title: str) -> Iterator[Row]:
    """Time per node by something that grows: it should not grow with it."""
    by_size = {name.rpartition(" ")[2]: us for name, us in figures.items() if name.startswith(f"{prefix} ")}
    first = next(iter(by_size.values()))
    for i, (size, us) in enumerate(by_size.items()):
        name = f"{int(size):,} {title}" if size.isdigit() else f"{size} {title}"
        ratio = us / first
        compared = (f"{ratio:.2f} x the first", "1.3 x", ratio <= 1.3) if i else ()
        yield row(name, f"{us:.0f} us per node", *compared)


def _cpu(figures: Mapping[str, float], title: str) -> Iterator[Row]:
    by_role = {name.split(" ", 1)[1]: us for name, us in figures.items() if name.startswith("cpu_us_per_node ")}
    total = sum(by_role.values())
    yield row(f"CPU per node, {title}", f"{total:.0f} us")
    for role, us in by_role.items():
        yield row(f"  {role}", f"{us:.0f} us", f"{us / total:.0%}" if total else "")


def _http(found: Mapping[str, object], engine: Mapping[str, float]) -> Iterator[Row]:
    for kind in cast("dict[str, Figures]", found["http"]):
        figures = middle(over_http(found, kind))
        rate = figures["diamonds_per_second"]
        share = f"{rate / engine['diamonds_per_second']:.0%} of the engine alone"
        yield row(f"diamonds over HTTP and archived, {kind}", f"{rate:,.0f} /s", share, "500 /s", rate >= 500)
        yield row("  hop of a 20-node chain, mean", f"{figures['hop_ms']:.2f} ms")
        yield row("  fan-in 1 -> 1,000 -> 1", f"{figures['fan_seconds 1000']:.2f} s")
        yield row("  greatest lag of the archive", f"{figures['greatest_lag_seconds']:.2f} s")
        yield from _cpu(figures, f"over HTTP, {kind}")


def _large(figures: Mapping[str, float]) -> Iterator[Row]:
    small, big = figures["dag_seconds 10000"], figures["dag_seconds 100000"]
    yield row("random DAG of 10,000 nodes", f"{small:.2f} s")
    yield row("random DAG of 100,000 nodes", f"{big:.2f} s", f"{big / small:.1f} x", "12 x", big <= 12 * small)
    count, held = figures["live_executions"], figures["live_bytes"]
    yield row("live executions", f"{count:,.0f}", f"in {held / (1 << 30):.2f} GiB of Valkey")
    yield row("  each", f"{figures['bytes_per_live_execution']:,.0f} bytes")
    none, full = figures["us_per_node live none"], figures["us_per_node live full"]
    yield row("  diamonds beside none", f"{none:.0f} us per node")
    yield row(
        "  diamonds beside all of them", f"{full:.0f} us per node", f"{full / none:.2f} x", "1.3 x", full <= 1.3 * none
    )


def _history(found: Mapping[str, object]) -> Iterator[Row]:
    for kind, figures in cast("dict[str, Figures]", found["history"]).items():
        yield from _flat(middle(figures), "us_per_node history", f"ended executions in {kind}")
        yield row("  a diamond in SQL", f"{middle(figures)['sql_bytes_per_execution']:,.0f} bytes")


def _soak(found: Mapping[str, object]) -> Iterator[Row]:
    soaked = cast("dict[str, Any] | None", found.get("soak"))
    if not soaked:
        return
    for name, ratio in soaked["growth"].items():
        values = soaked["samples"][name]
        size = f"{values[-1] / 2**20:,.0f} MiB" if values[-1] > 1 << 20 else f"{values[-1]:,.0f} bytes"
        yield row(f"soak of {soaked['minutes']:g} minutes: {name}", size, f"{ratio:.3f} x", "1.05 x", ratio <= 1.05)
