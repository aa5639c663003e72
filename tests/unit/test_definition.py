from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidDefinition, Problem
from headrace.model.definition import Definition, Node, RetryConfig, parse
from headrace.model.findings import MAX_PROBLEMS
from tests.unit.test_payload import values

FULL: dict[str, Any] = {
    "name": "city-report",
    "description": "Weather",
    "inputs": {"city": {"type": "string", "default": "Berlin"}},
    "on_failure": "continue",
    "timeout_seconds": 600,
    "nodes": [
        {"id": "start", "handler": "input"},
        {
            "id": "weather",
            "handler": "call_external_service",
            "dependencies": ["start"],
            "config": {"url": "https://x/{{ start.city }}", "list": [1, None, {"a": 1.5}]},
            "timeout_seconds": 30,
            "retry_config": {"max_retries": 0, "initial_delay": 1, "jitter": False},
            "description": "asks",
        },
    ],
}


def problems(document: object, **options: int) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as raised:
        parse(document, **options)
    return list(raised.value.problems)


def with_node(**fields: Any) -> dict[str, Any]:
    return {"name": "x", "nodes": [{"id": "a", "handler": "h", **fields}]}


def test_a_full_document_becomes_values() -> None:
    definition = parse(FULL)
    assert definition.name == "city-report"
    assert definition.on_failure == "continue"
    assert definition.inputs == FULL["inputs"]
    assert definition.nodes[0] == Node("start", "input")
    weather = definition.nodes[1]
    assert weather.dependencies == ("start",)
    assert weather.config == FULL["nodes"][1]["config"]
    assert weather.timeout_seconds == 30.0
    assert weather.retry_config == RetryConfig(max_retries=0, initial_delay=1.0, jitter=False)


def test_empty_optional_fields_read_as_absent() -> None:
    empty = dict.fromkeys(["dependencies", "config", "timeout_seconds", "retry_config", "description"])
    assert parse(with_node(**empty)) == parse(with_node())


def test_a_retry_config_takes_what_it_leaves_open_from_the_defaults() -> None:
    defaults = RetryConfig(3, 1.0, 60.0, 2.0, True)
    assert RetryConfig().over(defaults) == defaults
    assert RetryConfig(max_retries=0, jitter=False).over(defaults) == RetryConfig(0, 1.0, 60.0, 2.0, False)


@settings(deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1), values, max_size=4),
    st.none() | st.floats(0.001, 1e6),
    st.sampled_from(["fail_fast", "continue"]),
    st.none() | st.builds(RetryConfig, max_retries=st.none() | st.integers(0, 9), jitter=st.none() | st.booleans()),
)
def test_the_text_round_trips(config: Any, timeout: Any, on_failure: Any, retry: Any) -> None:
    nodes = (Node("a", "h"), Node("b", "h", ("a",), config, timeout, retry, "text"))
    definition = Definition("x", nodes, "d", {"i": True}, on_failure, timeout)
    text = definition.to_json()
    again = Definition.from_json(text)
    assert again == definition
    assert again.to_json() == text
    assert again.content_hash == definition.content_hash


def test_the_hash_ignores_the_order_of_keys_and_nothing_else() -> None:
    one, two = ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1})
    assert parse(with_node(config=one)).content_hash == parse(with_node(config=two)).content_hash
    assert parse(with_node(timeout_seconds=3)).content_hash == parse(with_node(timeout_seconds=3.0)).content_hash
    assert parse(with_node(config={"a": [1, 2]})).content_hash != parse(with_node(config={"a": [2, 1]})).content_hash
    assert parse(with_node()).content_hash != parse(with_node(description="x")).content_hash


