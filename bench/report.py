"""Figures become a table: text on the screen, Markdown and JSON in bench/results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

Row = tuple[str, ...]  # the first row of a table names its columns


def load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def machine() -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def table(rows: Sequence[Row]) -> list[Row]:
    """All rows as long as the first."""
    width = len(rows[0])
    return [(*row, *("",) * (width - len(row))) for row in rows]


def as_text(rows: Sequence[Row]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join((row[0].ljust(len(first)), *others)).rstrip())
    return "\n".join(lines)


def as_markdown(rows: Sequence[Row]) -> str:
    head, *body = rows
    lines = [head, ("---", *("---:",) * (len(head) - 1)), *body]
    return "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)


def save(stem: Path, found: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Prints the table, and writes it and all figures down."""
    told = {**machine(), **found, "load_after": load()}
    note = f"{told['at']}, {told['cores']} cores, load before {told['load_before']}, after {told['load_after']}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    stem.with_suffix(".md").write_text(f"{as_markdown(rows)}\n\n{note}\n")
    print(f"{as_text(rows)}\n\n{note}\nall figures: bench/results/{stem.name}.json")
