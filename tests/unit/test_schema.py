"""The schema for editors: it accepts what `validate` accepts, and catches what an editor can catch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidDefinition
from headrace.model.configs import HandlerSpec
from headrace.model.document import load
from headrace.model.schema import definition_schema
from headrace.model.validation import validate
from headrace.worker.registry import Registry
from tests.unit.test_definition import FULL
from tests.unit.test_validation import HANDLERS, SCHEMA

ROOT = Path(__file__).parent.parent.parent
T = "{{ a.x }}"


def is_valid(document: Any, handlers: dict[str, HandlerSpec] = HANDLERS) -> bool:
    return jsonschema_rs.Draft202012Validator(definition_schema(handlers)).is_valid(document)


def is_accepted(document: Any, handlers: dict[str, HandlerSpec] = HANDLERS) -> bool:
    try:
        validate(document, handlers=handlers)
    except InvalidDefinition:
        return False
    return True


def with_node(**fields: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "nodes": [{"id": "a", "handler": "h"}, {"id": "b", "handler": "h", "dependencies": ["a"], **fields}],
    }


def definitions_in_the_repository() -> Iterator[Any]:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        yield pytest.param(path.read_text(), id=path.name)
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)):
        yield pytest.param(block, id=f"README {number + 1}")
    yield pytest.param((ROOT / "src/headrace/cli/project/workflow.yaml").read_text(), id="init")


@pytest.mark.parametrize("text", list(definitions_in_the_repository()))
def test_every_definition_in_the_repository_fits(text: str) -> None:
    document = load(text).data
    assert isinstance(document, dict)
    known = {each.name: HandlerSpec(each.name, each.config_schema) for each in Registry.load(["examples.handlers"])}
    others = {node["handler"]: HandlerSpec(node["handler"]) for node in document["nodes"]}
    assert is_valid(document, others | known)


def test_the_schema_is_a_schema_and_explains_every_field() -> None:
    schema = definition_schema(HANDLERS)
    jsonschema_rs.meta.validate(schema)
    for name in ("node", "retry_config", "input"):
        assert all(
            field.get("description") or "$ref" in field for field in schema["$defs"][name]["properties"].values()
        )
    assert all(field.get("description") for field in schema["properties"].values())
    assert schema["$defs"]["node"]["properties"]["handler"]["enum"] == sorted(HANDLERS)


GOOD: list[dict[str, Any]] = [
    {},
    {"handler": "call", "config": {"url": "https://x"}},
    {"handler": "call", "config": {"url": T, "retries": T, "headers": T, "codes": [T, 1], "either": {"a": T}}},
    {"handler": "call", "config": {"url": T, "auth": {"user": T}, "method": T}},
    {"handler": "input", "config": {}},
    {"config": None, "dependencies": None, "retry_config": None, "timeout_seconds": None, "description": None},
    {"dependencies": ["a"], "retry_config": {"max_retries": 3, "jitter": None}, "timeout_seconds": 0.5},
]
BAD: list[dict[str, Any]] = [
    {"handler": "nobody"},
    {"id": "secret"},
    {"id": "a-b"},
    {"confg": {}},
    {"handler": "call"},
    {"handler": "call", "config": None},
    {"handler": "call", "config": {"url": T, "ulr": 1}},
    {"handler": "call", "config": {"url": "short"}},
    {"handler": "call", "config": {"url": T, "retries": "3"}},
    {"handler": "call", "config": {"url": T, "method": "PUT"}},
    {"handler": "call", "config": {"url": T, "headers": {"x": 1}}},
    {"handler": "call", "config": {"url": T, "auth": {"pass": T}}},
    {"handler": "call", "config": {"url": T, "codes": [1, 2, 3]}},
    {"handler": "input", "config": {"x": 1}},
    {"dependencies": "a"},
    {"dependencies": ["a", "a"]},
    {"retry_config": {"max_retry": 3}},
    {"retry_config": {"exponential_base": 0.5}},
    {"timeout_seconds": 0},
    {"timeout_seconds": "30s"},
]


@pytest.mark.parametrize("fields", GOOD)
def test_good_nodes(fields: dict[str, Any]) -> None:
    assert is_accepted(with_node(**fields))
    assert is_valid(with_node(**fields))


@pytest.mark.parametrize("fields", BAD)
def test_bad_nodes(fields: dict[str, Any]) -> None:
    assert not is_accepted(with_node(**fields))
    assert not is_valid(with_node(**fields))


def test_the_fields_of_the_whole() -> None:
    full = {**FULL, "$schema": "headrace.schema.json"}
    handlers = {name: HandlerSpec(name) for name in ("input", "call_external_service")}
    assert is_valid(full, handlers)
    assert is_accepted(full, handlers)
    changes: list[dict[str, Any]] = [
        {"name": "Bad"},
        {"nodes": []},
        {"on_failure": "stop"},
        {"extra": 1},
        {"inputs": {"x": 3}},
    ]
    for change in changes:
        assert not is_valid({**full, **change}, handlers)


def test_definitions_of_handlers_do_not_meet() -> None:
    """Two handlers, each with a definition of the same name, and one named like the other's definition."""
    number, text = ({"type": "object", "properties": {"x": {"type": each}}} for each in ("integer", "string"))
    one, two = (
        {"type": "object", "properties": {"it": {"$ref": "#/$defs/It"}}, "$defs": {"It": it}} for it in (number, text)
    )
    handlers = {name: HandlerSpec(name, schema) for name, schema in {"h": one, "k": two, "h.It": text}.items()}
    for name, config, valid in [
        ("h", {"it": {"x": 1}}, True),
        ("h", {"it": {"x": "1"}}, False),
        ("k", {"it": {"x": "1"}}, True),
        ("k", {"it": {"x": 1}}, False),
        ("h.It", {"x": "1"}, True),
    ]:
        assert is_valid(with_node(handler=name, config=config), handlers) is valid


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [T, T]),
        ({"contains": {"const": 1}}, [T]),
        ({"const": [1]}, [T]),
        ({"enum": [[1], 2]}, [T]),
        ({"enum": ["a"]}, T),
        ({"not": {"type": "array"}}, [T]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, T),
        ({"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "number"}}]}, [T]),
        ({"if": {"items": {"type": "string"}}, "then": {"maxItems": 0}}, [T]),
        ({"prefixItems": [True], "items": False}, [1, T]),
        ({"properties": {"a": False}}, {"a": T}),
        ({"additionalProperties": {"type": "integer"}, "propertyNames": {"$ref": "#/$defs/a"}}, {"a": T}),
        ({"type": "string", "format": "uri", "minLength": 50}, T),
        ({"type": "string", "pattern": "^x"}, T),
        ({"minimum": 3}, T),
        ({"allOf": [{"type": "integer"}, {"maximum": 3}]}, T),
        ({"$ref": "#/$defs/a"}, T),
    ],
)
def test_what_templates_make_uncertain_is_left_to_the_run(schema: dict[str, Any], value: Any) -> None:
    own = {"type": "object", "properties": {"x": schema}, "$defs": {"a": {"enum": ["a"]}}}
    handlers = {"h": HandlerSpec("h"), "own": HandlerSpec("own", own)}
    document = with_node(handler="own", config={"x": value})
    assert is_accepted(document, handlers)
    assert is_valid(document, handlers)


