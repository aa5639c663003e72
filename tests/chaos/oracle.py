"""The sequential oracle: what an execution of the load must come to, worked out without the engine.

It goes through the nodes of a definition one after the other. Every node of the load has a config with these fields,
whatever its handler is called (handlers.py does what they say; a field that is absent is 0 or empty):

    salt         a number that makes the node's value its own
    inputs       parent -> "{{ parent.value }}", of every parent: rendered, the parents' values
    padding      length of a text that makes the output large
    fails        attempts of each run that fail and may be retried: those up to this number
    overruns     likewise, attempts that take longer than the node's timeout_seconds
    fatal_runs   runs in which it fails for good: those up to this number

Values depend on nothing but the definition, so every attempt, every run and every order must give the same ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expected:
    """How a run ends if no worker is lost on the way, and what its nodes give."""

    status: str
    outputs: Mapping[str, Mapping[str, Any]]  # of every node that can complete
    failing: frozenset[str]  # nodes that fail for good, if they are reached
    unreachable: frozenset[str]  # descendants of those


def value_of(salt: int, inputs: Mapping[str, Any]) -> str:
    """What a node makes of its parents' values."""
    text = json.dumps([salt, sorted(inputs.items())])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def output_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The output of a node with this config, rendered."""
    value = value_of(config.get("salt", 0), config.get("inputs", {}))
    padding = config.get("padding", 0)
    return {"value": value, "padding": value[0] * padding} if padding else {"value": value}


def expect(definition: Mapping[str, Any], run: int = 1) -> Expected:
    nodes = {node["id"]: node for node in definition["nodes"]}
    outputs: dict[str, dict[str, Any]] = {}
    failing: set[str] = set()
    unreachable: set[str] = set()
    for name in in_order(nodes):
        node, config = nodes[name], nodes[name].get("config", {})
        parents = node.get("dependencies", [])
        if not failing.isdisjoint(parents) or not unreachable.isdisjoint(parents):
            unreachable.add(name)
        elif run <= config.get("fatal_runs", 0):
            failing.add(name)
        else:
            inputs = {parent: outputs[parent]["value"] for parent in parents}
            outputs[name] = output_of({**config, "inputs": inputs})
    status = "FAILED" if failing else "COMPLETED"
    return Expected(status, outputs, frozenset(failing), frozenset(unreachable))


def in_order(nodes: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """Parents before children."""
    ordered: dict[str, None] = {}
    waiting = list(nodes)
    while waiting:
        ready = [name for name in waiting if all(parent in ordered for parent in nodes[name].get("dependencies", []))]
        ordered.update(dict.fromkeys(ready))
        waiting = [name for name in waiting if name not in ordered]
        if not ready:
            raise ValueError(f"these nodes wait for each other: {waiting}")
    return list(ordered)
