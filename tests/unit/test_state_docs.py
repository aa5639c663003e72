"""docs/state-machine.md says what model/state.py says: its tables and diagrams are compared with the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import pytest

from headrace.model.state import (
    EXECUTION_TRANSITIONS,
    NODE_TRANSITIONS,
    TERMINAL_EXECUTIONS,
    TERMINAL_NODES,
    ExecutionState,
    NodeState,
    shown,
)

PAGE = Path(__file__).parents[2] / "docs" / "state-machine.md"
ARROW = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
OUTSIDE = "[*]"

Transitions = list[tuple[str, str, str]]


def section(heading: str) -> str:
    """The text under a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE.name} has no heading {heading!r}"
    return found[1]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, its head first."""
    paragraph = next(part.strip() for part in section(heading).split("\n\n") if part.strip().startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in paragraph.splitlines()]
    assert set("".join(rows[1])) == {"-"}
    return [rows[0], *rows[2:]]


def drawn(heading: str) -> list[tuple[str, str, str | None]]:
    """The arrows of the diagram under a heading: from, to, label."""
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", section(heading), re.DOTALL)
    assert diagram, f"there is no state diagram under {heading!r}"
    arrows = ARROW.findall(diagram[1])
    assert len(arrows) == len(diagram[1].strip().splitlines()), "a line of the diagram is not an arrow"
    return [(source, to, label or None) for source, to, label in arrows]


def named(transitions: Iterable[tuple[str, StrEnum, StrEnum]]) -> Transitions:
    return sorted((verb, source.name, to.name) for verb, source, to in transitions)


NODE_CASE = ("node", NODE_TRANSITIONS)
EXECUTION_CASE = ("execution", EXECUTION_TRANSITIONS)


@pytest.mark.parametrize(("what", "transitions"), [NODE_CASE, EXECUTION_CASE], ids=["node", "execution"])
def test_the_table_of_transitions(what: str, transitions: Iterable[tuple[str, StrEnum, StrEnum]]) -> None:
    head, *rows = table(f"Transitions of {'a' if what == 'node' else 'an'} {what}")
    assert head[:3] == ["verb", "from", "to"]
    assert sorted((verb, source, to) for verb, source, to, *_ in rows) == named(transitions)


@pytest.mark.parametrize(("what", "transitions"), [NODE_CASE, EXECUTION_CASE], ids=["node", "execution"])
def test_the_diagram_of_transitions(what: str, transitions: Iterable[tuple[str, StrEnum, StrEnum]]) -> None:
    arrows = drawn(f"States of {'a' if what == 'node' else 'an'} {what}")
    inner = [
        (verb.strip(), source, to)
        for source, to, label in arrows
        if OUTSIDE not in (source, to)
        for verb in (label or "").split(",")
    ]
    assert sorted(inner) == named(transitions)


@pytest.mark.parametrize(
    ("heading", "first", "terminal"),
    [
        # CANCELLED is a state of nodes that is shown and never stored: no arrow leads to it or away from it
        ("States of a node", NodeState.PENDING, TERMINAL_NODES - {NodeState.CANCELLED}),
        ("States of an execution", ExecutionState.OPENING, TERMINAL_EXECUTIONS),
    ],
    ids=["node", "execution"],
)
def test_the_diagram_begins_and_ends_right(heading: str, first: StrEnum, terminal: Iterable[StrEnum]) -> None:
    arrows = drawn(heading)
    assert [to for source, to, _ in arrows if source == OUTSIDE] == [first.name]
    assert sorted(source for source, to, _ in arrows if to == OUTSIDE) == sorted(state.name for state in terminal)


@pytest.mark.parametrize(
    ("heading", "states"),
    [("States of a node", NodeState), ("States of an execution", ExecutionState)],
    ids=["node", "execution"],
)
def test_the_letters_and_the_drawing_in_text(heading: str, states: type[StrEnum]) -> None:
    _, *rows = table(heading)
    assert {name: letter for name, letter, _ in rows} == {state.name: state.value for state in states}
    in_text = re.search(r"```\n(.*?)```", section(heading).partition("The same as text:")[2], re.DOTALL)
    assert in_text
    reachable = {name for source, to, _ in drawn(heading) for name in (source, to)} - {OUTSIDE}
    assert set(re.findall(r"[A-Z]{4,}", in_text[1])) == reachable


def test_what_users_see() -> None:
    head, *rows = table("What users see")
    executions = [ExecutionState[name] for name in head[1:]]
    assert set(executions) == set(ExecutionState) - {ExecutionState.OPENING}
    assert [row[0] for row in rows] == [state.name for state in NodeState]
    told = {(row[0], to.name): cell for row in rows for to, cell in zip(executions, row[1:], strict=True)}
    assert told == {(node.name, to.name): shown(node, to).name for node in NodeState for to in executions}
