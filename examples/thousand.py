"""A workflow of 1,000 nodes, made in Python: 900 nodes count primes, 99 add up in two layers, one gives the result.

    python examples/thousand.py | headrace run - --handlers examples.thousand

The script prints YAML, and `headrace run -` reads it from its standard input.
"""

from pydantic import BaseModel

from headrace import Workflow, handler
from headrace.builder import Reference

BLOCKS = 900
BLOCK_SIZE = 100


class Block(BaseModel):
    start: int
    stop: int


@handler("count_primes")
def count_primes(config: Block) -> dict[str, int]:
    return {"count": sum(is_prime(number) for number in range(config.start, config.stop))}


class Counts(BaseModel):
    counts: list[int]


@handler("add_counts")
def add_counts(config: Counts) -> dict[str, int]:
    return {"count": sum(config.counts)}


def is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))


def workflow() -> Workflow:
    wf = Workflow("thousand", description="Count the primes below 90,000")
    layer = [
        wf.node(f"block_{i}", "count_primes", config={"start": i * BLOCK_SIZE, "stop": (i + 1) * BLOCK_SIZE})
        for i in range(BLOCKS)
    ]
    layer = added_up(wf, "tens", layer)  # 90 nodes
    layer = added_up(wf, "hundreds", layer)  # 9 nodes
    # References become templates; a sum of them is not known here, so it is written as a template by hand.
    total = "{{ [" + ", ".join(f"hundreds_{i}.count" for i in range(len(layer))) + "] | sum }}"
    wf.node("done", "output", config={"below": BLOCKS * BLOCK_SIZE, "primes": total})
    return wf


def added_up(wf: Workflow, name: str, nodes: list[Reference]) -> list[Reference]:
    """A node for every ten. That it depends on them is read from its config."""
    tens = [nodes[start : start + 10] for start in range(0, len(nodes), 10)]
    return [
        wf.node(f"{name}_{i}", "add_counts", config={"counts": [node.count for node in ten]})
        for i, ten in enumerate(tens)
    ]


if __name__ == "__main__":
    print(workflow().to_yaml(), end="")
