"""Random DAGs from a seed: chains, fans, diamonds and layers, small for the most part, some of up to 200 nodes.

Nearly all nodes succeed at once. Some are slow, fail now and then, overrun their timeout or give a large output; a few
break for good in the first run, or in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Parents = list[list[int]]  # of each node, the numbers of its parents

LARGE = 0.02
MOST_NODES = 200
RETRIES = {"max_retries": 5, "initial_delay": 0.05, "max_delay": 0.3}  # a slow machine may cost some, too


def chain(rng: random.Random, size: int) -> Parents:
    return [[i - 1] if i else [] for i in range(size)]


def fan(rng: random.Random, size: int) -> Parents:
    """One to many to one."""
    if size < 3:
        return chain(rng, size)
    return [[], *([0] for _ in range(size - 2)), list(range(1, size - 1))]


def diamonds(rng: random.Random, size: int) -> Parents:
    """One behind the other."""
    parents: Parents = [[]]
    while len(parents) + 3 <= size:
        top = len(parents) - 1
        parents += [[top], [top], [top + 1, top + 2]]
    return parents


def layers(rng: random.Random, size: int) -> Parents:
    width = rng.randint(2, max(2, size // 3))
    parents: Parents = []
    for i in range(size):
        above = range(max(0, (i // width - 1) * width), i // width * width)
        parents.append(sorted(rng.sample(above, rng.randint(1, min(3, len(above))))) if above else [])
    return parents


SHAPES: tuple[Callable[[random.Random, int], Parents], ...] = (chain, fan, diamonds, layers)


def size_of(rng: random.Random) -> int:
    """Mean about 12."""
    if rng.random() < LARGE:
        return rng.randint(50, MOST_NODES)
    return min(1 + int(rng.expovariate(1 / 9)), 40)


def definition(rng: random.Random, number: int) -> dict[str, Any]:
    parents = rng.choice(SHAPES)(rng, size_of(rng))
    nodes = [_node(rng, i, above) for i, above in enumerate(parents)]
    made: dict[str, Any] = {"name": f"chaos-{number}", "nodes": nodes}
    if rng.random() < 0.3:
        made["on_failure"] = "continue"
    if rng.random() < 0.04:
        rng.choice(nodes)["config"]["fatal_runs"] = 1 if rng.random() < 0.8 else 9
    return made


def _node(rng: random.Random, number: int, parents: list[int]) -> dict[str, Any]:
    names = [f"n{parent}" for parent in parents]
    config: dict[str, Any] = {"salt": rng.randrange(1 << 30)}
    if names:
        config["inputs"] = {name: f"{{{{ {name}.value }}}}" for name in names}
    node: dict[str, Any] = {"id": f"n{number}", "handler": "step", "dependencies": names, "config": config}
    chance = rng.random()
    if chance < 0.03:
        config["fails"] = rng.randint(1, 2)
        node["retry_config"] = RETRIES
    elif chance < 0.035:
        config["overruns"] = 1
        node |= {"timeout_seconds": 1.0, "retry_config": RETRIES}
    elif chance < 0.06:
        config["seconds"] = round(rng.uniform(0.1, 2.0), 2)
    elif chance < 0.065:
        config["padding"] = rng.randrange(10_000, 200_000)
    elif chance < 0.09:
        node["handler"] = "step_in_thread"
    elif chance < 0.091:
        node["handler"] = "step_in_process"
    return node