names = st.sampled_from(["a", "b"])
leaves = st.sampled_from([None, True, 0, 3, 1.5, "", "text", T, f"x {T}", "{% if 1 %}1{% endif %}"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=6,
)
types = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
        "properties": st.dictionaries(names, inner, max_size=2),
        "additionalProperties": inner | st.booleans(),
        "patternProperties": inner.map(lambda each: {"^b": each}),
        "propertyNames": st.sampled_from([{"enum": ["a"]}, {"maxLength": 0}, {"$ref": "#/$defs/one"}]),
        "required": st.just(["a"]),
        "items": inner,
        "prefixItems": several,
        "uniqueItems": st.just(True),
        "contains": inner,
        "maxItems": st.integers(0, 2),
        "minProperties": st.integers(0, 2),
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "dependentRequired": st.just({"a": ["b"]}),
        "enum": st.lists(values, min_size=1, max_size=2),
        "const": values,
        "minLength": st.integers(0, 9),
        "pattern": st.just("^x"),
        "format": st.just("uri"),
        "minimum": st.integers(0, 3),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }
    chosen = st.sets(st.sampled_from(sorted(keywords)), max_size=3)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in sorted(keys)}))


any_schema = st.recursive(st.booleans() | types.map(lambda name: {"type": name}), schemas, max_leaves=6)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schemas(any_schema), any_schema, any_schema, st.dictionaries(names, values, max_size=2))
def test_whatever_validate_accepts_fits(schema: dict[str, Any], one: Any, two: Any, config: dict[str, Any]) -> None:
    one, two = ({"not": {"$ref": "#/$defs/two"}} if each is False else each for each in (one, two))
    handlers = {"h": HandlerSpec("h"), "own": HandlerSpec("own", {**schema, "$defs": {"one": one, "two": two}})}
    document = with_node(handler="own", config=config)
    assume(is_accepted(document, handlers))
    assert is_valid(document, handlers)


def some(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *options])


retries = st.fixed_dictionaries({}, optional={"max_retries": some(0, 3, -1), "max_delay": some(0, 1.5), "x": some()})
nodes = st.fixed_dictionaries(
    {"id": st.sampled_from(["a", "b", "c_1", "secret"]), "handler": st.sampled_from(["h", "input", "output", "zz"])},
    optional={
        "dependencies": some([], ["a"], ["b", "b"], "a"),
        "config": some({}, {"x": T}, []),
        "timeout_seconds": some(1, 0.5, 0, True, 1e9),
        "retry_config": st.none() | retries,
        "description": some("", "text", 3),
    },
)
definitions = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "0-x_y", "X"]), "nodes": st.lists(nodes, max_size=3, unique_by=lambda it: it["id"])},
    optional={
        "$schema": some("x"),
        "description": some("", 3),
        "inputs": some({}, {"x": True}, {"x": {"type": ["string", "null"], "enum": ["a"], "$comment": "c"}}, []),
        "on_failure": some("fail_fast", "continue", "stop"),
        "timeout_seconds": some(1, -1),
    },
)


@settings(deadline=None, max_examples=300)
@given(definitions)
def test_whatever_definition_validate_accepts_fits(it: Any) -> None:
    assert is_valid(it) or not is_accepted(it)


def test_the_schema_of_the_tests_is_not_too_lax() -> None:
    """As strict as the handler's own where nothing is templated and all of it can be said."""
    loosened = definition_schema(HANDLERS)["$defs"]["config:call"]
    assert loosened["required"] == SCHEMA["required"]
    assert loosened["additionalProperties"] is False
    assert loosened["properties"].keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
