from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidDefinition, InvalidInput, Problem
from headrace.model import template
from headrace.model.configs import HandlerSpec
from headrace.model.definition import Definition
from headrace.model.document import load
from headrace.model.validation import check_input, references, validate
from tests.unit.test_definition import FULL, junk
from tests.unit.test_graph import digraphs, naive_ancestors

SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "minLength": 8},
        "method": {"enum": ["GET", "POST"]},
        "retries": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "auth": {"$ref": "#/$defs/auth"},
        "nothing": {"type": "object", "additionalProperties": False},
        "codes": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True},
        "either": {
            "oneOf": [
                {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
                {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}},
            ]
        },
    },
    "required": ["url"],
    "additionalProperties": False,
    "$defs": {"auth": {"type": "object", "required": ["user"], "properties": {"user": {"type": "string"}}}},
}
HANDLERS = {
    "call": HandlerSpec("call", SCHEMA),
    "h": HandlerSpec("h"),
    "input": HandlerSpec("input", {"type": "object"}),
    "output": HandlerSpec("output"),
}


def problems(document: object, handlers: Any = None) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as raised:
        validate(document, handlers=handlers)
    return list(raised.value.problems)


def document(*nodes: tuple[str, list[str], Any], **fields: Any) -> dict[str, Any]:
    listed = [
        {"id": name, "handler": "h", "dependencies": parents, "config": config} for name, parents, config in nodes
    ]
    return {"name": "x", "nodes": listed, **fields}


def test_a_good_document_passes() -> None:
    assert validate(FULL, handlers=None).name == "city-report"


def test_problems_of_every_kind_come_in_one_answer() -> None:
    bad = {
        "name": "Bad",
        "nodes": [
            {"id": "a", "handler": "cal", "dependencies": ["b"]},
            {"id": "b", "handler": "h", "dependencies": ["a", "zz"]},
            {"id": "c", "handler": "call", "config": {"url": "{{ a. }}", "x": 1}},
            {"id": "d", "handler": "h", "config": {"x": "{{ c.x }}"}},
            {"id": "e", "handler": "input", "config": {"x": 1}, "tmeout": 3},
        ],
    }
    assert sorted(problem.code for problem in problems(bad, HANDLERS)) == [
        *("bad_config", "bad_name", "cycle", "input_config", "not_ancestor", "syntax"),
        *("unknown_dependency", "unknown_field", "unknown_handler"),
    ]


def test_names_in_templates() -> None:
    it = document(
        ("start", [], {}),
        ("b", ["start"], {"x": "{{ start.v }} {{ input.q }}"}),
        ("c", ["b"], {"deep": [{"x": "{{ start.v }}", "y": "{{ secret.KEY }}", "z": "${{ start.v }}"}]}),
        ("side", [], {}),
    )
    assert validate(it, handlers=HANDLERS)
    for source, code, says in [
        ("{{ side.v }}", "not_ancestor", "side is not an ancestor of c: add it to its dependencies"),
        ("{{ c.v }}", "not_ancestor", "own output"),
        ("{{ strat.v }}", "unknown_name", "did you mean start?"),
        ("{{ inputs.v }}", "unknown_name", "did you mean input?"),
        ("{{ secrets.KEY }}", "unknown_name", "did you mean secret?"),
        ("{{ secret }}", "syntax", "{{ secret.NAME }}"),
        ("{{ secret.KEY.x }}", "syntax", "{{ secret.NAME }}"),
        ("{{ secret.KEY | upper }}", "syntax", "secret.KEY can only be put into text"),
        ("{{ b.v | nosuchfilter }}", "syntax", "nosuchfilter"),
    ]:
        it["nodes"][2]["config"] = {"deep": [{"x": source}]}
        [problem] = problems(it)
        assert (problem.code, problem.node, problem.loc) == (code, "c", ("nodes", 2, "config", "deep", 0, "x"))
        assert says in problem.message
        assert "config.deep[0].x" in problem.message


def test_inputs_that_are_not_declared() -> None:
    inputs = {"city": {"type": "string"}}
    for source in (
        "{{ input.city }}",
        "{{ input.zip | default('x') }}",
        "{{ input }}",
        "{{ input.x if input.y else 1 }}",
    ):
        assert validate(document(("a", [], {"x": source}), inputs=inputs), handlers=None)
    assert validate(document(("a", [], {"x": "{{ input.zip }}"})), handlers=None)
    [problem] = problems(document(("a", [], {"x": "{{ input.cty }}"}), inputs=inputs))
    assert problem.code == "unknown_input"
    assert "did you mean city?" in problem.message


def config_problems(config: dict[str, Any]) -> list[tuple[Any, ...]]:
    call = {"id": "c", "handler": "call", "config": config, "dependencies": ["a"]}
    it = {"name": "x", "nodes": [{"id": "a", "handler": "h"}, call]}
    try:
        validate(it, handlers=HANDLERS)
    except InvalidDefinition as error:
        assert {problem.code for problem in error.problems} == {"bad_config"}  # noqa: PT017
        return [problem.loc[3:] for problem in error.problems]
    return []


T = "{{ a.x }}"


