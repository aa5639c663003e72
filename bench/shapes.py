"""The graphs that are measured."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from headrace.model.definition import Definition
from headrace.model.validation import validate

NOBODY = "nobody"  # a handler that no worker has


def _node(name: str, *parents: str, handler: str = "noop", **config: Any) -> dict[str, Any]:
    return {"id": name, "handler": handler, "dependencies": list(parents), "config": config}


def _definition(name: str, *nodes: dict[str, Any]) -> Definition:
    return validate({"name": name, "nodes": list(nodes)}, handlers=None)


def diamond() -> Definition:
    """Five nodes: one, three beside each other, one; each reads what its parents gave."""
    middle = ("left", "middle", "right")
    return _definition(
        "diamond",
        _node("top"),
        *(_node(name, "top", at="{{ top.at }}") for name in middle),
        _node("bottom", *middle, at="{{ left.at }} {{ right.at }}"),
    )


def chain(length: int) -> Definition:
    links = (_node(f"n{i}", f"n{i - 1}", at=f"{{{{ n{i - 1}.at }}}}") for i in range(1, length))
    return _definition("chain", _node("n0"), *links)


def fan(width: int) -> Definition:
    """1 -> width -> 1"""
    names = [f"n{i}" for i in range(width)]
    return _definition(f"fan-{width}", _node("top"), *(_node(name, "top") for name in names), _node("bottom", *names))


def layers(size: int, depth: int = 5) -> Definition:
    """So many nodes in five layers, each with two parents in the layer above, so that only the size changes."""
    width = size // depth
    nodes = []
    for i in range(size):
        layer, place = divmod(i, width)
        above = (layer - 1) * width
        parents = {f"n{above + place}", f"n{above + (place + 1) % width}"} if layer else set()
        nodes.append(_node(f"n{i}", *sorted(parents)))
    return _definition("layers", *nodes)


def random_layers(size: int, depth: int = 20, most_parents: int = 4) -> Definition:
    """So many nodes in layers of random width, each with one to four random parents in the layer above."""
    chance = random.Random(size)
    starts = sorted({0, *chance.sample(range(1, size), depth - 1)})
    nodes, above = [], range(0)
    for start, end in zip(starts, [*starts[1:], size], strict=True):
        for i in range(start, end):
            parents = chance.sample(above, min(len(above), chance.randint(1, most_parents)))
            nodes.append(_node(f"n{i}", *(f"n{parent}" for parent in sorted(parents))))
        above = range(start, end)
    return _definition("random-layers", *nodes)


def parked() -> Definition:
    """An execution that lives and waits: nobody has its handler."""
    return _definition("parked", _node("waits", handler=NOBODY))


def waiting() -> Definition:
    """The same over HTTP, where a handler must be known: its node waits for a retry."""
    return _definition("waiting", _node("waits", handler="later"))


def parked_diamond() -> Definition:
    """A diamond that lives and waits for its last node; the other four have left their outputs."""
    *nodes, bottom = msgspec.json.decode(diamond().to_json())["nodes"]
    return _definition("parked-diamond", *nodes, {**bottom, "handler": NOBODY})
