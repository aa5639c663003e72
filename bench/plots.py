"""`make bench-plots`: the figures in bench/results as pictures, SVG and PNG, in the folders that are given.

Runs in an environment of its own, since it needs matplotlib and nothing of the engine: figures in, pictures out.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found]
import matplotlib.pyplot as plt  # type: ignore[import-not-found]
from matplotlib.figure import Figure  # type: ignore[import-not-found]
from matplotlib.ticker import NullLocator  # type: ignore[import-not-found]

RESULTS = Path(__file__).parent / "results"
OURS, OTHERS, GOAL = "#0b6e99", "#b8b8b8", "#c0392b"
ROLES = {
    "Valkey": "#8e2f2f", "orchestrator": "#0b6e99", "worker": "#3f9e6c", "API": "#d08c2b", "PostgreSQL": "#5b5ea6",
    "driver": "#c9c9c9",
}  # fmt: skip

mpl.use("Agg")
mpl.rcParams.update({
    "svg.hashsalt": "headrace", "svg.fonttype": "none", "font.size": 9, "figure.dpi": 130, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
})  # fmt: skip


def middle(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in figures.items()}


def by_number(figures: Mapping[str, float], prefix: str) -> tuple[list[int], list[float]]:
    found = {int(name.split()[-1]): value for name, value in figures.items() if name.startswith(prefix)}
    return list(found), list(found.values())


def peers(found: dict[str, Any]) -> Figure:
    panels = {
        "diamonds_per_second": "five-node diamonds per second\n(more is better, log scale)",
        "hop_ms": "ms per hop of a 20-node chain\n(less is better, log scale)",
        "fan_1000_seconds": "seconds for 1 → 1,000 → 1\n(less is better, log scale)",
    }
    engines = {name: middle(figures) for name, figures in reversed(found["engines"].items())}
    figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), sharey=True)
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        values = [one[key] for one in engines.values()]
        colours = [OURS if name.startswith("Headrace") else OTHERS for name in engines]
        axis.barh(list(engines), values, color=colours)
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 2, max(values) * 5)
        axis.xaxis.set_major_locator(NullLocator())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(title)
        for place, value in enumerate(values):
            axis.text(value * 1.1, place, f"{value:,.0f}" if value >= 100 else f"{value:.2g}", va="center")
    return figure


def growth(found: dict[str, Any]) -> Figure:
    engine = middle(found["engine"])
    lines: dict[str, list[tuple[str, list[int], list[float]]]] = {
        "nodes in a DAG": [("", *by_number(engine, "us_per_node size"))],
        "other live executions": [("", *by_number(engine, "us_per_node live"))],
    }
    if "history" in found:
        lines["executions in the history"] = [
            (kind, *by_number(middle(figures), "us_per_node history")) for kind, figures in found["history"].items()
        ]
    figure, axes = plt.subplots(1, len(lines), figsize=(3.4 * len(lines), 2.6), sharey=True)
    for axis, (title, curves) in zip(axes, lines.items(), strict=True):
        for (name, sizes, values), colour in zip(curves, (OURS, ROLES["API"]), strict=False):
            axis.plot(
                [f"{size:,}" for size in sizes], [value / values[0] for value in values], "o-", color=colour, label=name
            )
            if name:
                axis.legend()
        axis.axhline(1.3, color=GOAL, linestyle=":", linewidth=1)
        axis.set_ylim(0, 2)
        axis.set_xlabel(title)
    axes[0].set_ylabel("time per node\n(multiple of the first; goal 1.3)")
    return figure


def latency(found: dict[str, Any]) -> Figure:
    engine = middle(found["engine"])
    names = ("p50", "p99", "p99.9")
    figure, axis = plt.subplots(figsize=(5, 2.8))
    for offset, (place, colour) in enumerate((("idle", OURS), ("half load", ROLES["API"]))):
        values = [engine[f"hop_ms {place} {name}"] for name in names]
        bars = axis.bar([i + 0.38 * offset for i in range(3)], values, 0.36, color=colour, label=place)
        axis.bar_label(bars, fmt="%.1f")
    axis.axhline(engine["floor_ms"], color=GOAL, linestyle=":", linewidth=1, label="one bare round trip")
    axis.set_xticks([0.19, 1.19, 2.19], names)
    axis.set_ylabel("ms per hop")
    axis.legend()
    return figure


def cpu(found: dict[str, Any]) -> Figure:
    runs = {"engine alone": middle(found["engine"])} | {
        f"over HTTP, {kind}": middle(figures) for kind, figures in found["http"].items()
    }
    figure, axis = plt.subplots(figsize=(7, 2))
    for place, figures in enumerate(reversed(runs.values())):
        left = 0.0
        for role, colour in ROLES.items():
            us = figures.get(f"cpu_us_per_node {role}", 0.0)
            axis.barh(place, us, left=left, color=colour)
            left += us
    axis.set_yticks(range(len(runs)), list(reversed(runs)))
    axis.set_xlabel("µs of CPU time per node")
    axis.legend(
        [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in ROLES.values()],
        ROLES,
        ncols=6,
        loc="lower center",
        bbox_to_anchor=(0.4, 1),
    )
    return figure


def soak(found: dict[str, Any]) -> Figure:
    samples = found["soak"]["samples"]
    figure, axis = plt.subplots(figsize=(6, 2.8))
    for name, values in samples.items():
        role = name.removeprefix("rss_bytes ")
        if role in ROLES:
            minutes = [at / 60 for at in samples["at"]]
            axis.plot(minutes, [value / 2**20 for value in values], color=ROLES[role], label=role)
    axis.set_ylim(0)
    axis.set_xlabel("minutes at half load")
    axis.set_ylabel("resident memory, MiB")
    axis.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def load(*names: str) -> dict[str, Any] | None:
    """The first of these that is there."""
    for name in names:
        if (path := RESULTS / f"{name}.json").is_file():
            return dict(json.loads(path.read_text()))
    return None


def draw(picture: Figure, name: str, folders: Sequence[Path]) -> None:
    picture.tight_layout()
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        picture.savefig(folder / f"{name}.svg", metadata={"Date": None})
        picture.savefig(folder / f"{name}.png", metadata={"Software": None})
        print(folder / f"{name}.svg")
    plt.close(picture)


def main(folders: Sequence[Path]) -> None:
    if found := load("peers"):
        draw(peers(found), "peers", folders)
    if found := load("full", "latest"):
        for made in (growth, latency, cpu, *([soak] if "soak" in found else [])):
            draw(made(found), made.__name__, folders)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [RESULTS])
