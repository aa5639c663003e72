"""What a fault is: a name, how often it comes, what it is drawn with, and how it is done."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.cluster import Cluster

Parameters = Mapping[str, Any]


def nothing(_: random.Random) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Fault:
    """`inject` does it, holds it, and heals it; it tells whether it came about. `draw` gives its parameters."""

    name: str
    per_minute: float
    inject: Callable[[Cluster, Parameters], Awaitable[bool]]
    draw: Callable[[random.Random], dict[str, Any]] = nothing
    database: str = ""  # only with this one
    longest_seconds: float = 15.0  # it is not begun when less than that is left
