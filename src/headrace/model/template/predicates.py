"""The tests of templates: `x is number`, `select("odd")`. All plain questions about one value.

`defined` and `undefined` are not here: they ask about an expression, not a value, and the compiler answers them.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import TemplateError
from headrace.model.template.budget import Frame, describe
from headrace.model.template.builtins import Table
from headrace.model.template.values import compare, is_number

TESTS: Final = Table("test")


@TESTS.add("none")
def _none(frame: Frame, value: Any) -> bool:
    return value is None


@TESTS.add("true")
def _true(frame: Frame, value: Any) -> bool:
    return value is True


@TESTS.add("false")
def _false(frame: Frame, value: Any) -> bool:
    return value is False


@TESTS.add("boolean")
def _boolean(frame: Frame, value: Any) -> bool:
    return type(value) is bool


@TESTS.add("string")
def _string(frame: Frame, value: Any) -> bool:
    return type(value) is str


@TESTS.add("number")
def _number(frame: Frame, value: Any) -> bool:
    return is_number(value)


@TESTS.add("integer")
def _integer(frame: Frame, value: Any) -> bool:
    return type(value) is int


@TESTS.add("float")
def _float(frame: Frame, value: Any) -> bool:
    return type(value) is float


@TESTS.add("mapping")
def _mapping(frame: Frame, value: Any) -> bool:
    return type(value) is dict


@TESTS.add("sequence")
def _sequence(frame: Frame, value: Any) -> bool:
    return type(value) is list or type(value) is str


@TESTS.add("iterable")
def _iterable(frame: Frame, value: Any) -> bool:
    return type(value) is list or type(value) is str or type(value) is dict


def _integer_value(value: Any, what: str) -> int:
    if type(value) is not int:
        raise TemplateError(f"{what} needs a whole number, not {describe(value)}")
    return value


@TESTS.add("odd")
def _odd(frame: Frame, value: Any) -> bool:
    return _integer_value(value, "odd") % 2 == 1


@TESTS.add("even")
def _even(frame: Frame, value: Any) -> bool:
    return _integer_value(value, "even") % 2 == 0


@TESTS.add("divisibleby")
def _divisible_by(frame: Frame, value: Any, num: Any) -> bool:
    divisor = _integer_value(num, "divisibleby")
    if divisor == 0:
        raise TemplateError("divisibleby divides by zero")
    return _integer_value(value, "divisibleby") % divisor == 0


@TESTS.add("in")
def _in(frame: Frame, value: Any, seq: Any) -> bool:
    return compare(frame, "in", value, seq)


@TESTS.add("eq", "equalto", "==")
def _eq(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "eq", value, other)


@TESTS.add("ne", "!=")
def _ne(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "ne", value, other)


@TESTS.add("lt", "lessthan", "<")
def _lt(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "lt", value, other)


@TESTS.add("le", "<=")
def _le(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "lteq", value, other)


@TESTS.add("gt", "greaterthan", ">")
def _gt(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "gt", value, other)


@TESTS.add("ge", ">=")
def _ge(frame: Frame, value: Any, other: Any) -> bool:
    return compare(frame, "gteq", value, other)