@pytest.mark.parametrize(
    ("config", "locs"),
    [
        ({"url": "https://x"}, []),
        ({"url": "short"}, [("url",)]),
        ({"url": T}, []),
        ({}, [()]),
        ({"url": T, "metod": "GET"}, [("metod",)]),
        ({"url": T, "method": "PUT"}, [("method",)]),
        ({"url": T, "method": T}, []),
        ({"url": T, "retries": "3"}, [("retries",)]),
        ({"url": T, "retries": T}, []),
        ({"url": T, "retries": [T]}, [("retries",)]),
        ({"url": T, "headers": {"a": T, "b": 3}}, [("headers", "b")]),
        ({"url": T, "headers": [T]}, [("headers",)]),
        ({"url": T, "headers": T}, []),
        ({"url": T, "auth": {"pass": T}}, [("auth",)]),
        ({"url": T, "auth": {"user": T}}, []),
        ({"url": T, "nothing": {"x": T}}, [("nothing",)]),
        ({"url": T, "codes": [T, T]}, []),
        ({"url": T, "codes": [T, "x"]}, [("codes", 1)]),
        ({"url": T, "codes": [T, 1, 2]}, [("codes",)]),
        ({"url": T, "either": {"a": T}}, []),
        ({"url": T, "either": {"c": T}}, [("either",)]),
        ({"url": T, "either": {"a": "x", "c": T}}, [("either",)]),
        ({"url": T, "either": {"a": T, "b": 1}}, []),
        ({"url": T, "either": {"a": 1, "b": 1}}, [("either",)]),
        ({"url": T, "method": [T]}, [("method",)]),
    ],
)
def test_configs_are_checked_as_far_as_they_are_not_templated(config: dict[str, Any], locs: Any) -> None:
    assert config_problems(config) == locs


def test_messages_about_configs_help() -> None:
    node = {"id": "c", "handler": "call", "config": {"ulr": "x", "retries": "3"}}
    messages = "\n".join(map(str, problems({"name": "x", "nodes": [node]}, HANDLERS)))
    assert "call has no field ulr: did you mean url?" in messages
    assert "the field url is missing" in messages
    assert 'config.retries: must be of type integer or null, not the text "3"' in messages


def test_fields_within_fields_are_suggested_too() -> None:
    auth = {"type": "object", "properties": {"user": {"type": "string"}}, "additionalProperties": False}
    schema = {
        "properties": {"auth": {"anyOf": [{"$ref": "#/$defs/auth"}, {"type": "null"}]}, "all": {"items": auth}},
        "$defs": {"auth": auth},
    }
    config = {"auth": {"usr": "x", "user": 1}, "all": [{"usre": "{{ input.x }}"}]}
    node = {"id": "c", "handler": "call", "config": config}
    found = problems({"name": "x", "nodes": [node]}, {"call": HandlerSpec("call", schema)})
    assert {(problem.loc[3:], problem.message) for problem in found} == {
        (("auth", "usr"), "config.auth: there is no field usr: did you mean user?"),
        (("auth", "user"), "config.auth.user: must be of type string, not a number"),
        (("all", 0, "usre"), "config.all[0]: there is no field usre: did you mean user?"),
    }


YAML_FILE = """\
name: w
inputs: {city: {type: string}}
nodes:
  - id: start
    handler: inpt
  - {id: other, handler: h}
  - id: b
    handler: call
    dependencies: [start, strat]
    config:
      url: "https://x/{{ start.x }}/{{ strat.y }}"
      method: PUT
      headers: {a: "{{ other.x }}", b: "{{ input.cty }}"}
      codes:
        - 1
        - {x: 2}
      auth: {user: "{{ start. }}"}
    retry_config: {max_retry: 3}
"""


def test_every_problem_of_a_file_has_its_line_and_column() -> None:
    document = load(YAML_FILE)
    found = document.located(problems(document.data, HANDLERS))
    assert [(problem.line, problem.column, problem.node, problem.code) for problem in found] == [
        (5, 5, "start", "unknown_handler"),
        (9, 27, "b", "unknown_dependency"),
        (11, 40, "b", "unknown_name"),
        (12, 7, "b", "bad_config"),
        (13, 24, "b", "not_ancestor"),
        (13, 44, "b", "unknown_input"),
        (16, 11, "b", "bad_config"),
        (17, 14, "b", "syntax"),
        (18, 20, "b", "unknown_field"),
    ]


def test_without_handlers_nothing_is_said_about_them() -> None:
    it = document(("a", [], {"x": 1}))
    assert validate(it, handlers=None)
    [problem] = problems(it, {"hh": HandlerSpec("hh")})
    assert (problem.code, problem.loc) == ("unknown_handler", ("nodes", 0, "handler"))
    assert "did you mean hh?" in problem.message
    it["nodes"][0]["handler"] = "quite_another"
    [problem] = problems(it, {"hh": HandlerSpec("hh"), "kk": HandlerSpec("kk")})
    assert problem.message == "there is no handler quite_another: known are hh, kk"


