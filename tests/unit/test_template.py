"""What templates mean: values, text, missing values, references, messages."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headrace.errors import MissingValue, TemplateError, TemplateLimit, TemplateSyntaxError
from headrace.model import template
from headrace.model.messages import Secret

CONTEXT: dict[str, Any] = {
    "a": {"b": 1, "f": 2.5, "s": "text", "yes": True, "no": False, "nil": None, "0": "zero", "x y": "spaced"},
    "start": {"city": "Berlin", "cities": ["Berlin", "Oslo", "Rome"], "empty": [], "matrix": [[1, 2], [3, 4]]},
    "users": {
        "all": [
            {"name": "bob", "age": 30, "tags": ["x"], "team": "red"},
            {"name": "Al", "age": 20, "tags": [], "team": "blue"},
            {"name": "cy", "age": 40, "tags": ["y", "z"], "team": "red"},
        ]
    },
    "with_output": {"output": "inner", "other": 1},
    "plain": "just text",
    "numbers": [3, 1, 2, 3],
    "words": ["b", "A", "c", "a"],
    "mixed": [1, "a", None],
    "key": "city",
    "json": '{"k": [1, 2.5, null]}',
}

LONE = [
    ("{{ a.b }}", 1),
    ("{{a.b}}", 1),
    ("{{- a.b -}}", 1),
    ("{{\n a.b\n}}", 1),
    ("${{ a.b }}", 1),
    ("{{ a.f }}", 2.5),
    ("{{ a.nil }}", None),
    ("{{ a.yes }}", True),
    ("{{ a }}", CONTEXT["a"]),
    ("{{ a['x y'] }}", "spaced"),
    ("{{ a[0] }}", "zero"),
    ("{{ start.cities }}", ["Berlin", "Oslo", "Rome"]),
    ("{{ start.cities[0] }}", "Berlin"),
    ("{{ start.cities.1 }}", "Oslo"),
    ("{{ start.cities[-1] }}", "Rome"),
    ("{{ start.matrix[1][0] }}", 3),
    ("{{ start[key] }}", "Berlin"),
    ("{{ start.cities[a.b] }}", "Oslo"),
    ("{{ start.cities[1:] }}", ["Oslo", "Rome"]),
    ("{{ start.cities[::-1] }}", ["Rome", "Oslo", "Berlin"]),
    ("{{ start.cities[:2][1] }}", "Oslo"),
    ("{{ plain[5:] }}", "text"),
    ("{{ plain[0] }}", "j"),
    ("{{ start.output }}", CONTEXT["start"]),
    ("{{ start['output'] }}", CONTEXT["start"]),
    ("{{ start.output.city }}", "Berlin"),
    ("{{ plain.output }}", "just text"),
    ("{{ with_output.output }}", "inner"),
    ("{{ 1 + 2 * 3 }}", 7),
    ("{{ 7 // 2 }}", 3),
    ("{{ 7 / 2 }}", 3.5),
    ("{{ 7 % 4 }}", 3),
    ("{{ 2 ** 10 }}", 1024),
    ("{{ 2 ** -1 }}", 0.5),
    ("{{ 2 ** 62 }}", 2**62),
    ("{{ -a.b }}", -1),
    ("{{ +a.b }}", 1),
    ("{{ 1 ** 9223372036854775807 }}", 1),
    ("{{ 'a' + 'b' }}", "ab"),
    ("{{ [1] + [2] }}", [1, 2]),
    ("{{ 'a' ~ 1 ~ true ~ none ~ [1] }}", "a1truenull[1]"),
    ("{{ 1 < 2 < 3 }}", True),
    ("{{ 1 < 2 > 3 }}", False),
    ("{{ 'a' <= 'b' }}", True),
    ("{{ 'Oslo' in start.cities }}", True),
    ("{{ 'Oslo' not in start.cities }}", False),
    ("{{ [1, 2] in start.matrix }}", True),
    ("{{ 'city' in start }}", True),
    ("{{ 1 in start }}", False),
    ("{{ 'ex' in 'text' }}", True),
    ("{{ start.matrix == [[1, 2], [3, 4]] }}", True),
    ("{{ {'a': 1} != {'a': 1} }}", False),
    ("{{ a.no or 'x' }}", "x"),
    ("{{ a.yes and 'x' }}", "x"),
    ("{{ a.no and nowhere }}", False),
    ("{{ a.yes or nowhere }}", True),
    ("{{ not a.no }}", True),
    ("{{ 'x' if a.yes else nowhere }}", "x"),
    ("{{ 'x' if a.no }}", ""),
    ("{{ [1, a.b, 'z'] }}", [1, 1, "z"]),
    ("{{ 1, 2 }}", [1, 2]),
    ("{{ () }}", []),
    ("{{ {'k': a.b, 'l': []} }}", {"k": 1, "l": []}),
    ("{{ {'k': {'n': 5}}.k.n }}", 5),
    ("{{ 'tab\\tquote\\' \\u00e9 \\x41 \\d' }}", "tab\tquote' é A \\d"),
    ("{{ 1_000 }}", 1000),
    ("{{ 0x1e }}", 30),
    ("{{ 1.5e3 }}", 1500.0),
    ("{{ range(3) }}", [0, 1, 2]),
    ("{{ range(1, 3) }}", [1, 2]),
    ("{{ range(3, 0, -2) }}", [3, 1]),
    ("{{ range(5, 0) }}", []),
    # default and presence
    ("{{ nowhere | default('x') }}", "x"),
    ("{{ nowhere.b.c | default('x') }}", "x"),
    ("{{ a.zip.zap | d(1) }}", 1),
    ("{{ nowhere | default }}", ""),
    ("{{ a.nil | default('x') }}", None),
    ("{{ a.nil | default('x', true) }}", "x"),
    ("{{ a.no | default('x', boolean=true) }}", "x"),
    ("{{ a.b | default(nowhere2 | default(3)) }}", 1),
    ("{{ nowhere | upper | default('x') }}", "x"),
    ("{{ start.empty | first | default('none') }}", "none"),
    ("{{ nowhere is defined }}", False),
    ("{{ a.q.r is undefined }}", True),
    ("{{ a.b is defined }}", True),
    ("{{ a.b is not defined }}", False),
    ("{{ start.output is defined }}", True),
    # tests
    ("{{ a.nil is none }}", True),
    ("{{ a.s is string }}", True),
    ("{{ a.yes is number }}", False),
    ("{{ a.f is number }}", True),
    ("{{ a.b is integer }}", True),
    ("{{ a.f is float }}", True),
    ("{{ a.yes is boolean }}", True),
    ("{{ a.yes is true }}", True),
    ("{{ a.yes is false }}", False),
    ("{{ a is mapping }}", True),
    ("{{ a is sequence }}", False),
    ("{{ a is iterable }}", True),
    ("{{ numbers is sequence }}", True),
    ("{{ 3 is odd }}", True),
    ("{{ 3 is even }}", False),
    ("{{ 9 is divisibleby 3 }}", True),
    ("{{ 1 is in numbers }}", True),
    ("{{ 1 is eq 1 }}", True),
    ("{{ 1 is ne 1 }}", False),
    ("{{ 1 is lt 2 and 1 is le 1 and 2 is gt 1 and 2 is ge 2 }}", True),
]

FILTERS = [
    ("{{ a.s | upper }}", "TEXT"),
    ("{{ 'ÄB' | lower }}", "äb"),
    ("{{ 'hello big-world (now)' | title }}", "Hello Big-World (Now)"),
    ("{{ 'hELLO' | capitalize }}", "Hello"),
    ("{{ '  x ' | trim }}", "x"),
    ("{{ '--x-' | trim('-') }}", "x"),
    ("{{ 'aaa' | replace('a', 'bb') }}", "bbbbbb"),
    ("{{ 'aaa' | replace('a', 'b', 1) }}", "baa"),
    ("{{ 'ab' | replace('', '-') }}", "-a-b-"),
    ("{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"),
    ("{{ 'a\nb' | indent('> ', first=true) }}", "> a\n> b"),
    ("{{ 'foo bar baz qux' | truncate(9, leeway=0) }}", "foo..."),
    ("{{ 'foo bar baz qux' | truncate(9, true, leeway=0) }}", "foo ba..."),
    ("{{ 'short' | truncate(4) }}", "short"),
    ("{{ 'a b  c' | split }}", ["a", "b", "c"]),
    ("{{ 'a,b,c' | split(',', 1) }}", ["a", "b,c"]),
    ("{{ 'one two, three' | wordcount }}", 3),
    ("{{ 'a b/ü' | urlencode }}", "a%20b/%C3%BC"),
    ("{{ {'q': 'a b', 'n': 1} | urlencode }}", "q=a%20b&n=1"),
    ("{{ a.b | string }}", "1"),
    ("{{ '42' | int }}", 42),
    ("{{ '4.9' | int }}", 4),
    ("{{ 'x' | int(7) }}", 7),
    ("{{ ' 2.5 ' | float }}", 2.5),
    ("{{ 'x' | float(1.5) }}", 1.5),
    ("{{ 2.567 | round(1) }}", 2.6),
    ("{{ 2.1 | round(method='ceil') }}", 3.0),
    ("{{ 2.19 | round(1, 'floor') }}", 2.1),
    ("{{ -3 | abs }}", 3),
    ("{{ start.matrix | tojson }}", "[[1,2],[3,4]]"),
    ("{{ {'é': '<'} | tojson }}", '{"é":"<"}'),
    ("{{ [1] | tojson(2) }}", "[\n  1\n]"),
    ("{{ json | fromjson }}", {"k": [1, 2.5, None]}),
    ("{{ (json | fromjson).k[1] }}", 2.5),
    ("{{ start.cities | join(', ') }}", "Berlin, Oslo, Rome"),
    ("{{ mixed | join('/') }}", "1/a/null"),
    ("{{ users.all | join(' ', attribute='name') }}", "bob Al cy"),
    ("{{ start.cities | length }}", 3),
    ("{{ a.s | count }}", 4),
    ("{{ start.cities | first }}", "Berlin"),
    ("{{ start.cities | last }}", "Rome"),
    ("{{ 'abc' | reverse }}", "cba"),
    ("{{ numbers | reverse }}", [3, 2, 1, 3]),
    ("{{ numbers | sort }}", [1, 2, 3, 3]),
    ("{{ numbers | sort(reverse=true) }}", [3, 3, 2, 1]),
    ("{{ words | sort }}", ["A", "a", "b", "c"]),
    ("{{ words | sort(case_sensitive=true) }}", ["A", "a", "b", "c"]),
    ("{{ ['b', 'A', 'B'] | sort(case_sensitive=true) }}", ["A", "B", "b"]),
    ("{{ users.all | sort(attribute='age') | map(attribute='name') }}", ["Al", "bob", "cy"]),
    ("{{ numbers | unique }}", [3, 1, 2]),
    ("{{ words | unique }}", ["b", "A", "c"]),
    ("{{ words | unique(true) }}", ["b", "A", "c", "a"]),
    ("{{ [1, true, 1.0, [1], [1]] | unique }}", [1, True, 1.0, [1]]),
    ("{{ users.all | unique(attribute='team') | map(attribute='name') }}", ["bob", "Al"]),
    ("{{ users.all | map(attribute='tags.0', default='-') }}", ["x", "-", "y"]),
    ("{{ words | map('upper') | list }}", ["B", "A", "C", "A"]),
    ("{{ words | map('replace', 'a', 'z') }}", ["b", "A", "c", "z"]),
    ("{{ numbers | select('odd') }}", [3, 1, 3]),
    ("{{ numbers | reject('eq', 3) }}", [1, 2]),
    ("{{ mixed | select }}", [1, "a"]),
    ("{{ users.all | selectattr('tags') | map(attribute='name') }}", ["bob", "cy"]),
    ("{{ users.all | selectattr('age', 'gt', 25) | map(attribute='name') }}", ["bob", "cy"]),
    ("{{ users.all | rejectattr('team', '==', 'red') | map(attribute='name') }}", ["Al"]),
    ("{{ users.all | selectattr('tags.1', 'defined') | map(attribute='name') }}", ["cy"]),
    ("{{ users.all | selectattr('tags.0', 'undefined') | map(attribute='name') }}", ["Al"]),
    ("{{ users.all | groupby('team') | map('first') }}", ["blue", "red"]),
    ("{{ numbers | sum }}", 9),
    ("{{ users.all | sum(attribute='age') }}", 90),
    ("{{ numbers | min }}", 1),
    ("{{ (users.all | max(attribute='age')).name }}", "cy"),
    ("{{ 'ab' | list }}", ["a", "b"]),
    ("{{ {'b': 1, 'a': 2} | items }}", [["b", 1], ["a", 2]]),
    ("{{ {'b': 1, 'a': 2} | dictsort }}", [["a", 2], ["b", 1]]),
    ("{{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }}", [["a", 2], ["b", 1]]),
    ("{{ {'b': 1} | keys }}", ["b"]),
    ("{{ {'b': 1} | values }}", [1]),
    ("{{ range(5) | batch(2) }}", [[0, 1], [2, 3], [4]]),
    ("{{ range(5) | batch(2, 9) }}", [[0, 1], [2, 3], [4, 9]]),
    ("{{ range(5) | slice(3) }}", [[0, 1], [2, 3], [4]]),
    ("{{ range(5) | slice(3, 9) }}", [[0, 1], [2, 3], [4, 9]]),
]

TEXT = [
    ("plain", "plain"),
    ("", ""),
    ("a } b { c }} d", "a } b { c }} d"),
    (" {{ a.b }}", " 1"),
    ("{{ a.b }}\n", "1\n"),
    ("{{ a.b }}{{ a.b }}", "11"),
    ("{# note #}{{ a.b }}", "1"),
    ("{{ a.b }}{# note #}", "1"),
    ("{{ '}}' }}!", "}}!"),
    ("costs ${{ a.b }}", "costs 1"),
    ("costs $${{ a.b }}", "costs $1"),
    ("costs $ {{ a.b }}", "costs $ 1"),
    ("costs {{ '$' }}{{ a.b }}", "costs $1"),
    ("${{ a.b }}/${{ a.b }}", "1/1"),
    ("${{ a.b }}$", "1$"),
    ("costs $ {{- a.b }}", "costs $1"),
    ("x ${{- a.b }}", "x 1"),
    ("{% raw %}${{ a.b }}{% endraw %}", "${{ a.b }}"),
    ("> {{ a.yes }} {{ a.no }} {{ a.nil }} {{ a.f }}", "> true false null 2.5"),
    ("> {{ start.matrix }} {{ {'a': 'é'} }}", '> [[1,2],[3,4]] {"a":"é"}'),
    ("{% if a.no %}1{% elif a.yes %}2{% else %}3{% endif %}", "2"),
    ("{% if a.no %}1{% else %}3{% endif %}", "3"),
    ("{% if a.no %}1{% endif %}", ""),
    ("{% for c in start.cities %}{{ c }};{% endfor %}", "Berlin;Oslo;Rome;"),
    ("{% for c in start.empty %}x{% else %}none{% endfor %}", "none"),
    ("{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}={{ v }} {% endfor %}", "a=1 b=2 "),
    ("{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}", "ab"),
    ("{% for n in numbers if n > 1 %}{{ loop.index }}/{{ loop.length }}:{{ n }} {% endfor %}", "1/3:3 2/3:2 3/3:3 "),
    (
        "{% for c in 'ab' %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }} {% endfor %}",
        "0truefalse2 1falsetrue1 ",
    ),
    (
        "{% for r in start.matrix %}{% for c in r %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
        "121 122 ",
    ),
    ("{% set x = a.b + 1 %}{{ x }}", "2"),
    ("{% set x, y = [1, 2] %}{{ y }}{{ x }}", "21"),
    ("{% set x %}<{{ a.b }}>{% endset %}{{ x }}{{ x }}", "<1><1>"),
    ("{% set x | upper | replace('T', 't') %}text{% endset %}{{ x }}", "tEXt"),
    ("{% set key = 1 %}{% for i in range(2) %}{% set key = 5 %}{{ key }}{% endfor %}{{ key }}", "551"),
    ("{% for i in range(2) %}{{ key }}{% set key = i %}{{ key }} {% endfor %}", "city0 city1 "),
    ("{% if a.no %}{% set key = 1 %}{% endif %}{{ key }}", "city"),
    ("{% if a.yes %}{% set key = 1 %}{% endif %}{{ key }}", "1"),
    ("{% for key in [1] %}{{ key }}{% endfor %}{{ key }}", "1city"),
    ("{% with key = 1, y = key %}{{ key }}{{ y }}{% endwith %}{{ key }}", "1citycity"),
    ("{% set start = 1 %}{{ start }}{{ start.output | default('no') }}", "1no"),
    ("a  {%- if a.yes -%}  b  {%- endif -%}  c", "abc"),
    ("{% print a.b %}", "1"),
]


@pytest.mark.parametrize(("source", "expected"), LONE + FILTERS + TEXT)
def test_renders(source: str, expected: object) -> None:
    before = json.dumps(CONTEXT)
    rendered = template.compile(source).render(CONTEXT)
    assert rendered == expected
    assert type(rendered) is type(expected)
    assert json.dumps(CONTEXT) == before


def test_the_tables_cover_every_filter_and_test() -> None:
    from headrace.model.template.collections import FILTERS as filters
    from headrace.model.template.predicates import TESTS as tests

    sources = " ".join(source for source, _ in LONE + FILTERS + TEXT)
    assert [name for name in filters if f"| {name}" not in sources] == []
    symbols = {"equalto", "lessthan", "greaterthan", "!=", "<", "<=", ">", ">=", "=="}
    assert [name for name in tests if f"is {name}" not in sources and name not in symbols] == []


@pytest.mark.parametrize(
    ("source", "constant"),
    [("plain", True), ("{ }", True), ("{{ 1 }}", False), ("{# c #}", False), ("{%if 1%}{%endif%}", False)],
)
def test_constant_means_no_syntax(source: str, constant: bool) -> None:
    assert template.compile(source).constant is constant


def test_plain_text_is_no_template_however_long() -> None:
    source = "x" * 1_000_000
    assert template.compile(source).render({}) is source


REFERENCES: list[tuple[str, set[tuple[str, ...]]]] = [
    ("plain", set()),
    ("{{ 1 }}", set()),
    ("{{ a.b[0].c }}", {("a", "b", "0", "c")}),
    ("{{ a['x y'][-1] }}", {("a", "x y", "-1")}),
    ("{{ a.b[i].c }}", {("a", "b"), ("i",)}),
    ("{{ a.b[1:n].c }}", {("a", "b"), ("n",)}),
    ("{{ a.output.x }}", {("a", "output", "x")}),
    ("{{ a }} {{ a.b }}", {("a",), ("a", "b")}),
    ("{{ (a.b | first).c }}", {("a", "b")}),
    ("{{ x if y.z else w }}", {("x",), ("y", "z"), ("w",)}),
    ("{{ a.b | default(c.d) }}", {("a", "b"), ("c", "d")}),
    ("{{ l | map('replace', a.b, key) | join(sep) }}", {("l",), ("a", "b"), ("key",), ("sep",)}),
    ("{{ l | selectattr(name, 'eq', v) }}", {("l",), ("name",), ("v",)}),
    ("{{ l | map(attribute=p, default=q) }}", {("l",), ("p",), ("q",)}),
    ("{{ a is in b.c }}", {("a",), ("b", "c")}),
    ("{{ range(n.m) }}", {("n", "m")}),
    ("{{ {k: v} }}", {("k",), ("v",)}),
    ("{% for x in xs.l %}{{ x.y }}{{ loop.index }}{{ z }}{% endfor %}", {("xs", "l"), ("z",)}),
    ("{% for x in x.l %}{{ x }}{% endfor %}", {("x", "l")}),
    ("{% for x in xs %}{% else %}{{ x.y }}{{ loop.z }}{% endfor %}", {("xs",), ("x", "y"), ("loop", "z")}),
    ("{% for x in xs if x.ok and y %}{% endfor %}", {("xs",), ("y",)}),
    ("{% for k, v in xs %}{{ k }}{{ v }}{% endfor %}{{ v }}", {("xs",), ("v",)}),
    ("{{ loop.index }}", {("loop", "index")}),
    ("{% set x = a.b %}{{ x.c }}", {("a", "b")}),
    ("{% set x = x.y %}{{ x }}", {("x", "y")}),
    ("{{ x.q }}{% set x = 1 %}{{ x.r }}", {("x", "q")}),
    ("{% if c %}{% set x = 1 %}{% endif %}{{ x.y }}", {("c",), ("x", "y")}),
    ("{% if c %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x.y }}", {("c",)}),
    ("{% if c %}{% set x = 1 %}{% else %}{{ x.z }}{% endif %}", {("c",), ("x", "z")}),
    (
        "{% if c %}{% set x = 1 %}{% elif x.t %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}",
        {("c",), ("x", "t")},
    ),
    ("{% for i in l %}{% set x = 1 %}{{ x }}{% endfor %}{{ x }}", {("l",), ("x",)}),
    ("{% for i in l %}{{ x }}{% set x = 1 %}{% endfor %}", {("l",), ("x",)}),
    ("{% set x %}{{ y }}{% set z = 1 %}{% endset %}{{ x }}{{ z }}", {("y",), ("z",)}),
    ("{% with x = y %}{{ x }}{% endwith %}{{ x.z }}", {("y",), ("x", "z")}),
    ("{% raw %}{{ x }}{% endraw %}{# {{ y }} #}", set()),
    ("{{ range.x }}", {("range", "x")}),
]


@pytest.mark.parametrize(("source", "expected"), REFERENCES)
def test_references_are_exact(source: str, expected: set[tuple[str, ...]]) -> None:
    compiled = template.compile(source)
    assert compiled.references == expected
    assert compiled.roots == {path[0] for path in expected}


REFUSED = [
    ("{{ a | uper }}", "did you mean upper"),
    ("{{ a | xmlattr }}", "there is no filter 'xmlattr'"),
    ("{{ a | e }}", "never escape text"),
    ("{{ a is strng }}", "did you mean string"),
    ("{{ a | map('uper') }}", "did you mean upper"),
    ("{{ a | select('od') }}", "did you mean odd"),
    ("{{ a | map('map', 'upper') }}", "no filter 'map'"),
    ("{{ a | map(b) }}", "literal text"),
    ("{{ a | map }}", "attribute='name'"),
    ("{{ a | selectattr }}", "name of an attribute"),
    ("{{ a | join(1, 2, 3) }}", "takes (d, attribute)"),
    ("{{ a | join(sep=1) }}", "takes (d, attribute)"),
    ("{{ a | join(d=1, d=2) }}", "twice"),
    ("{{ a | join(1, d=2) }}", "repeated"),
    ("{{ a | replace('x') }}", "missing argument 'new'"),
    ("{{ a | join(*b) }}", "* and **"),
    ("{{ a | join(**b) }}", "* and **"),
    ("{{ a is defined(1) }}", "no such arguments"),
    ("{{ a.upper() }}", "no methods"),
    ("{{ f(1) }}", "only range"),
    ("{{ range() }}", "range takes"),
    ("{{ a[1, 2] }}", "one index"),
    ("{% set a.b = 1 %}", "only names can be set"),
    ("{% for loop in a %}{% endfor %}", "loop"),
    ("{% set secret = 1 %}", "worker's secrets"),
    ("{% set secret %}x{% endset %}", "worker's secrets"),
    ("{% for secret in a %}{% endfor %}", "worker's secrets"),
    ("{% for x, secret in a %}{% endfor %}", "worker's secrets"),
    ("{% with secret = 1 %}{% endwith %}", "worker's secrets"),
    ("{{ secret }}", "written {{ secret.NAME }}"),
    ("{{ secret.A.B }}", "written {{ secret.NAME }}"),
    ("{{ secret.A[0] }}", "written {{ secret.NAME }}"),
    ("{{ secret['A'] }}", "written {{ secret.NAME }}"),
    ("{{ secret[a.s] }}", "written {{ secret.NAME }}"),
    ("{{ secret.1 }}", "written {{ secret.NAME }}"),
    ("{{ secret.Schlüssel }}", "written {{ secret.NAME }}"),
    ("{{ secret | tojson }}", "written {{ secret.NAME }}"),
    ("{{ secret.A | upper }}", "secret.A can only be put into text"),
    ("{{ secret.A ~ 'x' }}", "secret.A can only be put into text"),
    ("{{ secret.A + 'x' }}", "secret.A can only be put into text"),
    ("{{ [secret.A] }}", "secret.A can only be put into text"),
    ("{{ {'k': secret.A} }}", "secret.A can only be put into text"),
    ("{{ a[secret.A] }}", "secret.A can only be put into text"),
    ("{{ a.s | default(secret.A) }}", "secret.A can only be put into text"),
    ("{{ secret.A if a.yes else secret.B }}", "{% if %} around it can choose"),
    ("{{ secret.A is defined }}", "secret.A can only be put into text"),
    ("{{ secret.A == 'x' }}", "secret.A can only be put into text"),
    ("{% if secret.A %}{% endif %}", "secret.A can only be put into text"),
    ("{% for x in secret.A %}{% endfor %}", "secret.A can only be put into text"),
    ("{% set x = secret.A %}", "secret.A can only be put into text"),
    ("{% with x = secret.A %}{% endwith %}", "secret.A can only be put into text"),
    ("{% set x %}{% if a.b %}{{ secret.A }}{% endif %}{% endset %}", "secret.A can only be put into text"),
    ("{{ secret.A() }}", "no methods"),
    ("{% for x in a recursive %}{% endfor %}", "recursive"),
    ("{% macro m() %}{% endmacro %}", "there are if, for, set, with and raw"),
    ("{% %}", "tag name expected"),
    ("\n\n{{ a b }}", "line 3"),
    ("{{ a", "line 1"),
    ("{{ '\\ud800' }}", "not a character"),
    ("{% if a %}", "endif"),
    ("{# open", "comment"),
]


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_refuses_at_compile_time(source: str, words: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        template.compile(source)
    assert words in str(caught.value)
    assert "line " in str(caught.value)
    assert " ".join(source.split()) in str(caught.value)


A, B = Secret("A"), Secret("B")
SEALED: list[tuple[str, str, tuple[str | Secret, ...]]] = [
    ("{{ secret.A }}", "{{ secret.A }}", (A,)),
    ("${{ secret.A }}", "{{ secret.A }}", (A,)),
    ("{{-secret.A-}}", "{{ secret.A }}", (A,)),
    ("{% print secret.A %}", "{{ secret.A }}", (A,)),
    ("Bearer {{ secret.A }}", "Bearer {{ secret.A }}", ("Bearer ", A)),
    ("{{ secret.A }}{{ secret.B }}", "{{ secret.A }}{{ secret.B }}", (A, B)),
    ("{{ a.b }}{{ a.s }}:{{ secret.A }}!", "1text:{{ secret.A }}!", ("1text:", A, "!")),
    ("{% if a.yes %}{{ secret.A }}{% else %}{{ secret.B }}{% endif %}", "{{ secret.A }}", (A,)),
    ("{% for i in range(2) %}{{ i }}{{ secret.A }}{% endfor %}", "0{{ secret.A }}1{{ secret.A }}", ("0", A, "1", A)),
    ("{{ secret.A }} {{ '{{ secret.B }}' }}", "{{ secret.A }} {{ secret.B }}", (A, " {{ secret.B }}")),
]


@pytest.mark.parametrize(("source", "shown", "pieces"), SEALED)
def test_seals_text_with_secrets(source: str, shown: str, pieces: tuple[str | Secret, ...]) -> None:
    compiled = template.compile(source)
    assert compiled.render(CONTEXT) == template.Sealed(shown, pieces)
    assert "secret" not in compiled.roots
    assert not compiled.constant


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% if a.no %}{{ secret.A }}{% endif %}", ""),
        ("{{ a.secret | default('no') }}", "no"),
        ("{% raw %}{{ secret.A }}{% endraw %}", "{{ secret.A }}"),
    ],
)
def test_text_without_secrets_is_not_sealed(source: str, expected: str) -> None:
    assert template.compile(source).render(CONTEXT) == expected


def test_secrets_are_paid_for() -> None:
    with pytest.raises(TemplateLimit):
        template.compile("{% for i in range(9000) %}{{ secret." + "A" * 5000 + " }}{% endfor %}").render({})


MISSING = [
    ("{{ nowhere }}", "nowhere is missing"),
    ("{{ start.zip }}", "start.zip is missing"),
    ("{{ start.zip.code }}", "start.zip is missing"),
    ("{{ start.city.code }}", "start.city.code is missing"),
    ("{{ start.cities[7].name }}", "start.cities[7] is missing"),
    ("{{ start.output.zip }}", "start.output.zip is missing"),
    ("{{ start['a b'] }}", "start['a b'] is missing"),
    ("{{ start.cities['0'] }}", "start.cities['0'] is missing"),
    ("{{ start.__class__ }}", "start.__class__ is missing"),
    ("{{ start[a.s] }}", "an object has no element 'text'"),
    ("{{ start.empty | first }}", "first element"),
    ("{{ start.empty | max }}", "max of an empty list"),
    ("{{ users.all | map(attribute='zip') }}", "has no zip"),
    ("{{ users.all | map(attribute='__class__') }}", "has no __class__"),
    ("{{ users.all | selectattr('zip') }}", "has no zip"),
    ("{% for u in users.all %}{{ u.zip }}{% endfor %}", "u.zip is missing"),
    ("{% set x = start %}{{ x.output }}", "x.output is missing"),
    ("text {% if start.zip %}{% endif %}", "start.zip is missing"),
]


@pytest.mark.parametrize(("source", "words"), MISSING)
def test_says_what_is_missing_and_where(source: str, words: str) -> None:
    with pytest.raises(MissingValue) as caught:
        template.compile(source).render(CONTEXT)
    assert words in str(caught.value)
    assert source in str(caught.value)


WRONG = [
    ("{{ 'a' * 3 }}", "two numbers"),
    ("{{ '%s' % 3 }}", "two numbers"),
    ("{{ true + 1 }}", "+ needs"),
    ("{{ 1 + 'a' }}", "~ joins"),
    ("{{ 1 / 0 }}", "divides by zero"),
    ("{{ 1 // 0 }}", "divides by zero"),
    ("{{ 1 % 0 }}", "divides by zero"),
    ("{{ 0 ** -1 }}", "divides by zero"),
    ("{{ (-8) ** 0.5 }}", "not a real number"),
    ("{{ -'a' }}", "two numbers"),
    ("{{ 1 < 'a' }}", "no order"),
    ("{{ [1] < [2] }}", "no order"),
    ("{{ 1 in 'a' }}", "only text can be in text"),
    ("{{ 1 in 2 }}", "`in` needs"),
    ("{{ mixed | sort }}", "only numbers or only text"),
    ("{{ 5 | join }}", "needs a list"),
    ("{{ 5 | length }}", "length needs"),
    ("{{ [] | upper }}", "needs text"),
    ("{{ 'x' | int }}", "give it a default"),
    ("{{ 'x' | fromjson }}", "not JSON"),
    ("{{ 'NaN' | fromjson }}", "not JSON"),
    ("{{ 'x' | items }}", "needs an object"),
    ("{{ [1] | tojson(9) }}", "between 0 and 8"),
    ("{{ {1: 2} }}", "key must be text"),
    ("{% for x in 5 %}{% endfor %}", "for needs a list"),
    ("{% set x, y = [1] %}", "2 names"),
    ("{{ numbers['a':] }}", "whole numbers"),
    ("{{ numbers[::0] }}", "must not be 0"),
    ("{{ 1.5 is odd }}", "whole number"),
    ("{{ 1 is divisibleby 0 }}", "zero"),
    ("{{ 'a' | split('') }}", "must not be empty"),
    ("{{ 1 | round(method='up') }}", "common"),
    ("{{ {} | dictsort(by=[]) }}", "'key' or 'value'"),
    ("{{ foreign.x ~ '' }}", "a Python object"),
]


@pytest.mark.parametrize(("source", "words"), WRONG)
def test_says_what_is_wrong(source: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        template.compile(source).render({**CONTEXT, "foreign": {"x": object()}})
    assert not isinstance(caught.value, MissingValue | TemplateLimit)
    assert words in str(caught.value)
    assert source in str(caught.value)


def test_long_sources_are_shortened_in_messages() -> None:
    source = "{{ nowhere }}" + "x" * 10_000
    with pytest.raises(MissingValue) as caught:
        template.compile(source).render({})
    assert "nowhere is missing" in str(caught.value)
    assert len(str(caught.value)) < 250


class Recording(Mapping[str, Any]):
    """A context that remembers what was read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values_by_name = values
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a template must not list its context")

    def __len__(self) -> int:
        raise AssertionError("a template must not measure its context")


