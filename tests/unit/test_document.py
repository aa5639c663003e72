from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from headrace.errors import InvalidDefinition, Problem
from headrace.model.document import load
from tests.unit.test_payload import scalars, values

YAML_TEXT = """\
# a comment
name: city-report
on: yes
nodes:
  - id: start
    handler: input
  - id: weather
    config: {url: "https://{{ start.city }}", n: [1, 0x10, 0o17, 1.5, 1e3, ~, null, true]}
    text: |
      two
      lines
"""


def problem(text: str, **options: str) -> Problem:
    with pytest.raises(InvalidDefinition) as raised:
        load(text, **options)
    return raised.value.problems[0]


def test_yaml_is_read_by_the_rules_of_1_2() -> None:
    data = load(YAML_TEXT).data
    assert data["on"] == "yes"
    assert data["nodes"][1]["config"] == {
        "url": "https://{{ start.city }}",
        "n": [1, 16, 15, 1.5, 1000.0, None, None, True],
    }
    assert data["nodes"][1]["text"] == "two\nlines\n"
    assert load("a: 1_000\nb: '1'\nc: !!str 2\nd: 010\ne: .5\nf:\n").data == {
        "a": "1_000",
        "b": "1",
        "c": "2",
        "d": 10,
        "e": 0.5,
        "f": None,
    }


@pytest.mark.parametrize(
    ("loc", "position"),
    [
        (("name",), (2, 1)),
        (("nodes", 0), (5, 5)),
        (("nodes", 0, "handler"), (6, 5)),
        (("nodes", 1, "config", "url"), (8, 14)),
        (("nodes", 1, "config", "n", 1), (8, 1 + YAML_TEXT.split("\n")[7].index("0x10"))),
        (("nodes", 1, "missing", "deeper"), (7, 5)),
        (("nowhere",), (1, 1)),
    ],
)
def test_yaml_positions(loc: Any, position: tuple[int, int]) -> None:
    assert load(YAML_TEXT).position(loc) == position


@settings(deadline=None)
@given(values)
def test_json_is_read_and_every_part_of_it_has_its_place(value: Any) -> None:
    text = json.dumps({"v": value}, indent=1)
    document = load(text)
    assert document.data == {"v": value}
    lines = text.split("\n")
    pending: list[tuple[tuple[Any, ...], Any]] = [(("v",), value)]
    while pending:
        loc, part = pending.pop()
        position = document.position(loc)
        assert position is not None
        line, column = position
        written = json.dumps(loc[-1] if isinstance(loc[-1], str) else part)
        assert lines[line - 1][column - 1 :].startswith(written[:1] if isinstance(part, dict | list) else written)
        inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        pending += [((*loc, step), item) for step, item in inner]


def _reads_back(yaml: YAML, text: str, value: Any) -> bool:
    try:
        return bool(yaml.load(text) == value)
    except YAMLError:
        return False


words = st.text(" abc:-#{}[]'\"\\\n\u00e9\U0001f600,&*!|>%@0123456789.eE_~", max_size=8)
yaml_values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(words, yaml_values, min_size=1, max_size=4))
def test_yaml_gives_what_was_written(value: Any) -> None:
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(value, out)
    assume(_reads_back(yaml, out.getvalue(), value))  # ruamel has its own bugs in writing
    document = load(out.getvalue(), source_name="x.yaml")
    assert document.data == value
    assert {type(item) for item in document.data.values()} <= {dict, list, str, int, float, bool, type(None)}


def test_problems_get_their_lines() -> None:
    document = load(YAML_TEXT)
    [placed] = document.located([Problem("x", "y", ("nodes", 0, "handler"))])
    assert (placed.line, placed.column) == (6, 5)


TEMPLATES = """\
plain: about b {{ a.x }} and {{ b.y }}
quoted: "b: {{ a.x }}
  on two lines {{ b.y }}"
folded: >
  text
    {{ a.x | default(b.y) }}
  {{ b.b }}
flow: {list: [b, '{{ ab.b }}{{b}}']}
same: &anchor "{{ b }}"
alias: *anchor
"""


