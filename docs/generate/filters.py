"""What the reference says about each filter and test: its meaning, and an example whose result is computed.

Names, aliases and parameters come from the tables of the code; a test says when one of these lists is not complete.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One filter or test. `signature` is for those that are no functions in the code's tables."""

    name: str
    meaning: str
    example: str
    signature: str = ""


ANY = (
    Entry(
        "default",
        "another value where this one is missing; with `boolean` also where it is empty, 0, false or none",
        "{{ input.town | default('Rome') }}",
    ),
    Entry("string", "the value as text, as it stands within text", "{{ [1, true] | string }}"),
    Entry("length", "how many characters, elements or keys it has", "{{ 'Rome' | length }}"),
    Entry("tojson", "JSON text, compact or with up to 8 blanks per level", "{{ {'a': [1, none]} | tojson }}"),
    Entry("fromjson", "the value that JSON text means", """{{ '{"a": [1]}' | fromjson }}"""),
)
TEXT = (
    Entry("upper", "in capitals", "{{ 'Rome' | upper }}"),
    Entry("lower", "in small letters", "{{ 'Rome' | lower }}"),
    Entry("capitalize", "the first character as a capital, all others small", "{{ 'rome AND bonn' | capitalize }}"),
    Entry("title", "each word with a capital", "{{ 'rome and bonn' | title }}"),
    Entry("trim", "without blanks, or `chars`, at both ends", "{{ '  Rome ' | trim }}"),
    Entry("replace", "with `new` for each `old`, at most `count` times", "{{ 'a-b-c' | replace('-', '/') }}"),
    Entry(
        "truncate",
        "shortened to `length`, at the end of a word unless `killwords`; left alone if it is at most `leeway` longer",
        "{{ 'The quick brown fox' | truncate(14) }}",
    ),
    Entry(
        "indent",
        "each further line moved right by `width` blanks or by that text; also the `first`, also `blank` lines",
        r"""{{ 'a\nb' | indent(2) }}""",
    ),
    Entry("split", "a list of the parts between `sep`, or between blanks", "{{ 'Rome, Bonn' | split(', ') }}"),
    Entry("wordcount", "how many words it has", "{{ 'two words' | wordcount }}"),
    Entry("urlencode", "escaped for a URL; an object becomes a query", "{{ {'q': 'a b', 'n': 1} | urlencode }}"),
)
NUMBERS = (
    Entry("int", "a whole number, from a number or text; else `default`, else an error", "{{ '42' | int }}"),
    Entry("float", "a number with a fraction, likewise", "{{ 'n/a' | float(0) }}"),
    Entry("abs", "without its sign", "{{ -3 | abs }}"),
    Entry(
        "round",
        "rounded to `precision` digits, by `method` 'common', 'ceil' or 'floor'; always with a fraction",
        "{{ 2.345 | round(1) }}",
    ),
)
LISTS = (
    Entry("first", "the first element or character; missing if there is none", "{{ [3, 1, 2] | first }}"),
    Entry("last", "the last one", "{{ [3, 1, 2] | last }}"),
    Entry("join", "the elements as one text with `d` between them", "{{ places.found | join(', ', 'name') }}"),
    Entry("list", "a list of the elements, the keys or the characters", "{{ 'abc' | list }}"),
    Entry("reverse", "in the opposite order", "{{ [3, 1, 2] | reverse }}"),
    Entry("sort", "in order; numbers or texts, not both", "{{ ['b', 'A', 'c'] | sort }}"),
    Entry("unique", "the first of each; 1 and true are different", "{{ [1, 2, 1, true] | unique }}"),
    Entry("min", "the smallest element; missing if there is none", "{{ [3, 1, 2] | min }}"),
    Entry("max", "the largest one", "{{ places.found | max(attribute='people') }}"),
    Entry("sum", "all elements and `start`, added", "{{ places.found | sum('people') }}"),
    Entry(
        "map",
        "of each element an attribute, or what a filter gives for it",
        "{{ places.found | map(attribute='name') }}",
        "map(attribute, default=…)`, `map('filter', …)",
    ),
    Entry(
        "select",
        "the elements that pass a test; without one, those that count as true",
        "{{ [1, 2, 3, 4] | select('even') }}",
        "select('test', …)",
    ),
    Entry("reject", "the other elements", "{{ [0, 1, '', 'a'] | reject }}", "reject('test', …)"),
    Entry(
        "selectattr",
        "the elements with an attribute that passes a test, or counts as true",
        "{{ places.found | selectattr('people', 'gt', 1) }}",
        "selectattr('attribute', 'test', …)",
    ),
    Entry(
        "rejectattr",
        "the other elements",
        "{{ places.found | rejectattr('people', 'gt', 1) }}",
        "rejectattr('attribute', 'test', …)",
    ),
    Entry(
        "groupby",
        "pairs of an attribute's value and the elements that have it, sorted by it",
        "{{ [{'n': 2}, {'n': 1}, {'n': 2}] | groupby('n') }}",
    ),
    Entry("batch", "lists of `linecount` elements, the last one filled up", "{{ [1, 2, 3] | batch(2, 0) }}"),
    Entry("slice", "`slices` lists of nearly the same length", "{{ [1, 2, 3] | slice(2) }}"),
)
OBJECTS = (
    Entry("items", "pairs of key and value", "{{ {'b': 1, 'a': 2} | items }}"),
    Entry("keys", "the keys", "{{ {'b': 1, 'a': 2} | keys }}"),
    Entry("values", "the values", "{{ {'b': 1, 'a': 2} | values }}"),
    Entry("dictsort", "pairs of key and value, in order `by` 'key' or 'value'", "{{ {'b': 1, 'a': 2} | dictsort }}"),
)
FILTERS = {"any value": ANY, "text": TEXT, "numbers": NUMBERS, "lists": LISTS, "objects": OBJECTS}

