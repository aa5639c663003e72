"""The filters on lists and objects. Lists are never changed: each filter gives a new one, paid before it is built.

Sorting needs keys of one kind, numbers or text, and says so instead of failing halfway. As in Jinja, text is compared
without regard to case unless `case_sensitive` is true.
"""

from __future__ import annotations

import operator
from itertools import groupby
from typing import Any

from headrace.errors import MissingValue, TemplateError
from headrace.model.template.budget import ABSENT, LIMITS, Frame, describe, to_json, to_text
from headrace.model.template.builtins import whole
from headrace.model.template.filters import FILTERS
from headrace.model.template.values import attribute as attribute_of
from headrace.model.template.values import calculate, elements, follow, is_number, parse_path

__all__ = ["FILTERS"]


def _copied(frame: Frame, value: Any, name: str) -> list[Any]:
    """The elements, paid for a new list of them and for touching each one."""
    items = elements(frame, value, name)
    frame.spend(len(items))
    frame.produce_list(len(items))
    return items


def _attributes(items: list[Any], attribute: Any, name: str) -> list[Any]:
    if attribute is None:
        return items
    keys = parse_path(attribute, name)
    return [attribute_of(item, keys) for item in items]


def _sort_keys(frame: Frame, values: list[Any], case_sensitive: Any, name: str) -> list[Any]:
    """Keys that Python can compare without surprises: all numbers, or all text."""
    if all(map(is_number, values)):
        return values
    for value in values:
        if type(value) is not str:
            kinds = sorted({describe(each) for each in values})
            raise TemplateError(f"{name} needs only numbers or only text, not {', '.join(kinds)}")
        frame.scan(len(value))
    if case_sensitive:
        return values
    frame.produce(sum(len(value) if value.isascii() else 3 * len(value) for value in values))
    return [value.lower() for value in values]


@FILTERS.add("list")
def _list(frame: Frame, value: Any) -> list[Any]:
    return list(_copied(frame, value, "list"))


@FILTERS.add("length", "count")
def _length(frame: Frame, value: Any) -> int:
    if type(value) is str or type(value) is list or type(value) is dict:
        return len(value)
    raise TemplateError(f"length needs text, a list or an object, not {describe(value)}")


@FILTERS.add("join")
def _join(frame: Frame, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = _attributes(_copied(frame, value, "join"), attribute, "join")
    separator = to_text(frame, d)
    texts = [to_text(frame, item) for item in items]
    size = sum(map(len, texts)) + len(separator) * len(texts)
    frame.scan(size)
    frame.produce(size)
    return separator.join(texts)


def _end(frame: Frame, value: Any, index: int, name: str) -> Any:
    items = value if type(value) is str else elements(frame, value, name)
    if not items:
        raise MissingValue(f"the {name} element of an empty list or text is missing")
    return items[index]


@FILTERS.add("first")
def _first(frame: Frame, value: Any) -> Any:
    return _end(frame, value, 0, "first")


@FILTERS.add("last")
def _last(frame: Frame, value: Any) -> Any:
    return _end(frame, value, -1, "last")


@FILTERS.add("reverse")
def _reverse(frame: Frame, value: Any) -> Any:
    if type(value) is str:
        frame.scan(len(value))
        frame.produce(len(value))
        return value[::-1]
    return _copied(frame, value, "reverse")[::-1]


@FILTERS.add("sort")
def _sort(
    frame: Frame, value: Any, reverse: Any = False, case_sensitive: Any = False, attribute: Any = None
) -> list[Any]:
    items = _copied(frame, value, "sort")
    keys = _sort_keys(frame, _attributes(items, attribute, "sort"), case_sensitive, "sort")
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[index] for index in order]


@FILTERS.add("dictsort")
def _dictsort(
    frame: Frame, value: Any, case_sensitive: Any = False, by: Any = "key", reverse: Any = False
) -> list[list[Any]]:
    if by not in ("key", "value"):
        raise TemplateError("by of dictsort must be 'key' or 'value'")
    return _sort(frame, _items(frame, value), reverse, case_sensitive, 0 if by == "key" else 1)


