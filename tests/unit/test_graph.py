from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import graph as graphs
from headrace.model.definition import Definition, Node
from headrace.model.graph import Graph, cycles, problems


def definition(*edges: tuple[str, list[str]]) -> Definition:
    return Definition("x", tuple(Node(name, "h", tuple(parents)) for name, parents in edges))


@st.composite
def digraphs(draw: Any, *, acyclic: bool) -> Definition:
    """Random graphs; an acyclic one is listed in a random order, not in that of its dependencies."""
    count = draw(st.integers(1, 12))
    rank = draw(st.permutations(range(count)))
    nodes = []
    for i in range(count):
        others = [j for j in range(count) if (rank[j] < rank[i] if acyclic else j != i)]
        chosen = draw(st.lists(st.sampled_from(others), unique=True, max_size=4)) if others else []
        nodes.append((f"n{i}", [f"n{j}" for j in chosen]))
    return definition(*nodes)


def naive_ancestors(it: Definition) -> dict[int, set[int]]:
    above = {i: {int(name[1:]) for name in node.dependencies} for i, node in enumerate(it.nodes)}
    changed = True
    while changed:
        changed = False
        for ancestors in above.values():
            wider = ancestors.union(*(above[j] for j in ancestors))
            changed |= wider != ancestors
            ancestors.update(wider)
    return above


@settings(deadline=None)
@given(digraphs(acyclic=True))
def test_order_children_and_descendants_agree_with_a_naive_reading(it: Definition) -> None:
    graph = Graph(it)
    above = naive_ancestors(it)
    everyone = range(len(it.nodes))
    assert not problems(it)
    expected: list[int] = []
    while len(expected) < len(it.nodes):
        expected.append(min(i for i in everyone if i not in expected and above[i] <= set(expected)))
    assert list(graph.order) == expected
    for i in everyone:
        assert graph.children[i] == tuple(j for j in everyone if f"n{i}" in it.nodes[j].dependencies)
        assert graph.parent_counts[i] == len(it.nodes[i].dependencies)
        assert graph.descendants(i) == tuple(j for j in everyone if i in above[j])
    assert graph.roots == tuple(i for i in everyone if not above[i])


@settings(deadline=None)
@given(digraphs(acyclic=True), st.integers(1, 5))
def test_ancestors_agree_with_a_naive_reading(it: Definition, chunk: int) -> None:
    above = naive_ancestors(it)
    pairs = [(i, j) for i in above for j in above]
    usual, graphs._CHUNK_BITS = graphs._CHUNK_BITS, chunk  # type: ignore[misc]
    try:
        wrong = Graph(it).not_ancestors(pairs)
    finally:
        graphs._CHUNK_BITS = usual  # type: ignore[misc]
    assert wrong == {(i, j) for i, j in pairs if j not in above[i]}


@settings(deadline=None)
@given(digraphs(acyclic=False))
def test_every_knot_gives_one_true_cycle(it: Definition) -> None:
    above = naive_ancestors(it)
    knots = {frozenset(j for j in above if j in above[i] and i in above[j]) for i in above if i in above[i]}
    found = cycles(Graph(it))
    assert len(found) == len(knots)
    for cycle in found:
        assert any(set(cycle) <= knot and cycle[0] == min(knot) for knot in knots)
        assert len(set(cycle)) == len(cycle)
        for parent, child in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert f"n{parent}" in it.nodes[child].dependencies
    assert {problem.code for problem in problems(it)} <= {"cycle"}


def test_all_problems_of_a_graph_come_at_once() -> None:
    it = definition(
        ("weather", []), ("a", ["c"]), ("b", ["a"]), ("c", ["b"]), ("a", []), ("x", ["x"]), ("y", ["wether"])
    )
    found = {problem.code: problem for problem in problems(it)}
    assert sorted(found) == ["cycle", "duplicate_id", "self_dependency", "unknown_dependency"]
    assert "a → b → c → a" in found["cycle"].message
    assert found["duplicate_id"].loc == ("nodes", 4, "id")
    assert found["self_dependency"].node == "x"
    assert "did you mean weather?" in found["unknown_dependency"].message
    assert found["unknown_dependency"].loc == ("nodes", 6, "dependencies", 0)


def test_the_cycle_is_a_short_one() -> None:
    it = definition(("a", ["e", "b"]), ("b", ["a"]), ("c", ["b"]), ("d", ["c"]), ("e", ["d"]))
    assert cycles(Graph(it)) == [[0, 1]]


def test_a_chain_of_100_000_nodes_does_not_recurse() -> None:
    count = 100_000
    chain = [(f"n{i}", [f"n{i - 1}"] if i else []) for i in range(count)]
    graph = Graph(definition(*chain))
    assert graph.order == tuple(range(count))
    assert len(graph.descendants(0)) == count - 1
    assert graph.not_ancestors([(count - 1, 0), (0, count - 1)]) == {(0, count - 1)}
    chain[0] = ("n0", [f"n{count - 1}"])
    [problem] = problems(definition(*chain))
    assert problem.code == "cycle"
    assert len(problem.message) < 3_000


def test_a_fan_in_of_100_000_and_a_ladder_of_knots_are_linear() -> None:
    count = 100_000
    wide = definition(*((f"n{i}", []) for i in range(count)), ("end", [f"n{i}" for i in range(count)]))
    assert not Graph(wide).not_ancestors((count, i) for i in range(count))
    pairs = definition(*((f"n{i}", [f"n{i ^ 1}"]) for i in range(1_000)))
    assert len(problems(pairs)) == 500