@pytest.mark.parametrize(
    ("loc", "part", "position"),
    [
        (("plain",), "b", (1, 33)),
        (("plain",), "a", (1, 19)),
        (("plain",), "b.y", (1, 33)),
        (("plain",), "c", (1, 1)),
        (("quoted",), "b", (3, 19)),
        (("folded",), "b", (6, 22)),
        (("flow", "list", 1), "b", (8, 31)),
        (("alias",), "b", (9, 19)),
        (("flow",), "b", (8, 1)),
        (("flow", "list", 7), "b", (8, 8)),
    ],
)
def test_positions_of_names_in_templates(loc: Any, part: str, position: tuple[int, int]) -> None:
    assert load(TEMPLATES).position(loc, part) == position
    windows = load(TEMPLATES.replace("\n", "\r\n"))
    assert windows.position(loc, part) == position
    assert windows.data == load(TEMPLATES).data


def test_positions_of_names_in_templates_in_json() -> None:
    document = load('{"a": [1,\n  "b {{ a.x }} \\n {{ b.y }}"],\n "c": {"d": "{{ b }}"}}')
    assert document.position(("a", 1), "b") == (2, 22)
    assert document.position(("c", "d"), "b") == (3, 17)
    assert document.position(("c",), "b") == (3, 2)


def test_problems_come_in_the_order_of_the_text() -> None:
    given = [Problem("too_many_problems", "more"), *(Problem("x", "y", loc) for loc in [("nodes", 1), ("name",), ()])]
    placed = load(YAML_TEXT).located(given)
    assert [(problem.line, problem.column) for problem in placed] == [(1, 1), (2, 1), (7, 5), (None, None)]


MISTAKES = [
    ("a: {{ x }}", 1, 4, 'write "{{ x }}", or ${{ x }}'),
    ("a:\n  b: {{ x.y }}/path # c", 2, 6, 'write "{{ x.y }}/path", or ${{ x.y }}/path'),
    ("a: {b: {{ x }}}", 1, 8, 'write "{{ x }}"'),
    ("a: {b: ${{ x }}}", 1, 8, 'write "${{ x }}"'),
    ("a: {b: x/{{ y }}}", 1, 10, "around all of it: {{ y }}"),
    ("a: {\n  b: {{ x }}\n}", 2, 6, 'write "{{ x }}"'),
    ('a: {{ x["y"] }}', 1, 4, "write '{{ x[\"y\"] }}', or ${{"),
    ("a: {{ x | join(', ') }}\nb: 1", 1, 4, "write \"{{ x | join(', ') }}\""),
    ("a: {{ x }} and {{ y }}", 1, 4, 'write "{{ x }} and {{ y }}", or ${{ x }} and {{ y }}'),
    ("a: {% if x %}b{% endif %}", 1, 4, 'write "{% if x %}b{% endif %}"'),
    ("a:\n  - {{ x }}", 2, 5, 'write "{{ x }}"'),
    ("a: text: more", 1, 8, "a text with a colon in it needs quotes"),
    ("a:1\nb: 2", 2, 2, "the line above needs a space after its colon: a: 1"),
    ("- a: b\n     c: d", 2, 7, "indented too far"),
    ("a:\n\t- b", 2, 1, "tab"),
    ("a: @b", 1, 4, "cannot begin with @"),
    ("a: `b`", 1, 4, "cannot begin with `"),
    ("a: %b", 1, 4, "cannot begin with %"),
    ("a: * * *", 1, 4, "cannot begin with *"),
    ("a: *b", 1, 4, "put quotes around *b"),
    ("a: !b", 1, 4, "put quotes around it"),
    ("a: , b", 1, 4, "cannot begin with ,"),
    ("a: >b", 1, 4, "cannot begin with >"),
    ("a:\n - b\n  c: d", 3, 4, "indented too far"),
    ("a:\n  b: 1\n c: 2", 3, 2, "indentation"),
    ('a: "b\nc: d', 1, 4, "the quote that opens here is not closed"),
    ("a: [b\nc: d", 1, 4, "closing ] before line 2"),
    ("a: {b: c, d: e f: g}", 1, 17, "a comma or the closing } is missing"),
    ("a: 'it's'", 1, 8, "closing quote"),
    ('a: "b" c', 1, 8, "closing quote"),
    ('a: "C:\\path"', 1, 8, "double quotes"),
    ("a: 1\nb\nc: 2", 2, 1, "a colon is missing after b"),
    ("a: - b", 1, 4, "on the line below"),
    ("a: \x01b", 1, 4, "0x1 is not allowed"),
]


@pytest.mark.parametrize(("text", "line", "column", "says"), MISTAKES)
def test_mistakes_in_yaml_are_told_in_plain_words(text: str, line: int, column: int, says: str) -> None:
    found = problem(text)
    assert says in found.message
    assert (found.line, found.column) == (line, column)


