"""Templates: examples with the results that rendering really gives, filters and tests with their parameters, limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from docs.generate import filters
from docs.generate.filters import Entry
from docs.generate.markdown import code, fence, table

from headrace.errors import TemplateError
from headrace.model import template
from headrace.model.template.budget import ABSENT
from headrace.model.template.builtins import REQUIRED, Table
from headrace.model.template.collections import FILTERS
from headrace.model.template.predicates import TESTS

CONTEXT = {
    "input": {"city": "Berlin", "days": 3},
    "weather": {"status_code": 200, "body": {"temps": [18, 21.5, 19], "wind": None, "note": "Sunny"}},
    "places": {"found": [{"name": "Rome", "people": 2.75}, {"name": "Bonn", "people": 0.25}]},
}

EXAMPLES: dict[str, Sequence[str]] = {
    "reading": (
        "{{ input.city }}",
        "{{ weather.status_code }}",
        "{{ weather.body.temps[0] }}",
        "{{ weather.body.temps[-1] }}",
        "{{ weather.body['note'] }}",
        "{{ weather.body.temps[:2] }}",
        "{{ weather.output.status_code }}",
        "{{ input.output }}",
    ),
    "types": (
        "{{ weather.body.temps }}",
        "{{ weather.body.wind }}",
        "{{ input.days + 1 }}",
        "{{ input.days }} days in {{ input.city }}",
        "Temperatures: {{ weather.body.temps }}, wind: {{ weather.body.wind }}",
        " {{ input.days }}",
        "no template",
    ),
    "missing values": (
        "{{ weather.body.rain }}",
        "{{ weather.body.rain | default(0) }}",
        "{{ weather.body.rain.today | default('none') }}",
        "{{ weather.body.wind | default('calm') }}",
        "{{ weather.body.wind | default('calm', true) }}",
        "{{ 'wet' if weather.body.rain is defined else 'dry' }}",
        "{{ [] | first }}",
    ),
    "operators": (
        "{{ 7 + 2 * 3 }}",
        "{{ 7 / 2 }}",
        "{{ 7 // 2 }}",
        "{{ 7 % 2 }}",
        "{{ 2 ** 10 }}",
        "{{ [1] + [2] }}",
        "{{ 'day ' ~ input.days }}",
        "{{ 'day ' + input.days }}",
        "{{ 1 < input.days <= 3 }}",
        "{{ 'Bon' in 'Bonn' }}",
        "{{ 3 not in weather.body.temps }}",
        "{{ not weather.body.wind }}",
        "{{ weather.body.wind or 'calm' }}",
        "{{ 'warm' if weather.body.temps[1] > 20 else 'cold' }}",
        "{{ {'city': input.city, 'days': [1, 2]} }}",
        "{{ range(3) }}",
    ),
    "statements": (
        "{% if input.days > 1 %}{{ input.days }} days{% else %}one day{% endif %}",
        "{% for p in places.found %}{{ loop.index }}. {{ p.name }} {% endfor %}",
        "{% for p in places.found if p.people > 1 %}{{ p.name }}{% endfor %}",
        "{% for key, value in {'a': 1} | items %}{{ key }}={{ value }}{% endfor %}",
        "{% set total = places.found | sum('people') %}{{ total }} million",
        "{% for p in [] %}{{ p }}{% else %}nothing{% endfor %}",
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}",
        "a {#- a comment -#} b",
    ),
    "braces": (
        "{{ '{{' }} stays {{ '}}' }}",
        "{% raw %}{{ stays }}{% endraw %}",
        "{ one brace } is text",
        "${{ input.days }}",
        "$${{ input.days }}",
        "{{ '$' }}{{ input.days }}",
    ),
}

COMPILING = {
    "source_characters": "characters of a template",
    "tokens": "tokens: words, numbers, operators",
    "syntax_nodes": "syntax nodes",
    "syntax_depth": "levels of nesting, or filters in a row",
    "open_brackets": "brackets within brackets",
    "open_blocks": "blocks within blocks",
    "inline_chain": "signs, `not` or inline `else` in one tag",
    "number_characters": "characters of a number",
}
RENDERING = {
    "steps": "steps; a loop of 1,000 turns takes some thousands",
    "output_characters": "characters that are produced, also in between",
    "range_elements": "elements of a `range`",
    "value_depth": "levels of lists and objects in a value",
    "integer": "a whole number, with or without a minus",
    "strip_characters": "`chars` of `trim`",
    "attribute_parts": "names in an `attribute`, such as `a.b.c`",
}


def result(source: str) -> str:
    """What a template gives, as JSON, or how it fails."""
    try:
        return json.dumps(template.compile(source).render(CONTEXT), ensure_ascii=False)
    except TemplateError as error:
        return f"error: {str(error).partition(', in the template')[0]}"


def _examples(sources: Iterable[str]) -> str:
    sources = list(sources)
    width = max(map(len, sources))
    return fence("\n".join(f"{source:<{width}}  →  {result(source)}" for source in sources), "jinja")


def _context() -> str:
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in CONTEXT.items())
    return fence("{\n" + ",\n".join(lines) + "\n}", "json")


def _entries(entries: Sequence[Entry], known: Table, what: str) -> str:
    rows = [(_signatures(entry, known), entry.meaning) for entry in entries]
    return f"{table((what, 'meaning'), rows)}\n\n{_examples(entry.example for entry in entries)}"


def _signatures(entry: Entry, known: Table) -> str:
    """All names of it, the first one with the parameters that the code has."""
    if entry.name not in known:
        return code(entry.signature or entry.name)
    builtin = known[entry.name]
    shown = ", ".join(map(_parameter, builtin.parameters))
    others = [name for name, other in known.items() if other.call is builtin.call and name != entry.name]
    return ", ".join(map(code, (f"{entry.name}({shown})" if shown else entry.name, *others)))


def _parameter(parameter: tuple[str, Any]) -> str:
    name, default = parameter
    if default is REQUIRED:
        return name
    if default is ABSENT:
        return f"{name}=…"
    is_word = default is None or isinstance(default, bool)
    return f"{name}={str(default).lower() if is_word else repr(default)}"


def _limits(meanings: dict[str, str]) -> str:
    return table(("at most", "what"), ((f"{getattr(template.LIMITS, name):,}", of) for name, of in meanings.items()))


def _block(make: Callable[..., str], *arguments: Any) -> Callable[[], str]:
    return lambda: make(*arguments)


BLOCKS: dict[str, Callable[[], str]] = {
    "the context of the examples": _context,
    **{f"examples of {name}": _block(_examples, sources) for name, sources in EXAMPLES.items()},
    **{f"filters on {name}": _block(_entries, entries, FILTERS, "filter") for name, entries in filters.FILTERS.items()},
    "tests": _block(_entries, filters.TESTS, TESTS, "test"),
    "limits of compiling": _block(_limits, COMPILING),
    "limits of rendering": _block(_limits, RENDERING),
}
