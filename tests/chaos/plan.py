"""The plan of a run: which fault comes when, and with what. It follows from the seed alone.

Faults come at random times and overlap: with several per second, two or three are always at work. Every kind comes at
least once, the crash points take turns, and there is time for each to be over before the load ends.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.chaos.crash_points import CRASH_POINTS
from tests.chaos.faults import FAULTS
from tests.chaos.faults.fault import Fault
from tests.chaos.faults.processes import CRASHES_PER_MINUTE
from tests.chaos.faults.sql import LONGEST_AWAY_SECONDS

LONG_RUN_SECONDS = 300.0  # in one this long the SQL server is away for a minute once


@dataclass(frozen=True)
class Planned:
    at: float  # seconds from the start
    fault: str
    target: str
    parameters: dict[str, Any]

    @property
    def kind(self) -> str:
        """What must fire at least once."""
        return f"{self.fault} {self.target}" if self.fault == "crash" else self.fault


def plan(seed: int, seconds: float, database: str, only: Collection[str] = ()) -> list[Planned]:
    """`only`: names of faults and of crash points; nothing means all."""
    planned = _crashes(seed, seconds, only)
    for fault in FAULTS.values():
        if fault.name != "crash" and fault.database in ("", database) and (not only or fault.name in only):
            planned += _drawn(fault, seed, seconds)
    return sorted(planned, key=lambda each: each.at)


def _drawn(fault: Fault, seed: int, seconds: float) -> list[Planned]:
    rng = random.Random(f"{fault.name} {seed}")
    planned = []
    for at in _times(rng, fault, fault.per_minute, seconds):
        parameters = fault.draw(rng)
        planned.append(Planned(at, fault.name, str(parameters.get("target", "")), parameters))
    if fault.name == "postgres_stopped" and seconds >= LONG_RUN_SECONDS:
        planned[0].parameters["seconds"] = LONGEST_AWAY_SECONDS
    return planned


def _crashes(seed: int, seconds: float, only: Collection[str]) -> list[Planned]:
    """The points of each role take turns, in an order of the seed's."""
    planned = []
    for role, per_minute in CRASHES_PER_MINUTE.items():
        points = [str(each) for each in CRASH_POINTS if each.role == role]
        points = [point for point in points if not only or point in only or "crash" in only]
        rng = random.Random(f"crash {role} {seed}")
        rng.shuffle(points)
        times = _times(rng, FAULTS["crash"], per_minute, seconds) if points else []
        for at, point in zip(times, itertools.cycle(points), strict=False):
            planned.append(Planned(at, "crash", point, {**FAULTS["crash"].draw(rng), "target": point}))
    return planned


def _times(rng: random.Random, fault: Fault, per_minute: float, seconds: float) -> list[float]:
    """At least one, and early enough to be over in time."""
    count = max(1, round(per_minute * seconds / 60))
    last = max(seconds - fault.longest_seconds, seconds / 2)
    return sorted(round(rng.uniform(0.0, last), 3) for _ in range(count))