def test_all_templates_without_quotes_are_told_at_once() -> None:
    with pytest.raises(InvalidDefinition) as raised:
        load("a: {{ x }}\nb: [{{ y }}, {{ z }}]\nc: {{ d }}/e\n")
    assert [(problem.line, problem.column) for problem in raised.value.problems] == [(1, 4), (2, 5), (2, 14), (3, 4)]


def test_words_about_a_very_long_line_are_found_quickly() -> None:
    texts = ("a: [" + "{{a: b}: c, " * 500_000, "a: {" + "{{ x }} " * 900_000 + "'", "- " + "x {{" * 1_000_000 + ": :")
    for text in texts:
        assert len(problem(text).message) < 500


@pytest.mark.parametrize("text", ["url: {{ start.city }}", "a:\n  url: {{ x }}/path", "a: {% if x %}b{% endif %}"])
def test_a_template_without_quotes_gets_a_friendly_answer(text: str) -> None:
    found = problem(text)
    assert "quotes around it" in found.message
    assert found.line == text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: 1\nb: 2\na: 3", "duplicate_key", 3),
        ('{"a": 1,\n "a": 2}', "duplicate_key", 2),
        ("a: [1\nb: 2", "syntax", 1),
        ('{"a": 1,\n "b" 2}', "syntax", 2),
        ("a: 2024-01-01", "not_json", 1),
        ("a: 2024-01-01T10:00:00Z", "not_json", 1),
        ("a: 1\n---\nb: 2", "several_documents", 2),
        ("1: 2", "bad_key", 1),
        ("[a]: 2", "bad_key", 1),
        ("? [a]\n: 2", "bad_key", 1),
        ("base: &b {x: 1}\na:\n  <<: *b", "bad_key", 3),
        ("a: !!python/object:os.system x", "bad_tag", 1),
        ("a: !!binary aGk=", "bad_tag", 1),
        ("a: *nobody", "unknown_alias", 1),
        ("a: &a [*a]", "unknown_alias", 1),
        ("a: " + "1" * 5_000, "not_json", 1),
        ("[" * 300, "syntax", None),
        ("- " * 300 + "x", "too_deep", 1),
        ("a: \0", "syntax", None),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, code: str, line: int | None) -> None:
    found = problem(text)
    assert found.code == code
    assert line is None or found.line == line


def test_json_of_any_depth_and_with_any_number_ends_in_a_problem() -> None:
    for text in ("[" * 1_000_000, '{"a":' * 1_000_000, '{"a": ' + "1" * 10_000 + "}"):
        assert problem(text, source_name="x.json").code in {"syntax", "too_deep"}


def test_several_problems_of_one_text_come_together() -> None:
    with pytest.raises(InvalidDefinition) as raised:
        load("a: 1\na: 2\nd: 2024-01-01\n2: x")
    assert [problem.code for problem in raised.value.problems] == ["duplicate_key", "not_json", "bad_key"]


def test_aliases_are_read_but_not_bombs() -> None:
    assert load("a: &r {n: 1}\nb: *r\nc: [*r, *r]").data == {"a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}] * 2}
    bomb = "a0: &a0 [x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 40))
    assert problem(bomb).code == "too_large"


def test_size_is_bounded() -> None:
    assert problem("x" * (33 << 20)).code == "too_large"
    assert problem("a: " + "x" * (9 << 20)).code == "too_large"


def test_a_json_document_of_100_000_nodes_is_read() -> None:
    nodes = [{"id": f"n{i}", "handler": "h", "config": {"i": i}} for i in range(100_000)]
    document = load(json.dumps({"nodes": nodes}, indent=1))
    assert document.data == {"nodes": nodes}
    assert document.position(("nodes", 99_999, "id")) == (3 + 7 * 99_999 + 1, 4)


yaml_pieces = st.sampled_from(
    [
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "  ",
        "&a ",
        "*a",
        "!!int ",
        "!",
        "|\n",
        ">",
        "'",
        '"',
    ]
) | st.sampled_from(
    ["%YAML 1.2\n", "%TAG ! x\n", "---\n", "...", "#", "\t", "\\", "<<", "{{ x }}", "0x1", "é", "\x85", "\ufeff", "\\U"]
)


@settings(deadline=None)
@given(st.lists(yaml_pieces, max_size=25).map("".join) | st.text(max_size=30))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        load(text)
    except InvalidDefinition as error:
        assert error.problems  # noqa: PT017
