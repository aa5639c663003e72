"""The dependencies of a definition as a graph: what is wrong with it, in which order it runs, who follows whom.

Nodes are numbers here, by their place in the definition; what becomes ready together is dispatched in that order.
Everything is iterative and linear in nodes and edges: a chain of 100,000 nodes is an ordinary definition.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headrace.errors import Problem
from headrace.model.definition import Definition
from headrace.model.findings import Findings
from headrace.model.payload import shown

_CHUNK_BITS: Final = 4096
_CYCLE_SHOWN: Final = 100


class Graph:
    """Who depends on whom. Of a definition with problems it has what makes sense; `order` ends before any cycle."""

    __slots__ = ("children", "index", "order", "parent_counts", "parents", "roots")

    def __init__(self, definition: Definition) -> None:
        nodes = definition.nodes
        self.index: dict[str, int] = {}
        for position, node in enumerate(nodes):
            self.index.setdefault(node.id, position)
        self.index.pop("", None)
        find = self.index.get
        self.parents: tuple[tuple[int, ...], ...] = tuple(
            tuple(
                dict.fromkeys(
                    parent for name in node.dependencies if (parent := find(name)) is not None and parent != position
                )
            )
            for position, node in enumerate(nodes)
        )
        children: list[list[int]] = [[] for _ in nodes]
        for position, parents in enumerate(self.parents):
            for parent in parents:
                children[parent].append(position)
        self.children: tuple[tuple[int, ...], ...] = tuple(tuple(ones) for ones in children)
        self.parent_counts: tuple[int, ...] = tuple(len(parents) for parents in self.parents)
        self.roots: tuple[int, ...] = tuple(i for i, count in enumerate(self.parent_counts) if count == 0)
        self.order: tuple[int, ...] = self._kahn()

    def _kahn(self) -> tuple[int, ...]:
        """Parents before children, and otherwise as early in the definition as possible."""
        waiting = list(self.parent_counts)
        ready = list(self.roots)
        order: list[int] = []
        while ready:
            node = heapq.heappop(ready)
            order.append(node)
            for child in self.children[node]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    heapq.heappush(ready, child)
        return tuple(order)

    def descendants(self, *nodes: int) -> tuple[int, ...]:
        """All other nodes that wait for one of these, directly or not, in the order of the definition."""
        seen: set[int] = set()
        stack = list(nodes)
        while stack:
            fresh = [child for child in self.children[stack.pop()] if child not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return tuple(sorted(seen.difference(nodes)))

    def not_ancestors(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Of pairs (node, other), those in which `other` is not an ancestor of `node`.

        Parents are looked up. For the rest, sets of targets travel down the order as bits of one integer, some
        thousands of targets at a time: a few machine words per edge, where a search per pair would be quadratic.
        Nodes on or behind a cycle have no ancestors that one could speak of, and are left out.
        """
        place = {node: at for at, node in enumerate(self.order)}
        wrong: set[tuple[int, int]] = set()
        askers: dict[int, list[int]] = {}
        known, parents = -1, frozenset[int]()
        for node, other in pairs:
            if node != known:
                known, parents = node, frozenset(self.parents[node])
            if node not in place or other in parents:
                continue
            if other not in place or place[other] >= place[node]:
                wrong.add((node, other))
            else:
                askers.setdefault(other, []).append(node)
        targets = sorted(askers, key=place.__getitem__)
        for start in range(0, len(targets), _CHUNK_BITS):
            wrong.update(self._unreached(targets[start : start + _CHUNK_BITS], askers, place))
        return wrong

    def _unreached(
        self, targets: Sequence[int], askers: dict[int, list[int]], place: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        bit = {target: 1 << at for at, target in enumerate(targets)}
        reached = [0] * len(self.parents)  # by node: the targets above it, and itself
        last = max(place[node] for target in targets for node in askers[target])
        for node in self.order[place[targets[0]] : last + 1]:
            above = bit.get(node, 0)
            for parent in self.parents[node]:
                above |= reached[parent]
            reached[node] = above
        for target in targets:
            for node in askers[target]:
                if not reached[node] & bit[target]:
                    yield node, target


def problems(definition: Definition) -> list[Problem]:
    """Everything that is wrong with ids and dependencies: duplicates, unknown names, self-dependency, cycles."""
    findings = Findings()
    graph = Graph(definition)
    for position, node in enumerate(definition.nodes):
        loc = ("nodes", position)
        first = graph.index.get(node.id, position)
        if first != position:
            message = f"the id {shown(node.id)} is taken: node {first + 1} has it too"
            findings.add("duplicate_id", message, (*loc, "id"), node.id)
        for at, name in enumerate(node.dependencies):
            where = (*loc, "dependencies", at)
            if name == node.id:
                findings.add("self_dependency", "it depends on itself", where, node.id)
            elif name not in graph.index:
                hint = findings.did_you_mean(name, graph.index)
                message = f"there is no node {shown(name)} to depend on{hint}"
                findings.add("unknown_dependency", message, where, node.id or None)
    for cycle in cycles(graph):
        names = [definition.nodes[i].id for i in (*cycle, cycle[0])]
        message = f"the dependencies form a cycle: {_chain(names)}"
        findings.add("cycle", message, ("nodes", cycle[0], "dependencies"), names[0])
    return findings.all()


def cycles(graph: Graph) -> list[list[int]]:
    """One cycle for each group of nodes that wait for each other, from its first node on, each before its dependant."""
    found = [_shortest_cycle(graph, group) for group in _knots(graph)]
    return sorted(found)


def _knots(graph: Graph) -> Iterator[set[int]]:
    """The strongly connected components of more than one node: Tarjan's algorithm, with its own stack."""
    left = set(range(len(graph.children))).difference(graph.order)
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in sorted(left):
        work = [(root, iter(graph.children[root]))] if root not in number else []
        while work:
            node, children = work[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                open_nodes.append(node)
                is_open.add(node)
            for child in children:
                if child not in number:
                    work.append((child, iter(graph.children[child])))
                    break
                if child in is_open:
                    lowest[node] = min(lowest[node], number[child])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    knot = _closed(open_nodes, node)
                    is_open -= knot
                    if len(knot) > 1:
                        yield knot


def _closed(open_nodes: list[int], first: int) -> set[int]:
    """Take the nodes from `first` on off the stack."""
    knot = {open_nodes.pop()}
    while first not in knot:
        knot.add(open_nodes.pop())
    return knot


def _shortest_cycle(graph: Graph, knot: set[int]) -> list[int]:
    """The shortest way from the knot's first node back to it, in breadth-first order."""
    first = min(knot)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while first not in came_from:
        node = queue.popleft()
        for child in graph.children[node]:
            if child in knot and child not in came_from:
                came_from[child] = node
                queue.append(child)
    path = [came_from[first]]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return path[::-1]


def _chain(names: list[str]) -> str:
    if len(names) > _CYCLE_SHOWN:
        half = _CYCLE_SHOWN // 2
        names = [*names[:half], f"… {len(names) - 2 * half:,} more …", *names[-half:]]
    return " → ".join(names)
