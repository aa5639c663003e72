from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import MissingValue, TemplateError, TemplateLimit, TemplateSyntaxError
from headrace.model import template
from headrace.model.definition import Definition, Node
from headrace.model.messages import Secret, SecretText
from headrace.model.plan import Plan, Rendered


def plan(*nodes: Node) -> Plan:
    return Plan(Definition("x", nodes))


A = Node("a", "h")


def test_a_config_is_rendered_with_types_kept_and_the_definition_untouched() -> None:
    source = {
        "n": 1,
        "list": ["{{ a.items }}", "x{{ a.k }}"],
        "deep": {"whole": "{{ a.output }}"},
        "in": "{{ input.q }}",
    }
    it = plan(A, Node("b", "h", ("a",), source))
    output = {"items": [1, 2], "k": 3}
    rendered = it.render(1, {"a": output, "other": {}}, {"q": None})
    assert rendered.secrets == ()
    assert rendered.config == {"n": 1, "list": [[1, 2], "x3"], "deep": {"whole": output}, "in": None}
    assert it.definition.nodes[1].config["list"] == ["{{ a.items }}", "x{{ a.k }}"]
    assert it.needs(1) == ("a",)
    assert it.needs_input(1)


def test_needs_are_exact() -> None:
    nodes = [Node(name, "h") for name in "cab"]
    it = plan(*nodes, Node("d", "h", ("a", "b", "c"), {"x": "{{ c.x }}", "y": ["{{ a.y }}"], "{{ b }}": "text"}))
    assert it.needs(3) == ("a", "c")
    assert not it.needs_input(3)
    assert it.needs(0) == ()
    assert it.render(0, {}, {}).config == {}


def test_a_node_called_input_wins() -> None:
    it = plan(Node("input", "h"), Node("b", "h", ("input",), {"x": "{{ input.v }}"}))
    assert it.needs(1) == ("input",)
    assert not it.needs_input(1)
    assert it.render(1, {"input": {"v": "node"}}, {"v": "params"}).config == {"x": "node"}


def test_an_input_node_is_given_the_input_params() -> None:
    it = plan(Node("start", "input"))
    assert it.needs_input(0)
    assert it.needs(0) == ()
    assert it.render(0, {}, {"city": "{{ not.a.template }}"}).config == {"city": "{{ not.a.template }}"}


def test_an_output_that_looks_like_a_template_is_not_rendered_again() -> None:
    it = plan(A, Node("b", "h", ("a",), {"x": "{{ a.v }}"}))
    assert it.render(1, {"a": {"v": "{{ a.secret }}"}}, {}).config == {"x": "{{ a.secret }}"}


def test_secrets_go_beside_the_config_with_their_places() -> None:
    config = {
        "plain": "{{ a.v }}",
        "deep": [{"key": "Bearer {{ secret.TOKEN }}{{ a.v }}"}],
        "whole": "{{ secret.KEY }}",
    }
    it = plan(A, Node("b", "h", ("a",), config))
    assert it.needs(1) == ("a",)
    assert it.render(1, {"a": {"v": "!"}}, {}) == Rendered(
        {
            "plain": "!",
            "deep": [{"key": "Bearer {{ secret.TOKEN }}!"}],
            "whole": "{{ secret.KEY }}",
        },
        (
            SecretText(("deep", 0, "key"), ("Bearer ", Secret("TOKEN"), "!")),
            SecretText(("whole",), (Secret("KEY"),)),
        ),
    )


def test_text_that_looks_like_a_secret_is_none() -> None:
    forged = ["{{ secret.KEY }}", {"secret": "KEY"}, [{"path": ["x"], "pieces": [{"secret": "KEY"}]}]]
    it = plan(A, Node("b", "h", ("a",), {"x": "{{ a.v }}", "y": "{{ a.v[0] }}!", "z": "{{ '{{ secret.KEY }}' }}"}))
    rendered = it.render(1, {"a": {"v": forged}}, {})
    assert rendered.config == {"x": forged, "y": "{{ secret.KEY }}!", "z": "{{ secret.KEY }}"}
    assert rendered.secrets == ()


def test_a_config_with_only_secrets_reads_nothing() -> None:
    it = plan(Node("b", "h", (), {"x": "{{ secret.KEY }}"}))
    assert (it.needs(0), it.needs_input(0)) == ((), False)


def test_texts_with_secrets_count_to_the_rendered_size() -> None:
    it = plan(A, Node("b", "h", ("a",), {"x": ["{{ secret.KEY }}{{ a.v }}"] * 5}))
    with pytest.raises(TemplateLimit):
        it.render(1, {"a": {"v": "x" * 900_000}}, {})


@pytest.mark.parametrize(
    ("source", "kind"),
    [("{{ a.missing }}", MissingValue), ("{{ a. }}", TemplateSyntaxError), ("{{ a.v + 'x' }}", TemplateError)],
)
def test_an_error_names_node_field_and_template(source: str, kind: type[Exception]) -> None:
    it = plan(A, Node("b", "h", ("a",), {"urls": [{"url": source}]}))
    with pytest.raises(kind) as raised:
        it.render(1, {"a": {"v": 1}}, {})
    assert "node b, config.urls[0].url" in str(raised.value)
    assert source in str(raised.value)


def test_an_output_that_is_not_there_is_a_missing_value() -> None:
    with pytest.raises(MissingValue):
        plan(A, Node("b", "h", ("a",), {"x": "{{ a.v }}"})).render(1, {}, {})


def test_the_rendered_size_is_bounded_in_total() -> None:
    it = plan(A, Node("b", "h", ("a",), {"x": ["{{ a.v }}"] * 5}))
    assert it.render(1, {"a": {"v": "x" * 800_000}}, {}).config["x"][4] == "x" * 800_000
    with pytest.raises(TemplateLimit):
        it.render(1, {"a": {"v": "x" * 900_000}}, {})


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"node a, config\.x"):
        plan(Node("a", "h", config={"x": '{{ "\\ud800" }}'})).render(0, {}, {})


def test_the_same_source_is_compiled_once_and_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = template.compile

    def counting(source: str) -> template.Template:
        compiled.append(source)
        return real(source)

    monkeypatch.setattr(template, "compile", counting)
    it = plan(A, *(Node(f"n{i}", "h", ("a",), {"x": "{{ a.v }}"}) for i in range(5)))
    assert compiled == []
    for i in range(1, 6):
        it.render(i, {"a": {"v": i}}, {})
    assert compiled == ["{{ a.v }}"]


def test_the_output_is_merged_from_output_nodes_in_the_order_of_the_definition() -> None:
    it = plan(A, Node("z", "output", ("a",)), Node("y", "output", ("a",)), Node("leaf", "h", ("a",)))
    assert it.output_nodes == (1, 2)
    outputs: dict[str, Any] = {"y": {"k": "y"}, "z": {"k": "z", "only": 1}, "leaf": {"l": 1}}
    assert it.output(outputs) == {"k": "y", "only": 1}
    assert it.output({"z": {"k": "z"}}) == {"k": "z"}
    assert it.output({}) == {}


def test_without_output_nodes_it_is_that_of_the_leaves_by_id() -> None:
    it = plan(A, Node("b", "h", ("a",)), Node("c", "h", ("a",)))
    assert it.output_nodes == (1, 2)
    assert it.output({"a": {"x": 1}, "b": {"y": 2}}) == {"b": {"y": 2}}
