"""The Lua library: one file per function, each headed by its contract, generated from the model's tables."""

from __future__ import annotations

import re
from importlib.resources import files

from headrace.hot import library
from headrace.model.state import EXECUTION_TRANSITIONS, NODE_TRANSITIONS, ExecutionState, NodeState

FOLDER = files("headrace.hot") / "lua"


def test_every_file_is_a_function_and_every_function_a_file() -> None:
    names = {path.name.removesuffix(".lua") for path in FOLDER.iterdir()}
    assert names == {*library.SHARED, *library.FUNCTIONS}


def test_every_function_opens_with_its_contract() -> None:
    for name in library.FUNCTIONS:
        text = (FOLDER / f"{name}.lua").read_text()
        assert text.startswith(f"-- {name}: "), name
        header = text.split("\nlocal ", 1)[0]
        assert "-- Takes " in header, name
        assert name == "leave" or "-- Answers " in header, name


def test_the_verbs_of_the_transitions_are_functions() -> None:
    verbs = {verb for verb, _, _ in (*NODE_TRANSITIONS, *EXECUTION_TRANSITIONS)}
    assert verbs <= set(library.FUNCTIONS)


def test_lua_has_exactly_the_transitions_of_the_model() -> None:
    source = library.source()
    for name, states, table in (
        ("NODE_MOVES", NodeState, NODE_TRANSITIONS),
        ("EXECUTION_MOVES", ExecutionState, EXECUTION_TRANSITIONS),
    ):
        [body] = re.findall(rf"^local {name} = {{(.*)}}$", source, re.M)
        found = {
            state: set(re.findall(r"(\w) = true", moves)) for state, moves in re.findall(r"(\w) = {([^}]*)}", body)
        }
        assert found == {
            state.value: {to for _, source_state, to in table if source_state == state} for state in states
        }


def test_names_carry_the_version_of_the_source() -> None:
    [name] = re.findall(r"^#!lua name=(\w+)$", library.source(), re.M)
    version = name.removeprefix("headrace_")
    assert version.startswith(f"{library.FORMAT}_")
    assert library.function("advance") == f"hr{version}_advance"
    assert library.source().count("register_function{") == len(library.FUNCTIONS)


def test_only_what_brings_new_work_may_be_refused_under_memory_pressure() -> None:
    assert {name for name, flags in library.FUNCTIONS.items() if "allow-oom" not in flags} == {
        "open",
        "dispatch",
        "push",
        "complete",
    }