TESTS = (
    Entry("defined", "it is there", "{{ input.town is defined }}"),
    Entry("undefined", "it is missing", "{{ input.town is undefined }}"),
    Entry("none", "it is null", "{{ weather.body.wind is none }}"),
    Entry("boolean", "it is true or false", "{{ 1 is boolean }}"),
    Entry("true", "it is true itself", "{{ 1 is true }}"),
    Entry("false", "it is false itself", "{{ false is false }}"),
    Entry("string", "it is text", "{{ '1' is string }}"),
    Entry("number", "it is a number", "{{ 1.5 is number }}"),
    Entry("integer", "it is a whole number", "{{ 1.0 is integer }}"),
    Entry("float", "it is a number with a fraction", "{{ 1.0 is float }}"),
    Entry("mapping", "it is an object", "{{ weather.body is mapping }}"),
    Entry("sequence", "it is a list or text", "{{ [1] is sequence }}"),
    Entry("iterable", "a loop can go through it: list, object or text", "{{ 1 is iterable }}"),
    Entry("odd", "a whole number that is odd", "{{ 3 is odd }}"),
    Entry("even", "a whole number that is even", "{{ 3 is even }}"),
    Entry("divisibleby", "a whole number that `num` divides", "{{ 9 is divisibleby(3) }}"),
    Entry("in", "it is in a list, a key of an object, a part of a text", "{{ 2 is in([1, 2]) }}"),
    Entry("eq", "equal", "{{ 1 is eq(1.0) }}"),
    Entry("ne", "not equal", "{{ 'a' is ne('b') }}"),
    Entry("lt", "less than", "{{ 1 is lt(2) }}"),
    Entry("le", "less or equal", "{{ 2 is le(2) }}"),
    Entry("gt", "greater than", "{{ 'b' is gt('a') }}"),
    Entry("ge", "greater or equal", "{{ 1 is ge(2) }}"),
)
