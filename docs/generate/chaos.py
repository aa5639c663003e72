"""The figures of docs/how-we-test-it.md: recorded runs of the fault machine, its rules, and the mutants it caught."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.generate.markdown import table

DOCS = Path(__file__).parents[1]
RUNS = DOCS / "chaos-runs.json"
MUTANTS = DOCS / "chaos-mutants.json"


def _recorded(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return found


def _added(runs: Iterable[dict[str, Any]], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run[name])
    return total


def figures() -> str:
    """What all recorded runs add up to."""
    runs = _recorded(RUNS)
    if not runs:
        return "No run is recorded yet: `make chaos RECORD=docs/chaos-runs.json` records one."
    points = _added(runs, "crash_points")
    rows = [
        ("runs", f"{len(runs)}, {sum(run['minutes'] for run in runs):g} minutes"),
        ("seeds", ", ".join(str(run["seed"]) for run in runs)),
        ("faults", f"{sum(run['faults'] for run in runs):,}"),
        ("executions", f"{sum(run['executions'] for run in runs):,}"),
        ("they ended as", ", ".join(f"{count:,} {status}" for status, count in sorted(_added(runs, "ends").items()))),
        ("total losses of Valkey, rebuilt", f"{sum(run['losses_rebuilt'] for run in runs):,}"),
        ("crash points", f"{len(points)}; the rarest was hit {min(points.values(), default=0)} times"),
        ("requests that clients had to repeat", f"{sum(run['requests_repeated'] for run in runs):,}"),
        ("**violations**", f"**{sum(len(run['violations']) for run in runs)}**"),
    ]
    return table(("all recorded runs", ""), rows)


def runs_one_by_one() -> str:
    rows = [
        (
            str(run["seed"]), run["database"], f"{run['minutes']:g}", f"{run['faults']:,}", f"{run['executions']:,}",
            str(run["losses_rebuilt"]), str(len(run["violations"])), run["commit"],
        )
        for run in _recorded(RUNS)
    ]  # fmt: skip
    return table(("seed", "SQL", "minutes", "faults", "executions", "losses", "violations", "commit"), rows)


def faults_fired() -> str:
    fired = _added(_recorded(RUNS), "fired")
    return table(("fault", "times"), [(f"`{name}`", f"{count:,}") for name, count in sorted(fired.items())])


def rules() -> str:
    """Each rule of the checker, by what it says of itself."""
    from tests.chaos.checker import RULES

    rows = []
    for rule in RULES:
        words = " ".join((inspect.getdoc(rule) or "").split())
        rows.append((rule.__name__.replace("_", " "), words))
    return table(("rule", "in other words"), rows)


def mutants() -> str:
    found = [each for each in _recorded(MUTANTS) if each["name"] != "none"]
    if not found:
        return "No run is recorded yet: `make mutants RECORD=docs/chaos-mutants.json` records one."
    rows = [
        (
            each["name"],
            each["what"],
            each["scenario"],
            "; ".join(each["caught"][:2]) or "**nothing**",
            str(each["seconds"]),
        )
        for each in found
    ]
    caught = sum(bool(each["caught"]) for each in found)
    return f"{caught} of {len(found)} are caught.\n\n" + table(
        ("mutant", "what is wrong with it", "scenario", "caught by", "seconds"), rows
    )


BLOCKS = {
    "chaos figures": figures,
    "chaos runs": runs_one_by_one,
    "chaos faults": faults_fired,
    "chaos rules": rules,
    "chaos mutants": mutants,
}
