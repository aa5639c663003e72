"""Reading, comparing and calculating with plain JSON values, within the budgets of a frame.

Nothing here looks at attributes of a value: objects are read by key and lists by index, so `x.__class__` is a key that
is not there. Whatever is not a plain dict, list, str, int, float, bool or None is refused by its exact type.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from headrace.errors import MissingValue, TemplateError, TemplateLimit
from headrace.model.template.budget import ABSENT, LIMITS, Frame, describe, to_text

Key = str | int


def pick(value: Any, key: Any) -> Any:
    """The element of an object, list or text under a key, or ABSENT."""
    kind = type(value)
    if kind is dict:
        if type(key) is str:
            return value.get(key, ABSENT)
        if type(key) is int and -LIMITS.integer <= key <= LIMITS.integer:
            return value.get(str(key), ABSENT)
    elif (kind is list or kind is str) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return ABSENT


def path_text(root: str, keys: tuple[Key, ...]) -> str:
    """A path as people write it: start.cities[0]."""
    shown = [key[:60] if isinstance(key, str) else key for key in keys]
    return root[:60] + "".join(
        f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]" for key in shown
    )


def parse_path(text: Any, what: str) -> tuple[Key, ...]:
    """The path that an `attribute` argument gives: names and indexes with dots between them."""
    if type(text) is int:
        return (text,)
    if type(text) is not str or not text or len(text) > 1000:
        raise TemplateError(f"{what} needs the name of an attribute, such as 'name' or 'user.name'")
    parts = text.split(".")
    if len(parts) > LIMITS.attribute_parts:
        raise TemplateLimit(f"the attribute of {what} has more than {LIMITS.attribute_parts} parts")
    return tuple(int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts)


def follow(value: Any, keys: tuple[Key, ...]) -> Any:
    """The value at a path, or ABSENT."""
    for key in keys:
        value = pick(value, key)
        if value is ABSENT:
            return ABSENT
    return value


def attribute(value: Any, keys: tuple[Key, ...]) -> Any:
    """The value at a path within an element of a list; it must be there."""
    found = follow(value, keys)
    if found is ABSENT:
        raise MissingValue(f"an element of the list has no {path_text('', keys).lstrip('.')}")
    return found


def elements(frame: Frame, value: Any, what: str) -> list[Any]:
    """What a loop goes through: the elements of a list, the keys of an object, the characters of a text."""
    kind = type(value)
    if kind is list:
        return value  # type: ignore[no-any-return]
    if kind is dict or kind is str:
        frame.produce_list(len(value))
        return list(value)
    raise TemplateError(f"{what} needs a list, not {describe(value)}")


def cut(frame: Frame, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """A slice of a list or text."""
    if type(value) is not list and type(value) is not str:
        raise TemplateError(f"only lists and text can be sliced, not {describe(value)}")
    for bound in (start, stop, step):
        if bound is not None and type(bound) is not int:
            raise TemplateError(f"the bounds of a slice must be whole numbers, not {describe(bound)}")
    if step == 0:
        raise TemplateError("the step of a slice must not be 0")
    bounds = slice(start, stop, step)
    size = len(range(*bounds.indices(len(value))))
    if type(value) is str:
        frame.scan(size)
        frame.produce(size)
    else:
        frame.produce_list(size)
    return value[bounds]


def count_up(frame: Frame, *bounds: Any) -> list[int]:
    """range(stop), range(start, stop) or range(start, stop, step), as a list."""
    for bound in bounds:
        if type(bound) is not int:
            raise TemplateError(f"range needs whole numbers, not {describe(bound)}")
        bounded(bound)
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("the step of a range must not be 0")
    numbers = range(*bounds)
    if numbers and (numbers[-1] - numbers[0]) // numbers.step >= LIMITS.range_elements:
        raise TemplateLimit(f"a range has more than {LIMITS.range_elements:,} elements")
    frame.produce_list(len(numbers))
    return list(numbers)


def bounded(value: Any) -> Any:
    """The number itself, if it is one that JSON and other languages can hold."""
    if type(value) is int:
        if -LIMITS.integer <= value <= LIMITS.integer:
            return value
        raise TemplateLimit("a whole number is beyond 64 bits")
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is float:
        raise TemplateLimit("a number is too large or not a number")
    raise TemplateError("the result is not a real number")


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def calculate(symbol: str, operate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if not (is_number(left) and is_number(right)):
        raise TemplateError(f"{symbol} needs two numbers, not {describe(left)} and {describe(right)}")
    try:
        return bounded(operate(left, right))
    except ZeroDivisionError:
        raise TemplateError(f"{symbol} divides by zero") from None
    except OverflowError:
        raise TemplateLimit(f"the result of {symbol} is too large") from None


def power(left: Any, right: Any) -> Any:
    """Refused before it is calculated if it cannot fit into 64 bits."""
    if type(left) is int and type(right) is int and abs(left) > 1 and (left.bit_length() - 1) * right > 63:
        raise OverflowError
    return left**right


def add(frame: Frame, left: Any, right: Any) -> Any:
    """Numbers are added; two texts or two lists become one."""
    kind = type(left)
    if kind is type(right) and (kind is str or kind is list):
        size = len(left) + len(right)
        if kind is str:
            frame.produce(size)
        else:
            frame.produce_list(size)
        return left + right
    if not (is_number(left) and is_number(right)):
        raise TemplateError(
            f"+ needs two numbers, two texts or two lists, not {describe(left)} and {describe(right)} "
            "(~ joins anything as text)"
        )
    return calculate("+", operator.add, left, right)


def concatenate(frame: Frame, values: list[Any]) -> str:
    texts = [to_text(frame, value) for value in values]
    frame.produce(sum(map(len, texts)))
    return "".join(texts)


def equal(frame: Frame, left: Any, right: Any) -> bool:
    kind = type(left)
    if kind is str:
        if type(right) is str and len(left) == len(right):
            frame.scan(len(left))
    elif (kind is list or kind is dict) and kind is type(right):
        frame.weigh(left)
    return bool(left == right)


def contains(frame: Frame, value: Any, container: Any) -> bool:
    kind = type(container)
    if kind is str:
        if type(value) is not str:
            raise TemplateError(f"only text can be in text, not {describe(value)}")
        frame.scan(len(container) + len(value))
        return value in container
    if kind is dict:
        return type(value) is str and value in container
    if kind is list:
        frame.spend(1 + (len(container) >> 3))
        if type(value) is list or type(value) is dict:
            frame.weigh(container)
        elif type(value) is str:
            frame.scan(len(value) * (len(container) >> 3))
        return value in container
    raise TemplateError(f"`in` needs a list, an object or text on its right, not {describe(container)}")


_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


def compare(frame: Frame, operation: str, left: Any, right: Any) -> bool:
    """One comparison, under Jinja's name for it."""
    if operation == "eq":
        return equal(frame, left, right)
    if operation == "ne":
        return not equal(frame, left, right)
    if operation == "in":
        return contains(frame, left, right)
    if operation == "notin":
        return not contains(frame, left, right)
    if type(left) is str and type(right) is str:
        frame.scan(min(len(left), len(right)))
    elif not (is_number(left) and is_number(right)):
        raise TemplateError(f"{describe(left)} and {describe(right)} have no order: compare two numbers or two texts")
    return _ORDER[operation](left, right)