BAD: list[tuple[dict[str, Any], str, tuple[str | int, ...]]] = [
    ({"id": "1a"}, "bad_name", ("nodes", 0, "id")),
    ({"id": "a-b"}, "bad_name", ("nodes", 0, "id")),
    ({"id": "a\n"}, "bad_name", ("nodes", 0, "id")),
    ({"id": "x" * 65}, "bad_name", ("nodes", 0, "id")),
    ({"id": None}, "missing_field", ("nodes", 0, "id")),
    ({"id": 3}, "wrong_type", ("nodes", 0, "id")),
    ({"id": "secret"}, "reserved_id", ("nodes", 0, "id")),
    ({"handler": ""}, "bad_name", ("nodes", 0, "handler")),
    ({"handler": "a b"}, "bad_name", ("nodes", 0, "handler")),
    ({"dependencies": "b"}, "wrong_type", ("nodes", 0, "dependencies")),
    ({"dependencies": [1]}, "wrong_type", ("nodes", 0, "dependencies", 0)),
    ({"dependencies": ["b", "b"]}, "duplicate_dependency", ("nodes", 0, "dependencies", 1)),
    ({"config": []}, "wrong_type", ("nodes", 0, "config")),
    ({"config": {"a": float("nan")}}, "not_json", ("nodes", 0, "config", "a")),
    ({"config": {"a": [2**63]}}, "not_json", ("nodes", 0, "config", "a", 0)),
    ({"config": {"a": "\0"}}, "not_json", ("nodes", 0, "config", "a")),
    ({"config": {"a": "\ud800"}}, "not_json", ("nodes", 0, "config", "a")),
    ({"config": {1: 2}}, "not_json", ("nodes", 0, "config")),
    ({"timeout_seconds": -1}, "out_of_range", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": 0}, "out_of_range", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": True}, "wrong_type", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": "3"}, "wrong_type", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": float("inf")}, "out_of_range", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": float("nan")}, "out_of_range", ("nodes", 0, "timeout_seconds")),
    ({"timeout_seconds": 10**400}, "out_of_range", ("nodes", 0, "timeout_seconds")),
    ({"retry_config": {"max_retries": -1}}, "out_of_range", ("nodes", 0, "retry_config", "max_retries")),
    ({"retry_config": {"max_retries": 1.0}}, "wrong_type", ("nodes", 0, "retry_config", "max_retries")),
    ({"retry_config": {"exponential_base": 0.5}}, "out_of_range", ("nodes", 0, "retry_config", "exponential_base")),
    ({"retry_config": {"jitter": 1}}, "wrong_type", ("nodes", 0, "retry_config", "jitter")),
    ({"retry_config": {"max_retry": 1}}, "unknown_field", ("nodes", 0, "retry_config", "max_retry")),
    ({"dependson": []}, "unknown_field", ("nodes", 0, "dependson")),
    ({"$schema": "x"}, "unknown_field", ("nodes", 0, "$schema")),
]


@pytest.mark.parametrize(("fields", "code", "loc"), BAD)
def test_each_bad_field_of_a_node_is_one_problem_in_its_place(fields: Any, code: str, loc: Any) -> None:
    assert [(problem.code, problem.loc) for problem in problems(with_node(**fields))] == [(code, loc)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "Upper"}, "bad_name"),
        ({"name": None}, "missing_field"),
        ({"nodes": None}, "missing_field"),
        ({"nodes": []}, "no_nodes"),
        ({"nodes": {}}, "wrong_type"),
        ({"nodes": [3]}, "wrong_type"),
        ({"on_failure": "stop"}, "bad_choice"),
        ({"timeout_seconds": -1}, "out_of_range"),
        ({"inputs": []}, "wrong_type"),
        ({"description": 3}, "wrong_type"),
        ({"$schema": 3}, "wrong_type"),
    ],
)
def test_each_bad_field_of_a_definition_is_one_problem(fields: Any, code: str) -> None:
    assert [problem.code for problem in problems({**with_node(), **fields})] == [code]


def test_all_problems_come_at_once_with_their_node() -> None:
    document = {"name": "X", "nodes": [{"id": "a"}, {"id": "b", "handler": "h", "confg": {}}], "extra": 1}
    found = {(problem.code, problem.node) for problem in problems(document)}
    assert found == {("bad_name", None), ("missing_field", "a"), ("unknown_field", "b"), ("unknown_field", None)}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (with_node(confg={}), "a node has no field confg: did you mean config?"),
        (with_node(Config={}), "did you mean config?"),
        (with_node(depends_on=["b"]), "a node has no field depends_on: did you mean dependencies?"),
        (with_node(timeout=3), "did you mean timeout_seconds?"),
        (with_node(retries=3), "did you mean retry_config?"),
        (with_node(retry_config={"max_retry": 3}), "retry_config has no field max_retry: did you mean max_retries?"),
        ({**with_node(), "on_failed": "x"}, "the definition has no field on_failed: did you mean on_failure?"),
        ({**with_node(), "tasks": []}, "did you mean nodes?"),
        (with_node(id="my-node"), "did you mean my_node?"),
        ({**with_node(), "name": "My Flow!"}, "did you mean my-flow?"),
        (with_node(dependencies="b"), 'dependencies must be a list of node ids, not the text "b": write [b]'),
        (with_node(retry_config={"jitter": "yes"}), 'jitter must be true or false, not the text "yes"'),
        (with_node(timeout_seconds="30s"), 'timeout_seconds must be a number, not the text "30s"'),
        (with_node(dependencies=[{"b": None}]), "dependencies[0] must be a node id, not a mapping"),
        ({"name": "x", "nodes": {"a": {}}}, "nodes must be a list (each node begins with - id:), not a mapping"),
        (None, "there is nothing in it"),
    ],
)
def test_messages_say_what_to_do(document: Any, says: str) -> None:
    [problem] = problems(document)
    assert says in problem.message


