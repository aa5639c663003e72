"""Templates that want to hurt the process: each must end in a TemplateError, and nothing may grow or hang.

The corpus runs in one child process whose memory and processor time are limited by the kernel, so "swollen" and "stuck"
show as a dead child and not as a matter of timing. A Hypothesis grammar then makes templates that nobody thought of.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import TemplateError
from headrace.model import template
from headrace.model.template.collections import FILTERS
from headrace.model.template.predicates import TESTS

MEMORY_BYTES = 1024**3
PROCESSOR_SECONDS = 60


def hostile_context() -> dict[str, Any]:
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    deep_object: Any = 1
    for _ in range(5_000):
        deep_object = {"a": deep_object}
    one: Any = ["x"]
    other: Any = ["x"]
    for _ in range(40):
        one, other = [one, one], [other, other]
    return {
        "a": {"b": 1, "l": [1, 2, 3], "o": {"k": "v"}, "s": "text"},
        "deep": deep,
        "deep_object": deep_object,
        "one": one,
        "other": other,
        "long": "x" * 1_000_000,
        "other_long": "x" * 1_000_000,
        "sharp": "ß" * 1_000_000,
        "lines": "\n" * 500_000,
        "many": list(range(300_000)),
        "texts": ["x" * 10_000] * 3_000,
        "mixed": [1, "a", None, [], {}],
        "big": 10**4000,
        "digits": "9" * 100_000,
        "brackets": "[" * 100_000,
        "empties": "[" + "[]," * 1_000_000 + "[]]",
    }


def nested(opening: str, closing: str, times: int, middle: str = "1") -> str:
    return opening * times + middle + closing * times


DOUBLING = "{% set x = 'xxxxxxxxxx' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}"

CORPUS: dict[str, str] = {
    # multiplication and repetition
    "text times number": "{{ 'x' * 1000000000 }}",
    "number times text": "{{ 1000000000 * 'x' }}",
    "list times number": "{{ [0] * 1000000000 }}",
    "tuple times number": "{{ (1, 2) * 1000000000 }}",
    "product of large numbers": "{{ 9223372036854775807 * 9223372036854775807 }}",
    "chain of products": "{{ " + " * ".join(["99999999999"] * 50) + " }}",
    "square of a long number": "{{ big * big }}",
    "sum beyond 64 bits": "{{ 9223372036854775807 + 1 }}",
    "difference below 64 bits": "{{ -9223372036854775807 - 10 }}",
    # exponents
    "huge exponent": "{{ 10 ** 1000000000 }}",
    "tower of exponents": "{{ 9 ** 9 ** 9 ** 9 }}",
    "long chain of exponents": "{{ " + " ** ".join(["2"] * 3000) + " }}",
    "long number to a power": "{{ big ** 100000 }}",
    "float overflow": "{{ 1e308 * 10.0 }}",
    "float power overflow": "{{ 10.0 ** 1000 }}",
    "infinite minus infinite": "{{ 1e308 * 10 - 1e308 * 10 }}",
    "negative root": "{{ (-1) ** 0.5 }}",
    # range floods
    "range of a billion": "{{ range(1000000000) }}",
    "range of a trillion joined": "{{ range(1000000000000) | join }}",
    "range of 64 bits": "{{ range(-9223372036854775807, 9223372036854775807) | length }}",
    "range of a long number": "{{ range(big) }}",
    "range backwards": "{{ range(0, -100000000, -1) | list }}",
    "nested range loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "five nested small loops": "{% for a in range(99) %}" * 5 + "x" + "{% endfor %}" * 5,
    "empty loops in a row": "{% for a in range(10000) %}{% endfor %}" * 40,
    "range of float": "{{ range(1e10) }}",
    "range without end": "{{ range(0, 10, 0) }}",
    "loop with a filter in front": "{% for a in many if a < 0 %}{% endfor %}" * 2,
    "loop over characters": "{% for c in long %}{{ c }}{% endfor %}",
    # doubling
    "doubling by set": DOUBLING,
    "doubling by plus": DOUBLING.replace("~", "+"),
    "doubling by block": "{% set x %}xxxxxxxxxx{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "doubling by replace": "{% set x = 'aa' %}" + "{% set x = x | replace('a', x) %}" * 8 + "{{ x | length }}",
    "doubling of lists": "{% set x = [1] %}" + "{% set x = x + x %}" * 40 + "{{ x | length }}",
    "doubling of nested lists": "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
    "doubling of nested objects": "{% set x = {} %}" + "{% set x = {'a': x, 'b': x} %}" * 60 + "{{ x | tojson }}",
    "doubling by join": "{% set x = 'ab' %}" + "{% set x = [x, x, x, x] | join(x) %}" * 20 + "{{ x }}",
    "doubling by map": "{{ range(10000) | map('replace', '1', long) | join }}",
    "doubling of json": "{% set x = '\"' %}" + "{% set x = x | tojson %}" * 90 + "{{ x }}",
    "comparing twins of doubled lists": "{{ one == other }}",
    "searching a doubled list": "{{ other in [one] }}",
    "unique of doubled lists": "{{ [one, other] | unique }}",
    "one value many times": "{{ [" + "long," * 2000 + "] }}",
    "one value many times as text": "{{ long }}" * 100,
    "one list many times": "{{ [" + "many," * 2000 + "] }}",
    # nesting and chains
    "nested parentheses": "{{ " + nested("(", ")", 10_000) + " }}",
    "nested parentheses, a few": "{{ " + nested("(", ")", 90) + " }}",
    "nested lists": "{{ " + nested("[", "]", 10_000) + " }}",
    "nested objects": "{{ " + nested("{'a':", "}", 5_000) + " }}",
    "nested indexes": "{{ " + nested("a[", "]", 5_000) + " }}",
    "nested calls": "{{ " + nested("range(", ")", 5_000) + " }}",
    "nested filters": "{{ 1" + "|default(1" * 3_000 + ")" * 3_000 + " }}",
    "open parentheses": "{{ " + "(" * 60_000,
    "chain of not": "{{ " + "not " * 10_000 + "1 }}",
    "chain of minus": "{{ " + "-" * 60_000 + "1 }}",
    "chain of minus and blanks": "{{ " + "- " * 9_000 + "1 }}",
    "chain of signs": "{{ " + "+-" * 9_000 + "1 }}",
    "chain of filters": "{{ 1" + "|abs" * 9_000 + " }}",
    "chain of attributes": "{{ a" + ".b" * 9_000 + " }}",
    "chain of indexes": "{{ a" + "[0]" * 6_000 + " }}",
    "chain of plus": "{{ 1" + "+1" * 9_000 + " }}",
    "chain of tildes": "{{ 1" + "~1" * 9_000 + " }}",
    "chain of and": "{{ 1" + " and 1" * 9_000 + " }}",
    "chain of or": "{{ 0" + " or 0" * 9_000 + " }}",
    "chain of comparisons": "{{ 1" + "==1" * 9_000 + " }}",
    "chain of inline ifs": "{{ 1" + " if 0 else 1" * 5_000 + " }}",
    "chain of inline ifs without else": "{{ 1" + " if 1" * 9_000 + " }}",
    "chain of tests": "{{ 1" + " is odd" * 9_000 + " }}",
    "chain of calls": "{{ a" + "()" * 9_000 + " }}",
    "chain of elif": "{% if 0 %}" + "{% elif 0 %}" * 5_000 + "{% endif %}",
    "nested ifs": nested("{% if 1 %}", "{% endif %}", 3_000),
    "nested loops": nested("{% for x in [1] %}", "{% endfor %}", 1_500),
    "nested set blocks": nested("{% set x %}", "{% endset %}", 2_500),
    "nested with": nested("{% with %}", "{% endwith %}", 2_500),
    "unclosed ifs": "{% if 1 %}" * 5_000,
    "nested assignment targets": "{% set " + nested("(", ",)", 5_000, "x") + " = 1 %}",
    # size of the source
    "source too long": "{{ 1 }}" + "x" * 70_000,
    "too many nodes": "{{ 1 }}" * 9_000,
    "too many tokens": "{{ [" + "1," * 30_000 + "] }}",
    "flood of opening braces": "{{" * 32_000,
    "flood of open comments": "{#" * 32_000,
    "flood of block starts": "{%-" * 21_000,
    "flood of raw": "{% raw " * 9_000,
    "raw without end": "{% raw %}" + "{%" + " " * 60_000,
    # literals
    "integer of 60,000 digits": "{{ " + "9" * 60_000 + " }}",
    "integer of 5,000 digits": "{{ " + "9" * 5_000 + " }}",
    "integer of 65 bits": "{{ 18446744073709551616 }}",
    "hexadecimal of 60,000 digits": "{{ 0x" + "f" * 60_000 + " }}",
    "number with underscores": "{{ " + "1_" * 30_000 + "1 }}",
    "float of 60,000 digits": "{{ 1." + "1" * 60_000 + "x }}",
    "infinite float": "{{ 1e999 }}",
    "string of backslashes": "{{ '" + "\\" * 60_001 + "' }}",
    "string without end": '{{ "' + '\\"' * 30_000,
    "lone surrogate": "{{ '\\ud800' }}",
    "character beyond unicode": "{{ '\\Uffffffff' }}",
    # formats and padding
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format by percent": "{{ '%01000000000d' % 1 }}",
    "format method": "{{ '{:>1000000000}'.format(1) }}",
    "format method into attributes": "{{ '{0.__class__.__mro__}'.format(a) }}",
    "center": "{{ 'x' | center(1000000000) }}",
    "ljust": "{{ 'x'.ljust(1000000000) }}",
    "zfill": "{{ 'x'.zfill(1000000000) }}",
    "wordwrap": "{{ long | wordwrap(1) }}",
    "pprint": "{{ one | pprint }}",
    "filesizeformat": "{{ big | filesizeformat }}",
    "xmlattr": "{{ a | xmlattr }}",
    "indent by a billion": "{{ 'a\nb' | indent(1000000000) }}",
    "indent of many lines": "{{ lines | indent(1000, blank=true) }}",
    "indent by long text": "{{ lines | indent(long, true, true) }}",
    "tojson with a huge indent": "{{ a | tojson(1000000000) }}",
    "tojson with a wide indent of many": "{{ many | tojson(8) }}" * 3,
    "truncate with a long end": "{{ long | truncate(10, end=long) }}",
    "batch filled up": "{{ [1] | batch(1000000000, 'x') }}",
    "slice into a billion": "{{ [1] | slice(1000000000) }}",
    "slice into none": "{{ [1] | slice(0) }}",
    "round to a billion digits": "{{ 1.5 | round(1000000000) }}",
    "round to minus a billion digits": "{{ 1 | round(-1000000000) }}",
    # large results of filters
    "giant join": "{{ texts | join(long) }}",
    "giant replace": "{{ long | replace('x', long) }}",
    "replace of nothing": "{{ long | replace('', 'xxxxxxxxxx') }}",
    "casing that expands": "{{ sharp | upper }}" * 2,
    "title of long texts": "{{ texts | map('title') | list }}",
    "urlencode that expands": "{{ sharp | urlencode }}",
    "list of characters": "{{ long | list }}",
    "split into characters": "{{ lines | split('\n') }}",
    "trim with long characters": "{{ long | trim('y' ~ long) }}",
    "sort of many, often": "{{ many | sort | reverse | sort }}",
    "sort of long texts": "{{ (texts + texts) | sort }}",
    "sort of mixed types": "{{ mixed | sort }}",
    "sort by a deep attribute": "{{ a.l | sort(attribute='" + "a." * 400 + "a') }}",
    "min of mixed types": "{{ mixed | min }}",
    "sum of texts": "{{ texts | sum(start='') }}",
    "sum of lists": "{{ [[1], [2]] | sum(start=[]) }}",
    "unique of many": "{{ many | unique }}",
    "groupby of many": "{{ many | groupby('a') }}",
    "map over many, often": "{{ many | map('string') | map('upper') | list }}",
    "slice with a huge step": "{{ a.l[::100000000000000000000] }}",
    "slice of slices": "{% for i in range(9999) %}{% set x = long[1:] %}{% endfor %}",
    "comparing long texts in a loop": "{% for i in range(9999) %}{{ long == other_long }}{% endfor %}",
    "searching long texts in a loop": "{% for i in range(9999) %}{{ 'y' in long }}{% endfor %}",
    "searching many in a loop": "{% for i in range(9999) %}{{ -1 in many }}{% endfor %}",
    "counting words in a loop": "{% for i in range(9999) %}{{ long | wordcount }}{% endfor %}",
    "wide loop body": "{% for i in range(9999) %}" + "{{ i }}" * 1_500 + "{% endfor %}",
    # numbers in text
    "int of many digits": "{{ digits | int }}",
    "float of many digits": "{{ digits | float }}",
    "int of infinity": "{{ 'inf' | int }}",
    "float of nan": "{{ 'nan' | float }}",
    "long number as text": "{{ (big | string) ~ '' ~ [big * 1] }}",
    # JSON
    "fromjson of brackets": "{{ brackets | fromjson }}",
    "fromjson of many empties": "{{ empties | fromjson }}",
    "fromjson of digits": "{{ digits | fromjson }}",
    "fromjson of infinity": "{{ '[1e999]' | fromjson }}",
    "fromjson of nan": "{{ '[NaN]' | fromjson }}",
    "fromjson in a loop": "{% for i in range(9999) %}{% set x = (long[:999] | tojson) | fromjson %}{% endfor %}",
    # deep contexts
    "deep list as text": "deep: {{ deep }}",
    "deep list as json": "{{ deep | tojson }}",
    "deep list indented": "{{ deep | tojson(2) }}",
    "deep list compared": "{{ [deep] == [[deep]] }}",
    "deep list unique": "{{ [deep, deep] | unique }}",
    "deep object as json": "{{ deep_object | tojson }}",
    "deep object in a list": "{{ [deep_object] }}",
    # attribute tricks
    "class of text": "{{ ''.__class__ }}",
    "class of a list": "{{ a.l.__class__.__mro__ }}",
    "class by index": "{{ a['__class__'] }}",
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attribute filter": "{{ a | attr('__class__') }}",
    "attribute of map": "{{ [a] | map(attribute='__class__') | list }}",
    "attribute of map, a path": "{{ [a] | map(attribute='__init__.__globals__') | list }}",
    "attribute of sort": "{{ [a, a] | sort(attribute='__class__') }}",
    "attribute of selectattr": "{{ [a] | selectattr('__class__') | list }}",
    "attribute of groupby": "{{ [a] | groupby('__class__') }}",
    "globals of range": "{{ range.__globals__ }}",
    "self": "{{ self.__init__ }}",
    "self as a dictionary": "{{ self._TemplateReference__context }}",
    "config": "{{ config.items() }}",
    "cycler": "{{ cycler.__init__.__globals__.os }}",
    "lipsum": "{{ lipsum(1000000) }}",
    "joiner": "{{ joiner() }}",
    "dict": "{{ dict(a=1) }}",
    "namespace": "{% set n = namespace(x=1) %}{% set n.x = 2 %}",
    "loop cycle": "{% for x in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}",
    "loop internals": "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
    # mutation through methods
    "append": "{{ a.l.append(1) }}",
    "pop": "{{ a.l.pop() }}",
    "clear": "{{ a.clear() }}",
    "update": "{% set x = a.update({'b': 2}) %}",
    "setdefault": "{% if a.setdefault('x', 1) %}{% endif %}",
    "do": "{% do a.l.append(1) %}",
    "assignment to an attribute": "{% set a.b = 2 %}",
    "assignment to an index": "{% set a['b'] = 2 %}",
    # statements that do not exist here
    "macro": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "call block": "{% call a() %}{% endcall %}",
    "filter block": "{% filter upper %}x{% endfilter %}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "from import": "{% from 'os' import system %}",
    "extends": "{% extends 'base.html' %}",
    "block": "{% block x %}{% endblock %}",
    "autoescape": "{% autoescape true %}{% endautoescape %}",
    "translation": "{% trans %}x{% endtrans %}",
    "break": "{% for x in [1] %}{% break %}{% endfor %}",
    "debug": "{% debug %}",
    "recursive loop": "{% for x in a.l recursive %}{{ loop(a.l) }}{% endfor %}",
    "filter with a long name": "{{ 1 | " + "upper" * 10_000 + " }}",
    "test with a dotted name": "{{ 1 is a.b.c }}",
    "starred arguments": "{{ a.l | join(*many) }}",
    "starred named arguments": "{{ a.l | join(**a) }}",
}


def run_corpus() -> None:
    """The child: render everything, and print what became of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    context = hostile_context()
    outcomes: dict[str, str] = {}
    for name, source in CORPUS.items():
        print(name, file=sys.stderr, flush=True)
        try:
            value = template.compile(source).render(context)
            outcomes[name] = f"rendered a {type(value).__name__}"
        except TemplateError as error:
            outcomes[name] = "refused" if 10 < len(str(error)) < 1_000 else f"message of {len(str(error))} characters"
        except BaseException as error:  # a report of whatever came through is the point
            outcomes[name] = f"raised {type(error).__name__}: {str(error)[:200]}"
    json.dump({"outcomes": outcomes, "unchanged": context_is_unchanged(context)}, sys.stdout)