names = st.sampled_from(["a", "b1", "input", "true", "none", "in", "not", "loop", "x_y", "output", "items", "_u", "9"])
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
pieces = (
    paths.map("{{{{ {} }}}}".format) | paths.map("{{{{{}}}}}".format) | st.sampled_from(["x", " ", "{", "}", "$", "%}"])
)


@settings(deadline=None)
@given(st.lists(pieces | st.sampled_from(["{{ a|upper }}", "{% if a %}", "{% endif %}", "{# c #}", "\n"])).map("".join))
def test_references_seen_without_compiling_are_those_of_the_compiler(source: str) -> None:
    try:
        expected: Any = template.compile(source).references
    except Exception as error:
        expected = type(error)
    found = references(source)
    assert (type(found) if isinstance(found, Exception) else found) == expected


@settings(deadline=None)
@given(digraphs(acyclic=True), st.data())
def test_reading_is_allowed_from_ancestors_alone(it: Definition, data: st.DataObject) -> None:
    above = naive_ancestors(it)
    reads = {i: data.draw(st.sets(st.sampled_from(sorted(above)), max_size=3)) for i in above}
    nodes = [
        (node.id, list(node.dependencies), {"x": [f"{{{{ n{j}.v }}}}" for j in sorted(reads[i])]})
        for i, node in enumerate(it.nodes)
    ]
    wrong = sum(len(reads[i] - above[i]) for i in above)
    if wrong:
        assert [problem.code for problem in problems(document(*nodes))] == ["not_ancestor"] * wrong
    else:
        assert validate(document(*nodes), handlers=HANDLERS)


@settings(deadline=None)
@given(junk | st.fixed_dictionaries({"name": st.just("x"), "nodes": st.lists(junk), "inputs": junk}))
def test_no_document_raises_anything_else(it: Any) -> None:
    try:
        validate(it, handlers=HANDLERS)
    except InvalidDefinition as error:
        assert error.problems  # noqa: PT017


def test_100_000_nodes_with_200_000_edges_and_distant_references_are_validated() -> None:
    count = 100_000
    nodes = []
    for i in range(count):
        config = {"x": f"{{{{ n{i - 5_001}.v }}}}"} if i > 5_001 else {}
        nodes.append((f"n{i}", [f"n{j}" for j in (i - 1, i - 5_000) if j >= 0], config))
    assert len(validate(document(*nodes), handlers=HANDLERS).nodes) == count
    nodes[0][2]["x"] = f"{{{{ n{count - 1}.v }}}}"
    [problem] = problems(document(*nodes))
    assert (problem.code, problem.node) == ("not_ancestor", "n0")


def inputs(**schemas: Any) -> Definition:
    return validate(document(("a", [], {}), inputs=schemas), handlers=None)


def input_codes(definition: Definition, params: object) -> list[tuple[str, Any]]:
    with pytest.raises(InvalidInput) as raised:
        check_input(definition, params)
    return [(problem.code, problem.loc) for problem in raised.value.problems]


def test_inputs_are_checked_and_defaults_filled() -> None:
    definition = inputs(city={"type": "string", "default": "Berlin"}, days={"type": "integer", "minimum": 1}, any=True)
    assert check_input(definition, {"days": 2, "any": [1]}) == {"days": 2, "any": [1], "city": "Berlin"}
    assert check_input(definition, {"days": 2, "any": None, "city": "Rome"})["city"] == "Rome"
    assert input_codes(definition, {"cty": "x", "days": 0}) == [
        ("unknown_input", ("cty",)),
        ("bad_input", ("days",)),
        ("missing_input", ("any",)),
    ]


def test_a_default_is_not_shared_between_executions() -> None:
    definition = inputs(tags={"default": []})
    check_input(definition, {})["tags"].append("mine")
    assert check_input(definition, None) == {"tags": []}


def test_without_declared_inputs_any_json_goes_and_nothing_else() -> None:
    definition = inputs()
    assert check_input(definition, {"x": [1, {"y": None}]}) == {"x": [1, {"y": None}]}
    assert check_input(definition, None) == {}
    assert input_codes(definition, [1]) == [("wrong_type", ())]
    assert input_codes(definition, {"x": [float("nan")], "y": 2**64}) == [("not_json", ("x", 0)), ("not_json", ("y",))]


def test_a_catastrophic_pattern_is_harmless() -> None:
    definition = inputs(x={"type": "string", "pattern": "^(a+)+$"})
    assert input_codes(definition, {"x": "a" * 100_000 + "b"}) == [("bad_input", ("x",))]


def test_a_schema_and_a_value_that_are_large_together_end_in_one_problem() -> None:
    """Tried branch by branch and item by item, with every error kept, this takes minutes."""
    branches = [{"required": [f"p{i}"], "properties": {f"p{i}": {"const": i}}} for i in range(900)]
    inputs = {"x": {"type": "array", "items": {"anyOf": branches}}}
    nodes = [{"id": "a", "handler": "input"}]
    definition = validate({"name": "w", "inputs": inputs, "nodes": nodes}, handlers=None)
    with pytest.raises(InvalidInput) as caught:
        check_input(definition, {"x": [{"p": 1}] * 5_000})
    assert len(caught.value.problems) == 1