@FILTERS.add("unique")
def _unique(frame: Frame, value: Any, case_sensitive: Any = False, attribute: Any = None) -> list[Any]:
    """The first of each. Equal means equal as JSON, so 1 and true differ."""
    items = _copied(frame, value, "unique")
    seen: dict[str, Any] = {}
    for item, key in zip(items, _attributes(items, attribute, "unique"), strict=True):
        text = to_json(frame, key)
        seen.setdefault(text if case_sensitive or type(key) is not str else text.lower(), item)
    return list(seen.values())


@FILTERS.add("groupby")
def _groupby(
    frame: Frame, value: Any, attribute: Any, default: Any = ABSENT, case_sensitive: Any = False
) -> list[list[Any]]:
    """Pairs of the attribute's value and the elements that have it, sorted by it."""
    path = parse_path(attribute, "groupby")
    items = _copied(frame, value, "groupby")
    found = [follow(item, path) for item in items]
    if default is ABSENT:
        found = _attributes(items, attribute, "groupby")
    values = [default if item is ABSENT else item for item in found]
    keys = _sort_keys(frame, values, case_sensitive, "groupby")
    order = sorted(range(len(items)), key=keys.__getitem__)
    frame.produce_list(4 * len(items))
    groups = [list(group) for _, group in groupby(order, key=keys.__getitem__)]
    return [[values[group[0]], [items[index] for index in group]] for group in groups]


def _extreme(frame: Frame, value: Any, case_sensitive: Any, attribute: Any, name: str) -> Any:
    items = _copied(frame, value, name)
    if not items:
        raise MissingValue(f"the {name} of an empty list is missing")
    keys = _sort_keys(frame, _attributes(items, attribute, name), case_sensitive, name)
    choose = min if name == "min" else max
    return items[choose(range(len(items)), key=keys.__getitem__)]


@FILTERS.add("min")
def _min(frame: Frame, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(frame, value, case_sensitive, attribute, "min")


@FILTERS.add("max")
def _max(frame: Frame, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(frame, value, case_sensitive, attribute, "max")


@FILTERS.add("sum")
def _sum(frame: Frame, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    total = start
    for item in _attributes(_copied(frame, value, "sum"), attribute, "sum"):
        total = calculate("sum", operator.add, total, item)
    return total


def _object(value: Any, name: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise TemplateError(f"{name} needs an object, not {describe(value)}")
    return value


@FILTERS.add("items")
def _items(frame: Frame, value: Any) -> list[list[Any]]:
    pairs = _object(value, "items").items()
    frame.spend(len(pairs))
    frame.produce_list(3 * len(pairs))
    return [[key, item] for key, item in pairs]


@FILTERS.add("keys")
def _keys(frame: Frame, value: Any) -> list[str]:
    frame.produce_list(len(_object(value, "keys")))
    return list(value)


@FILTERS.add("values")
def _values(frame: Frame, value: Any) -> list[Any]:
    frame.produce_list(len(_object(value, "values")))
    return list(value.values())


@FILTERS.add("batch")
def _batch(frame: Frame, value: Any, linecount: Any, fill_with: Any = None) -> list[list[Any]]:
    """Lists of `linecount` elements; the last one is filled up if there is something to fill it with."""
    size = whole(linecount, "linecount of batch", 1, LIMITS.integer)
    items = _copied(frame, value, "batch")
    frame.produce_list(2 * len(items))
    rows = [items[index : index + size] for index in range(0, len(items), size)]
    if rows and fill_with is not None:
        missing = size - len(rows[-1])
        frame.produce_list(missing)
        rows[-1] = rows[-1] + [fill_with] * missing
    return rows


@FILTERS.add("slice")
def _slice(frame: Frame, value: Any, slices: Any, fill_with: Any = None) -> list[list[Any]]:
    """`slices` lists of nearly the same length."""
    count = whole(slices, "slices of slice", 1, LIMITS.integer)
    items = _copied(frame, value, "slice")
    frame.produce_list(4 * count + len(items))
    frame.spend(count)
    size, longer = divmod(len(items), count)
    columns = []
    start = 0
    for number in range(count):
        stop = start + size + (number < longer)
        column = items[start:stop]
        columns.append(column if fill_with is None or number < longer or not longer else [*column, fill_with])
        start = stop
    return columns