def context_is_unchanged(context: dict[str, Any]) -> bool:
    """Compare all that can be compared without walking through what is deep on purpose."""
    twin = hostile_context()
    shallow = sorted(set(twin) - {"deep", "deep_object", "one", "other"})
    deep, levels = context["deep"], 0
    while isinstance(deep, list) and len(deep) == 1:
        deep, levels = deep[0], levels + 1
    sizes = len(context["one"]) == len(context["other"]) == 2 and list(context["deep_object"]) == ["a"]
    return (
        list(context) == list(twin)
        and [context[k] for k in shallow] == [twin[k] for k in shallow]
        and (deep == 1 and levels == 50_000 and sizes)
    )


@pytest.fixture(scope="module")
def child() -> dict[str, Any]:
    """What the child reported. Its standard error ends with the name of the template that killed it."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_template_hostile as t; t.run_corpus()"
    folder = __file__.rsplit("/", 1)[0]
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the child died with {done.returncode} in: {done.stderr[-500:]}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_corpus_is_large_and_without_twins() -> None:
    assert len(set(CORPUS.values())) == len(CORPUS) >= 90


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_template_ends_in_a_clear_error(child: dict[str, Any], name: str) -> None:
    assert child["outcomes"][name] == "refused"


def test_no_hostile_template_changed_the_context(child: dict[str, Any]) -> None:
    assert child["unchanged"] is True


# A grammar of templates, right and wrong ones, over a small context.

NAMES = ["a", "b", "c", "x", "loop", "range", "nowhere"]
KEYS = ["k", "l", "output", "0", "__class__", "index"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["", "a,b", "[1, 2]", "12", "1e3", "ß", "x y\nz"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(st.integers(-5, 5), max_size=5),
        st.lists(st.text("abAB ", max_size=3), max_size=5),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    ),
    max_leaves=12,
)
contexts = st.dictionaries(st.sampled_from(NAMES[:-1]), values, max_size=6)

literals = st.one_of(
    st.integers(-3, 12).map(str),
    st.sampled_from(["1.5", "0", "true", "none", "''", "'k'", "'a b'", "' '", "[]", "{}", "()", "1e30", "10**18"]),
    st.sampled_from(["'upper'", "'first'", "'odd'", "'defined'", "'k.l'", "9223372036854775807", "'\\n'", "99999"]),
)
names = st.sampled_from(NAMES)
filter_names = st.sampled_from([*FILTERS, "map", "select", "reject", "selectattr", "rejectattr", "format"])
test_names = st.sampled_from([*(name for name in TESTS if name.isidentifier()), "defined", "undefined", "sameas"])
parameter_names = st.sampled_from(sorted({p for f in FILTERS.values() for p, _ in f.parameters}))
operators = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", " in ", " not in ", " and ", " or "]
)


def arguments(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    argument = st.one_of(inner, inner, st.tuples(parameter_names, inner).map("=".join))
    return st.one_of(st.just(""), st.lists(argument, min_size=1, max_size=3).map(lambda each: f"({', '.join(each)})"))


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(KEYS)).map(".".join),
        st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.tuples(inner, inner, inner).map(lambda t: f"{t[0]}[{t[1]}:{t[2]}]"),
        st.tuples(inner, filter_names, arguments(inner)).map(lambda t: f"({t[0]} | {t[1]}{t[2]})"),
        st.tuples(inner, filter_names).map(lambda t: f"{t[0]} | {t[1]}"),
        st.tuples(inner, test_names, arguments(inner)).map(lambda t: f"({t[0]} is {t[1]}{t[2]})"),
        st.tuples(inner, operators, inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"{{{t[0]}: {t[1]}}}"),
        inner.map(lambda e: f"range({e})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"-{e}"),
        inner.map(lambda e: f"({e} | default('d'))"),
        inner.map(lambda e: f"{e}.pop()"),
    )


expressions = st.recursive(st.one_of(names, names, literals), larger, max_leaves=6)


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.tuples(expressions, inner, inner).map(lambda t: f"{{% if {t[0]} %}}{t[1]}{{% else %}}{t[2]}{{% endif %}}"),
        st.tuples(expressions, inner).map(lambda t: f"{{%- if {t[0]} -%}}{t[1]}{{% endif %}}"),
        st.tuples(names, expressions, inner, inner).map(
            lambda t: f"{{% for {t[0]} in {t[1]} %}}{t[2]}{{% else %}}{t[3]}{{% endfor %}}"
        ),
        st.tuples(names, expressions, expressions, inner).map(
            lambda t: f"{{% for {t[0]}, x in {t[1]} if {t[2]} %}}{t[3]}{{% endfor %}}"
        ),
        st.tuples(names, inner).map(lambda t: f"{{% set {t[0]} %}}{t[1]}{{% endset %}}"),
        st.tuples(names, expressions, inner).map(lambda t: f"{{% with {t[0]} = {t[1]} %}}{t[2]}{{% endwith %}}"),
        inner.map(lambda body: f"{{% macro m() %}}{body}{{% endmacro %}}"),
        inner.map(lambda body: f"{{% if 1 %}}{body}"),
    )


outputs = expressions.map(lambda e: f"{{{{ {e} }}}}")
statements = st.recursive(
    st.one_of(
        outputs,
        outputs,
        st.tuples(names, expressions).map(lambda t: f"{{% set {t[0]} = {t[1]} %}}"),
        st.sampled_from(["text ", "$", "{# c #}", "{% raw %}{{{% endraw %}", "\r\n"]),
    ),
    blocks,
    max_leaves=6,
)
FRAGMENTS = [
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "\\",
        "|",
        ".",
        ",",
        ":",
        "=",
        "~",
    ),
    *("if", " for ", "in", "set", " else ", "endif", "raw", "endraw", "endfor", "not ", "is", "upper", "a", " ", "\n"),
    *("1", "1e5", "0x", "_", "1.", "1_0", "**", "${{", "٣", "é", "\x00", "\ud800"),
]
fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)

# The wild grammar above mostly makes mistakes. This one knows types, so that most of what it makes has a value.

Kinds = dict[str, st.SearchStrategy[str]]

LEAVES: Kinds = {
    "number": st.one_of(st.sampled_from(["n", "o.k", "l[0]", "u[0].k"]), st.integers(-3, 12).map(str), st.just("1.5")),
    "text": st.sampled_from(
        ["s", "o.l", "t[0]", "u[0].l", "'a b'", "''", "'x,y'", "s.output", "nowhere | default('d')"]
    ),
    "list": st.sampled_from(["l", "t", "[]", "range(3)", "[3, 1, 2]", "o.output | keys", "'b a' | split"]),
    "object": st.sampled_from(["o", "u[0]", "{}", "{'k': 1, 'l': 'x'}", "u | first"]),
    "truth": st.sampled_from(["true", "n > 1", "s is string", "nowhere is defined", "'k' in o", "l", "x is defined"]),
}


def filtered(value: st.SearchStrategy[str], *filters: str) -> st.SearchStrategy[str]:
    return st.tuples(value, st.sampled_from(filters)).map(lambda t: f"(({t[0]}) | {t[1]})")


def joined(pattern: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda values: pattern.format(*values))


def grown(kinds: Kinds) -> Kinds:
    """One level more of typed expressions."""
    number, text, items, truth = kinds["number"], kinds["text"], kinds["list"], kinds["truth"]
    entry = kinds["object"]
    calculation = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    comparison = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    anything = st.one_of(number, text, items, entry, truth)
    choice = "({0} if {1} else {2})"
    return {
        "number": st.one_of(
            number,
            joined("({0} {1} {2})", number, calculation, number),
            joined("(-{0})", number),
            filtered(number, "abs", "round", "round(1, 'floor')", "int", "float", "default(1)"),
            filtered(text, "length", "wordcount", "int(0)", "float(0.5)", "count"),
            filtered(items, "length", "map('int', 1) | sum", "map('float', 0.5) | max | default(0)"),
            joined(choice, number, truth, number),
        ),
        "text": st.one_of(
            text,
            joined("({0} ~ {1})", anything, anything),
            joined("({0} + {1})", text, text),
            joined("({0})[:{1} | int]", text, number),
            filtered(text, "upper", "lower", "title", "capitalize", "trim", "trim('a')", "reverse", "indent(2, true)"),
            filtered(text, "replace('a', 'bb')", "truncate(5, true)", "urlencode", "string", "d('x', true)"),
            filtered(anything, "tojson", "tojson(2)", "string"),
            filtered(items, "join", "join(', ')", "tojson", "map('string') | first | default('-')"),
            joined(choice, text, truth, text),
        ),
        "list": st.one_of(
            items,
            joined("({0} + {1})", items, items),
            joined("[{0}, {1}]", anything, anything),
            joined("({0})[{1} | int:]", items, number),
            filtered(items, "reverse", "list", "unique", "map('string') | sort", "map('tojson') | unique(true)"),
            filtered(items, "batch(2)", "batch(2, 'z')", "slice(2)", "select", "reject('string')", "select('number')"),
            filtered(items, "map('string') | map('upper')", "tojson | fromjson", "map('string') | sort(true)"),
            filtered(entry, "items", "keys", "values", "dictsort", "list"),
            filtered(text, "split", "split(',')", "list"),
            st.sampled_from(["u | map(attribute='k')", "u | sort(attribute='k', reverse=true)", "u | groupby('l')"]),
            st.sampled_from(["u | selectattr('k', 'gt', 1)", "u | rejectattr('l')", "u | unique(attribute='l')"]),
            st.sampled_from(["u | map(attribute='z.y', default=0)", "u | selectattr('z', 'defined')"]),
        ),
        "object": st.one_of(
            entry, joined("{{'k': {0}, 'l': {1}}}", anything, anything), joined(choice, entry, truth, entry)
        ),
        "truth": st.one_of(
            truth,
            joined("({0} {1} {2})", number, comparison, number),
            joined("({0} {1} {2})", text, comparison, text),
            joined("({0} == {1})", anything, anything),
            joined("({0} in {1})", anything, items),
            joined("({0} not in {1})", text, text),
            joined("({0} and not {1})", truth, truth),
            joined("({0} or {1})", truth, truth),
            joined(
                "({0} is {1})", anything, st.sampled_from([*PLAIN_TESTS, "defined", "not undefined", "eq 1", "in l"])
            ),
        ),
    }


PLAIN_TESTS = ["none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true"]
TYPED = grown(grown(LEAVES))
any_typed = st.one_of(*TYPED.values())
typed_outputs = any_typed.map(lambda e: f"{{{{ {e} }}}}")
locals_ = st.sampled_from(["n", "s", "l", "x"])


def typed_blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    truth, items, entry = TYPED["truth"], TYPED["list"], TYPED["object"]
    loop = "{{{{ loop.index }}}}/{{{{ loop.length }}}}"
    return st.one_of(
        joined("{0}{1}", inner, inner),
        joined("{{% if {0} %}}{1}{{% elif {2} %}}{3}{{% else %}}{1}{{% endif %}}", truth, inner, truth, inner),
        joined("{{% for {0} in {1} %}}" + loop + "{2}{{% else %}}{3}{{% endfor %}}", locals_, items, inner, inner),
        joined("{{% for x in {0} if {1} %}}{{{{ x }}}}{2}{{% endfor %}}", items, truth, inner),
        joined("{{% for x, n in {0} | items %}}{{{{ x }}}}{1}{{% endfor %}}", entry, inner),
        joined("{{% set {0} %}}{1}{{% endset %}}{2}", locals_, inner, inner),
        joined("{{% set {0} = {1} %}}{2}", locals_, any_typed, inner),
        joined("{{% with {0} = {1} %}}{2}{{% endwith %}}", locals_, any_typed, inner),
        joined("{{% if {0} %}}{{% set x = {1} %}}{{% endif %}}{2}", truth, any_typed, inner),
    )


typed_statements = st.recursive(
    st.one_of(typed_outputs, st.sampled_from(["text ", "${{ s }}", "{# c #}", "{{ x | d('no') }}", "{{ secret.A }}"])),
    typed_blocks,
    max_leaves=6,
)
typed_contexts = st.fixed_dictionaries(
    {
        "n": st.integers(-5, 50),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "l": st.lists(st.integers(-5, 5), min_size=1, max_size=5),
        "t": st.lists(st.text("abAB ", max_size=3), min_size=1, max_size=5),
        "o": st.fixed_dictionaries({"k": st.integers(), "l": st.text(max_size=3)}, optional={"output": scalars}),
        "u": st.lists(
            st.fixed_dictionaries({"k": st.integers(-3, 3), "l": st.text("ab", max_size=2)}), min_size=1, max_size=4
        ),
    },
    optional={"x": values},
)


class Recording(dict[str, Any]):
    """A context that remembers which roots were read."""

    def __init__(self, values_by_name: dict[str, Any]) -> None:
        super().__init__(values_by_name)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def outcome(compiled: template.Template, context: dict[str, Any]) -> tuple[str, str]:
    try:
        rendered = compiled.render(context)
        if isinstance(rendered, template.Sealed):
            shown = "".join(piece if isinstance(piece, str) else "{{ secret.A }}" for piece in rendered.pieces)
            assert shown == rendered.shown
            return "value", shown
        return "value", json.dumps(rendered, allow_nan=False)
    except TemplateError as error:
        return type(error).__name__, str(error)


def check(source: str, context: dict[str, Any]) -> None:
    try:
        compiled = template.compile(source)
    except TemplateError:
        return
    before = json.dumps(context)
    recording = Recording(context)
    first = outcome(compiled, recording)
    assert recording.read <= compiled.roots
    assert outcome(compiled, context) == first
    assert json.dumps(context) == before


common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@settings(common, max_examples=700)
@given(outputs, contexts)
def test_any_expression_gives_json_or_a_template_error(source: str, context: dict[str, Any]) -> None:
    check(source, context)


@settings(common, max_examples=500)
@given(statements, contexts)
def test_any_template_gives_json_or_a_template_error(source: str, context: dict[str, Any]) -> None:
    check(source, context)


@settings(common, max_examples=500)
@given(fragments)
def test_any_rubbish_gives_json_or_a_template_error(source: str) -> None:
    check(source, {"a": {"b": [1, 2]}})


@settings(common, max_examples=300)
@given(filter_names, arguments(literals), values)
def test_any_filter_takes_any_value(name: str, given_arguments: str, value: Any) -> None:
    check(f"{{{{ a | {name}{given_arguments} }}}}", {"a": value})


@settings(common, max_examples=700)
@given(st.one_of(typed_outputs, typed_statements), typed_contexts)
def test_typed_templates_give_json_or_a_template_error(source: str, context: dict[str, Any]) -> None:
    check(source, context)


def test_most_typed_templates_have_a_value() -> None:
    """The properties above would hold for a grammar of nothing but mistakes: this one must not be such."""
    seen = {"value": 0, "error": 0}

    @settings(common, max_examples=200)
    @given(st.one_of(typed_outputs, typed_statements), typed_contexts)
    def count(source: str, context: dict[str, Any]) -> None:
        try:
            kind, _ = outcome(template.compile(source), context)
        except TemplateError:
            kind = "refused"
        seen["value" if kind == "value" else "error"] += 1

    count()
    assert seen["value"] > seen["error"]