def test_a_schema_for_editors_is_no_part_of_the_definition() -> None:
    assert parse({**with_node(), "$schema": "headrace.schema.json"}) == parse(with_node())


def test_suggestions_for_100_000_misspelt_names_are_bounded() -> None:
    nodes = [{"id": f"n{i}", "handler": "h", f"confg{i}": 1} for i in range(100_000)]
    found = problems({"name": "x", "nodes": nodes})
    assert len(found) == MAX_PROBLEMS + 1
    assert sum("did you mean" in problem.message for problem in found) <= 50


def test_messages_help() -> None:
    assert "quotes" in str(problems(with_node(config={"day": datetime.date(2024, 1, 1)}))[0])


def test_depth_and_number_are_bounded() -> None:
    deep: Any = 1
    for _ in range(70):
        deep = {"a": deep}
    assert [problem.code for problem in problems(with_node(config=deep))] == ["not_json"]
    many = {"name": "x", "nodes": [{"id": f"n{i}", "handler": "h"} for i in range(4)]}
    assert len(parse(many, max_nodes=4).nodes) == 4
    assert [problem.code for problem in problems(many, max_nodes=3)] == ["too_many_nodes"]


def test_a_flood_of_problems_is_counted_not_listed() -> None:
    found = problems({"name": "x", "nodes": [0] * (MAX_PROBLEMS + 5)})
    assert len(found) == MAX_PROBLEMS + 1
    assert "5 more" in found[-1].message


@pytest.mark.parametrize(
    "schema",
    [
        3,
        {"type": "strng"},
        {"minimum": "x"},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        {"pattern": "((a{1000}){1000}){1000}"},
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "file:///etc/passwd"},
        {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
        {"properties": {"default": {"unevaluatedProperties": False}}},
        {"enum": ["x" * 70_000]},
    ],
)
def test_unusable_and_hostile_input_schemas_are_refused(schema: Any) -> None:
    assert [problem.code for problem in problems({**with_node(), "inputs": {"x": schema}})] == ["bad_schema"]


def test_a_default_must_fit_its_own_schema() -> None:
    document = {**with_node(), "inputs": {"x": {"type": "integer", "default": "no"}}}
    assert [(p.code, p.loc) for p in problems(document)] == [("bad_default", ("inputs", "x", "default"))]


field_names = st.sampled_from(
    ["name", "nodes", "id", "handler", "dependencies", "config", "timeout_seconds", "retry_config", "inputs", "type"]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(field_names | st.integers() | st.text(), inner),
    max_leaves=25,
)


@settings(deadline=None)
@given(junk | st.fixed_dictionaries({"name": junk, "nodes": st.lists(junk), "inputs": junk}))
def test_no_document_raises_anything_else(document: Any) -> None:
    try:
        definition = parse(document)
    except InvalidDefinition as error:
        assert error.problems  # noqa: PT017
    else:
        assert Definition.from_json(definition.to_json()) == definition


def test_the_order_of_keys_is_kept_and_does_not_count() -> None:
    def workflow(config: dict[str, int]) -> Definition:
        return parse({"name": "w", "nodes": [{"id": "a", "handler": "output", "config": config}]})

    one, other = workflow({"b": 1, "a": 2}), workflow({"a": 2, "b": 1})
    assert list(Definition.from_json(one.to_json()).nodes[0].config) == ["b", "a"]
    assert one.content_hash == other.content_hash != workflow({"a": 1, "b": 2}).content_hash