def test_a_stack_that_is_nearly_full_gives_a_limit_and_not_a_recursion_error() -> None:
    source = "{{ " + "(" * 28 + "1" + ")" * 28 + " }}"
    room = sys.getrecursionlimit() - len(inspect.stack(0))

    def deeper(levels: int) -> object:
        return deeper(levels - 1) if levels else template.compile(source).render({})

    assert deeper(0) == 1
    with pytest.raises(TemplateLimit):
        deeper(room - 200)


def test_reads_only_what_is_needed() -> None:
    context = Recording(CONTEXT)
    assert template.compile("{{ a.b if a.yes else start.city }}").render(context) == 1
    assert context.read == {"a"}


def test_a_template_can_be_rendered_again_and_keeps_nothing() -> None:
    compiled = template.compile("{% if on %}{% set x = 'local' %}{% endif %}{{ x }}")
    assert compiled.render({"on": True, "x": "root"}) == "local"
    assert compiled.render({"on": False, "x": "root"}) == "root"


def test_a_lone_path_hands_on_what_is_too_large_to_produce() -> None:
    large = ["x" * 1000] * 5000
    assert template.compile("{{ a.large }}").render({"a": {"large": large}}) is large
    with pytest.raises(TemplateLimit):
        template.compile("{{ [a.large] }}").render({"a": {"large": large}})
