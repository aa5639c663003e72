"""Workflows in Python: the same definition as YAML, references that become templates, and mistakes that are told."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from headrace.builder import Reference, Workflow, literal
from headrace.errors import InvalidDefinition
from headrace.model import template, yaml_writer
from headrace.model.definition import Definition
from headrace.model.document import load
from headrace.model.validation import validate

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "builder.md"

CITY_REPORT = """
name: city-report
description: Weather and a summary
inputs:
  city: {type: string, default: Berlin}
on_failure: continue
timeout_seconds: 600
nodes:
  - id: start
    handler: input
  - id: weather
    handler: call_external_service
    dependencies: [start]
    config: {method: GET, url: "https://api.example/{{ start.city }}"}
    timeout_seconds: 30
    retry_config: {max_retries: 3, initial_delay: 1.0, jitter: true}
  - id: summary
    handler: llm_service
    dependencies: [weather]
    config: {model: echo, prompt: "Summarise: {{ weather.body }}"}
    description: One sentence
  - id: done
    handler: output
    dependencies: [summary, weather]
    config: {text: "{{ summary.text }}", first: "{{ weather.body['items'][0].name }}"}
"""


def city_report() -> Workflow:
    wf = Workflow(
        "city-report",
        description="Weather and a summary",
        inputs={"city": {"type": "string", "default": "Berlin"}},
        on_failure="continue",
        timeout_seconds=600,
    )
    start = wf.node("start", "input")
    weather = wf.node(
        "weather",
        "call_external_service",
        config={"method": "GET", "url": f"https://api.example/{start.city}"},
        timeout_seconds=30,
        retry_config={"max_retries": 3, "initial_delay": 1.0, "jitter": True},
    )
    summary = wf.node(
        "summary",
        "llm_service",
        config={"model": "echo", "prompt": f"Summarise: {weather.body}"},
        description="One sentence",
    )
    config = {"text": summary.text, "first": weather.body["items"][0].name}
    wf.node("done", "output", config=config, dependencies=[summary])
    return wf


def from_yaml(text: str) -> Definition:
    return validate(load(text).data, handlers=None)


def dependencies(wf: Workflow) -> dict[str, list[str]]:
    return {node["id"]: node.get("dependencies", []) for node in wf.to_dict()["nodes"]}


def test_it_gives_the_definition_that_yaml_gives() -> None:
    built, read = city_report().definition(), from_yaml(CITY_REPORT)
    assert built == read
    assert built.content_hash == read.content_hash
    assert from_yaml(city_report().to_yaml()).content_hash == read.content_hash


# Dependencies


def test_dependencies_are_those_given_and_then_those_read_in_the_order_of_the_workflow() -> None:
    wf = Workflow("order")
    a, b, c = (wf.node(name, "note") for name in "abc")
    wf.node("d", "note", config={"x": [f"{c.x} and {b.x}", {"y": (a.y,)}]})
    wf.node("e", "note", config={"x": b.x}, dependencies=[c, "a", b.deep, c])
    assert dependencies(wf) == {"a": [], "b": [], "c": [], "d": ["a", "b", "c"], "e": ["c", "a", "b"]}


def test_templates_written_by_hand_count_too() -> None:
    wf = Workflow("by-hand")
    wf.node("first", "note", config={"x": "{% for item in later.items %}{{ item.first }}{% endfor %}"})
    wf.node("later", "note", config={"x": "{{ input.x | default('later') }} {{ secret.KEY }}", "y": "{{ broken"})
    assert dependencies(wf) == {"first": ["later"], "later": []}


def test_a_node_that_is_called_input_is_what_input_reads() -> None:
    wf = Workflow("shadow")
    wf.node("input", "input")
    wf.node("a", "note", config={"x": wf.input.city})
    assert dependencies(wf) == {"input": [], "a": ["input"]}


def test_inputs_and_secrets() -> None:
    wf = Workflow("inputs", inputs={"city": {"type": "string"}})
    wf.node("a", "note", config={"city": wf.input.city, "headers": {"Authorization": f"Bearer {wf.secret.API_KEY}"}})
    [node] = wf.definition().nodes
    assert node.config == {
        "city": "{{ input.city }}",
        "headers": {"Authorization": "Bearer {{ secret.API_KEY }}"},
    }


def test_what_is_wrong_is_said_by_validation_all_at_once() -> None:
    wf = Workflow("Wrong Name")
    own = wf.node("a", "note", config={"x": "{{ nobody.x }}", "y": "{{ broken"})
    wf.node("a", "note", config={"x": own.x}, timeout_seconds=0)
    with pytest.raises(InvalidDefinition) as caught:
        wf.definition()
    assert {problem.code for problem in caught.value.problems} >= {
        "bad_name",
        "unknown_name",
        "syntax",
        "duplicate_id",
        "out_of_range",
    }
    assert "a node cannot read its own output" in str(caught.value)
    with pytest.raises(InvalidDefinition):
        wf.to_yaml()


def test_what_the_caller_changes_later_changes_nothing() -> None:
    config, inputs = {"x": [1]}, {"n": {"type": "integer"}}
    wf = Workflow("copies", inputs=inputs)
    wf.node("a", "note", config=config)
    config["x"].append(2)
    inputs["n"]["type"] = "string"
    wf.to_dict()["nodes"][0]["config"]["x"].append(3)
    assert wf.to_dict()["nodes"] == [{"id": "a", "handler": "note", "config": {"x": [1]}}]
    assert wf.definition().inputs == {"n": {"type": "integer"}}


# References


def test_the_text_of_references() -> None:
    node = Reference("node")
    assert str(node) == f"{node}" == f"{node!s}" == "{{ node }}"
    assert str(node.body["items"][0].name) == "{{ node.body['items'][0].name }}"
    assert str(node["it's"]["a\\b"]["new\nline"][-1]) == r"{{ node['it\'s']['a\\b']['new\nline'][-1] }}"
    assert str(node._id.str.format.copy) == "{{ node._id.str.format.copy }}"
    assert str(getattr(node, "not a name")) == "{{ node['not a name'] }}"
    assert str(getattr(node, "·")) == "{{ node['·'] }}"
    for copied in (copy.copy(node.a), copy.deepcopy(node.a), pickle.loads(pickle.dumps(node.a))):
        assert str(copied) == "{{ node.a }}"


def test_every_attribute_is_a_field() -> None:
    names = [name for name in dir(Reference) if not (name.startswith("__") and name.endswith("__"))]
    assert names == []
    with pytest.raises(AttributeError, match=re.escape("['__dict__']")):
        _ = Reference("node").__dict__


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-3, 2), max_size=5),
    st.text("aä_9.'·").filter(lambda name: not name.startswith("__")),
)
def test_a_reference_reads_what_it_names(keys: list[str | int], attribute: str) -> None:
    value: Any = "found"
    for key in reversed((attribute, *keys)):
        value = {key: value} if isinstance(key, str) else [value] * 3
    reference = getattr(Reference("node"), attribute)
    for key in keys:
        reference = reference[key]
    assert template.compile(str(reference)).render({"node": value}) == "found"


def test_a_reference_has_no_value_yet() -> None:
    reference = Reference("node").x
    others = [
        lambda: bool(reference),
        lambda: reference == "x",
        lambda: reference != "x",
        lambda: reference < 1,
        lambda: list(reference),
        lambda: "x" in reference,
        lambda: reference in ["x"],
        lambda: len(reference),  # type: ignore[arg-type]
        lambda: int(reference),  # type: ignore[call-overload]
    ]
    for use in others:
        with pytest.raises(TypeError, match=re.escape("{{ node.x }} has no value while the workflow is built")):
            use()
    with pytest.raises(TypeError, match="unhashable"):
        hash(reference)
    with pytest.raises(TypeError, match="texts and whole numbers"):
        _ = reference[True, 1]  # type: ignore[index]


def test_formatting_is_told_to_be_impossible() -> None:
    reference = Reference("node").x
    with pytest.raises(TypeError, match=re.escape("{{ node.x }} cannot be formatted with '>10'")):
        _ = f"{reference:>10}"
    wf = Workflow("repr")
    for text in (f"say {reference!r}", f"say {reference!a}", repr([reference])):
        with pytest.raises(TypeError, match="cannot be written with !r"):
            wf.node("a", "note", config={"deep": [text]})


# Braces


def test_a_single_brace_is_text_and_two_are_a_template() -> None:
    wf = Workflow("braces")
    node = wf.node("a", "note")
    wf.node("b", "note", config={"json": '{"a": {"b": 1}}', "open": "{{ 1", "both": f"{{ {node.x} }}"})
    with pytest.raises(InvalidDefinition) as caught:
        wf.definition()
    assert [problem.loc[-1] for problem in caught.value.problems] == ["open"]
    assert template.compile(f"{{ {node.x} }}").render({"a": {"x": 1}}) == "{ 1 }"


@given(st.text("{}%#$-'\\ a\n", max_size=12), st.text("{}%#$-'\\ a\n", max_size=12))
def test_literal_text_stands_for_itself(before: str, after: str) -> None:
    text = f"{literal(before)}{Reference('node').x}{literal(after)}"
    assert template.compile(text).render({"node": {"x": "|"}}) == f"{before}|{after}"
    assert template.compile(literal(before)).render({}) == before


# Any graph

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
plain = st.recursive(
    texts | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[list[int], list[int], dict[str, Any]]]:
    """Of each node: the earlier nodes that its config reads, those that it only waits for, and the rest of it."""
    nodes = []
    for position in range(draw(st.integers(1, 8))):
        earlier = st.lists(st.integers(0, position - 1), unique=True, max_size=4) if position else st.just([])
        rest = draw(st.dictionaries(texts.filter(lambda key: not key.startswith("r")), plain, max_size=3))
        nodes.append((draw(earlier), draw(earlier), rest))
    return nodes


def without_templates(value: Any) -> Any:
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, dict):
        return {key: without_templates(item) for key, item in value.items()}
    return [without_templates(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(graphs())
def test_any_graph_is_the_same_in_python_and_as_a_document(graph: list[tuple[list[int], list[int], Any]]) -> None:
    wf = Workflow("any")
    built: list[Reference] = []
    document: list[dict[str, Any]] = []
    for position, (read, waits, given_rest) in enumerate(graph):
        rest = without_templates(given_rest)
        config = {f"r{i}": built[i].value[i] if i % 2 else f"<{built[i].value[i]}>" for i in read}
        built.append(wf.node(f"n{position}", "note", config={**config, **rest}, dependencies=[built[i] for i in waits]))
        written = {f"r{i}": ("{{ n%d.value[%d] }}" if i % 2 else "<{{ n%d.value[%d] }}>") % (i, i) for i in read}
        order = [*waits, *sorted(set(read) - set(waits))]
        document.append(
            {
                "id": f"n{position}",
                "handler": "note",
                "config": {**written, **rest},
                "dependencies": [f"n{i}" for i in order],
            }
        )
    expected = validate({"name": "any", "nodes": document}, handlers=None)
    assert wf.definition() == expected
    assert wf.definition().content_hash == expected.content_hash
    assert load(wf.to_yaml()).data == wf.to_dict()


@settings(deadline=None)
@given(
    st.dictionaries(texts, plain, min_size=1) | st.dictionaries(texts, st.text(" a:\n'\"#-{|", max_size=9), min_size=1)
)
def test_yaml_reads_back_as_it_was(document: dict[str, Any]) -> None:
    written = yaml_writer.write(document)
    assert load(written).data == document
    assert YAML(typ="safe", pure=True).load(written) == document


def test_the_page_about_the_builder_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), names)
    [shown] = [block for language, block in blocks if language == "yaml"]
    assert capsys.readouterr().out.strip() == shown.strip()
    assert names["wf"].definition() == from_yaml(shown)
    assert dependencies(names["report"])["done"] == ["summary_0", "summary_1", "summary_2"]
    prompt = names["report"].definition().nodes[1].config["prompt"]
    assert template.compile(prompt).render({}) == "Summarise: Second text, with {{ braces }}"
    table = re.findall(r"^\| `(.+?)` \| `(.+?)`", PAGE.read_text(), flags=re.MULTILINE)
    assert len(table) == 5
    for python, source in table:
        assert str(eval(python, names)) == source
