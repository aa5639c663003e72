"""The hot store's functions on a real server against the reference, over generated histories of faults.

A history: one or two executions of random DAGs, some dozen steps (history.py), and then the end without faults. After
every call answers and states are equal, and the invariants hold. Four themes of at least 500 histories each, so that
processes can share them; each counts its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.hot.store import HotStore
from tests.conformance.history import History, Shape, Step

PROFILE = settings.get_profile(os.environ.get("HEADRACE_HISTORIES", "ci"))  # conftest.py
HISTORIES = 500
NODES = 12

# How often a move is made among the others. "rest" comes first: it is what a step shrinks to.
WORK = {"rest": 1, "advance": 5, "dispatch": 3, "claim": 3, "report": 3}
USUAL = WORK | dict.fromkeys(("kept", "renew", "release", "cancel", "forget", "reject", "lose", "gap", "ghost"), 1)
USUAL |= dict.fromkeys(("due", "again", "open"), 2)
RETRIED = WORK | {"due": 3, "gap": 1, "again": 1, "kept": 1, "renew": 1, "release": 2, "ghost": 2, "reject": 1}
REOPENED = WORK | {"open": 3, "kept": 2, "again": 2, "forget": 2, "cancel": 1, "lose": 1, "due": 1}

Play = Callable[[int, list[Shape], list[Step]], None]


def shapes(content_hash: str) -> st.SearchStrategy[Shape]:
    return st.builds(
        _shape,
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=NODES),
        st.sampled_from(["fail_fast", "continue"]),
        st.sampled_from([0, 600_000]),
        st.just(content_hash),
    )


def _shape(above: list[tuple[int, int]], mode: str, timeout_ms: int, content_hash: str) -> Shape:
    """Each node names its parents by how many nodes back they are; 0 is none."""
    names = [f"n{i}" for i in range(len(above))]
    parents = {
        name: tuple(sorted({names[i - back] for back in above[i] if 0 < back <= i})) for i, name in enumerate(names)
    }
    handlers = {name: "h1" if i % 3 else "h2" for i, name in enumerate(names)}
    return Shape(parents, handlers, mode, timeout_ms, content_hash)


def steps(moves: dict[str, int]) -> st.SearchStrategy[list[Step]]:
    """A step is drawn as one number, which costs a quarter of drawing its parts; 0 is a rest."""
    often = [move for move, times in moves.items() for _ in range(times)]

    def step(number: int) -> Step:
        number, move = divmod(number, len(often))
        number, pick = divmod(number, 16)
        fate, how = divmod(number, 16)
        return Step(often[move], pick, how, fate)

    return st.lists(st.integers(0, len(often) * 16 * 16 * 10 - 1).map(step), min_size=25, max_size=60)


ONE = st.tuples(shapes("d1")).map(list)
TWO_OF_ONE_DEFINITION = shapes("d1").map(lambda shape: [shape, shape])
TWO = st.tuples(shapes("d1"), shapes("d2")).map(list)


@pytest.fixture(scope="module")
def play(valkey_url: str) -> Iterator[Play]:
    """Plays a history to its end, on a loop that serves them all."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stores: dict[int, HotStore] = {}

        async def history(partitions: int, of: list[Shape], moves: list[Step]) -> None:
            if partitions not in stores:
                stores[partitions] = HotStore(valkey_url, partitions=partitions)
                await stores[partitions].prepare()
            played = History(stores[partitions], {f"x{i}": shape for i, shape in enumerate(of)})
            await played.begin()
            for move in moves:
                await played.step(move)
            await played.drain()

        yield lambda partitions, of, moves: runner.run(history(partitions, of, moves))
        for store in stores.values():
            runner.run(store.aclose())


@pytest.mark.parametrize(
    ("partitions", "of", "moves"),
    [
        pytest.param(1, ONE, USUAL, id="one-execution"),
        pytest.param(1, TWO_OF_ONE_DEFINITION, RETRIED, id="retries-and-leases"),
        pytest.param(1, TWO, REOPENED, id="runs-and-rebuilds"),
        pytest.param(3, TWO, USUAL, id="three-partitions"),
    ],
)
def test_functions_agree_with_the_reference(
    play: Play, partitions: int, of: st.SearchStrategy[list[Shape]], moves: dict[str, int]
) -> None:
    completed = 0

    @settings(PROFILE)
    @given(of, steps(moves))
    def histories(of: list[Shape], moves: list[Step]) -> None:
        nonlocal completed
        play(partitions, of, moves)
        completed += 1

    histories()
    assert completed >= min(HISTORIES, PROFILE.max_examples)
