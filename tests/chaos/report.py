"""What a run came to: as text for people, as JSON beside it, and as a line in a file that runs add up in.

A run proves nothing if a fault that was planned never fired, or if too few executions got through: then it is invalid.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.machine import Done, Wish

NORMAL = 0.9  # of the executions must be COMPLETED
SHOWN = 30


def summary(wish: Wish, done: Done) -> dict[str, Any]:
    executions = sum(done.ends.values())
    faults = sum(done.fired.values())
    return {
        "seed": wish.seed,
        "minutes": wish.minutes,
        "database": wish.database,
        "partitions": done.run.partitions,
        "commit": _commit(),
        "faults": faults,
        "faults_per_second": round(faults / done.seconds, 2),
        "executions": executions,
        "executions_per_second": round(executions / done.seconds, 2),
        "ends": done.ends,
        "losses_rebuilt": done.losses,
        "requests_repeated": done.repeated,
        "errors_in_logs": _errors(done),
        "fired": _fired(done),
        "crash_points": _crash_points(done),
        "problems": problems(done),
        "violations": [str(each) for each in done.violations],
    }


def problems(done: Done) -> list[str]:
    """Why the run proves nothing; empty if it does."""
    found = [f"{kind} was planned and never fired" for kind, count in done.fired.items() if not count]
    executions = sum(done.ends.values())
    completed = done.ends.get("COMPLETED", 0)
    if completed < NORMAL * executions or not executions:
        found.append(f"only {completed} of {executions} executions finished normally")
    return found


def text(told: dict[str, Any]) -> str:
    lines = [
        f"seed {told['seed']}, {told['minutes']:g} minutes on {told['database']}, commit {told['commit']}",
        f"{told['faults']} faults ({told['faults_per_second']}/s), {told['losses_rebuilt']} losses of all of Valkey",
        f"{told['executions']} executions ({told['executions_per_second']}/s): "
        + ", ".join(f"{count} {status}" for status, count in sorted(told["ends"].items())),
        "",
        *(f"  {count:6} {name}" for name, count in sorted(told["fired"].items())),
        *(f"  {count:6} crash {name}" for name, count in sorted(told["crash_points"].items())),
        *(f"  {count:6} times in the logs of roles: {what}" for what, count in told["errors_in_logs"].items()),
        "",
        *(f"INVALID: {problem}" for problem in told["problems"]),
        *(f"VIOLATION: {each}" for each in told["violations"][:SHOWN]),
        f"{len(told['violations'])} violations",
    ]
    return "\n".join(lines)


def add_up(path: Path, told: dict[str, Any]) -> None:
    """Adds the run to those that were recorded before."""
    runs = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*runs, told], indent=1) + "\n")


def _fired(done: Done) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for kind, count in done.fired.items():
        counts[kind.partition(" ")[0]] += count
    return dict(counts)


def _crash_points(done: Done) -> dict[str, int]:
    return {kind.partition(" ")[2]: count for kind, count in done.fired.items() if kind.startswith("crash ")}


def _errors(done: Done) -> dict[str, int]:
    """What roles found wrong themselves. That a fault breaks something is no news; what ends a role with a traceback,
    or is refused again and again, deserves a look."""
    counts: Counter[str] = Counter()
    for log in done.run.folder.glob("*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if '"level": "error"' in line:
                counts[str(json.loads(line)["event"])] += 1
            elif line.lstrip(" +|").startswith("Traceback"):
                counts["Traceback"] += 1
    return dict(counts)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
