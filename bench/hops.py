"""Hops: from the start of one node of a chain to the start of the next. Needs nothing of any engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

CHAIN_LENGTH = 20
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def hops_ms(began_ns: Sequence[int]) -> list[float]:
    """Of a chain, by when each of its nodes began, on the clock that all processes of a machine share."""
    return [(after - before) / 1e6 for before, after in pairwise(began_ns)]


def mean_hop_ms(began_ns: Sequence[int]) -> float:
    """Of one chain. Some engines work in bursts, which a median would hide."""
    return (began_ns[-1] - began_ns[0]) / 1e6 / (len(began_ns) - 1)


def quantiles(found: Sequence[float], prefix: str) -> dict[str, float]:
    ordered = sorted(found)
    return {f"{prefix} {name}": ordered[int(len(ordered) * part)] for name, part in QUANTILES.items()}
