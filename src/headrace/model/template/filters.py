"""The filters on text and numbers. Those on lists and objects are in collections.

Each filter pays before it builds. Names, parameters and results are Jinja's, except where Jinja would hide a mistake:
`int` and `float` fail on what is no number unless they have a default. There is no `escape`, since nothing here is
HTML, and no `format`, `center` or `wordwrap`, whose output is as large as a number in the template says.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn
from urllib.parse import quote

from headrace.errors import TemplateError, TemplateLimit
from headrace.model.template.budget import ABSENT, LIMITS, Frame, describe, to_json, to_text
from headrace.model.template.builtins import Table, whole, words
from headrace.model.template.values import bounded, is_number

FILTERS: Final = Table("filter")


def _text(frame: Frame, value: Any, name: str) -> str:
    """The value as the text that a filter works on, paid for reading it once."""
    if type(value) is list or type(value) is dict:
        raise TemplateError(f"{name} needs text, not {describe(value)}; `tojson` or `join` make text of it")
    text = to_text(frame, value)
    frame.scan(len(text))
    return text


def _cased(frame: Frame, value: Any, name: str) -> str:
    """As _text, paid also for the result of changing its case: a character may become three."""
    text = _text(frame, value, name)
    frame.produce(len(text) if text.isascii() else 3 * len(text))
    return text


@FILTERS.add("default", "d")
def _default(frame: Frame, value: Any, default_value: Any = "", boolean: Any = False) -> Any:
    """The part for values that are there; what is missing the compiler handles."""
    return default_value if value is ABSENT or (boolean and not value) else value


@FILTERS.add("string")
def _string(frame: Frame, value: Any) -> str:
    return to_text(frame, value)


@FILTERS.add("upper")
def _upper(frame: Frame, value: Any) -> str:
    return _cased(frame, value, "upper").upper()


@FILTERS.add("lower")
def _lower(frame: Frame, value: Any) -> str:
    return _cased(frame, value, "lower").lower()


@FILTERS.add("capitalize")
def _capitalize(frame: Frame, value: Any) -> str:
    return _cased(frame, value, "capitalize").capitalize()


_WORD_START: Final = re.compile(r"([-\s({\[<]+)")


@FILTERS.add("title")
def _title(frame: Frame, value: Any) -> str:
    text = _cased(frame, value, "title")
    frame.spend(len(text) // 3)
    return "".join(part.capitalize() for part in _WORD_START.split(text))


@FILTERS.add("trim")
def _trim(frame: Frame, value: Any, chars: Any = None) -> str:
    text = _text(frame, value, "trim")
    frame.produce(len(text))
    if chars is not None and len(words(chars, "chars of trim")) > LIMITS.strip_characters:
        raise TemplateLimit(f"chars of trim has at most {LIMITS.strip_characters} characters")
    return text.strip(chars)


@FILTERS.add("replace")
def _replace(frame: Frame, value: Any, old: Any, new: Any, count: Any = None) -> str:
    text = _text(frame, value, "replace")
    old, new = words(old, "old of replace"), words(new, "new of replace")
    times = text.count(old)
    if count is not None:
        times = min(times, whole(count, "count of replace", 0, LIMITS.integer))
    frame.spend(times >> 3)
    frame.produce(max(len(text), len(text) + times * (len(new) - len(old))))
    return text.replace(old, new, times)


@FILTERS.add("truncate")
def _truncate(  # noqa: PLR0917  # Jinja's parameters
    frame: Frame, value: Any, length: Any = 255, killwords: Any = False, end: Any = "...", leeway: Any = 5
) -> str:
    text = _text(frame, value, "truncate")
    ending = words(end, "end of truncate")
    length = whole(length, "length of truncate", len(ending), LIMITS.output_characters)
    leeway = whole(leeway, "leeway of truncate", 0, LIMITS.output_characters)
    if len(text) <= length + leeway:
        return text
    frame.produce(length)
    kept: str = text[: length - len(ending)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + ending


@FILTERS.add("indent")
def _indent(frame: Frame, value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    text = _text(frame, value, "indent")
    size = len(width) if type(width) is str else whole(width, "width of indent", 0, LIMITS.output_characters)
    lines = text.count("\n") + 1
    frame.produce_list(lines)
    frame.produce(len(text) + (lines + 1) * size)
    margin = width if type(width) is str else " " * size
    head, *rest = text.split("\n")
    indented = [margin + line if line or blank else line for line in rest]
    return "\n".join([margin + head if first else head, *indented])


@FILTERS.add("split")
def _split(frame: Frame, value: Any, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    text = _text(frame, value, "split")
    if sep is not None and not words(sep, "sep of split"):
        raise TemplateError("sep of split must not be empty")
    maxsplit = whole(maxsplit, "maxsplit of split", -1, LIMITS.output_characters)
    pieces = len(text) // 2 + 1 if sep is None else text.count(sep) + 1
    pieces = pieces if maxsplit < 0 else min(pieces, maxsplit + 1)
    if sep is None and maxsplit < 0:
        pieces = min(pieces, word_count(frame, text, re.compile(r"\S+")))
    frame.produce_list(pieces)
    frame.produce(len(text))
    return text.split(sep, maxsplit)


_WORD: Final = re.compile(r"\w+")


def word_count(frame: Frame, text: str, pattern: re.Pattern[str] = _WORD) -> int:
    frame.spend(len(text) // 10)
    return sum(1 for _ in pattern.finditer(text))


@FILTERS.add("wordcount")
def _wordcount(frame: Frame, value: Any) -> int:
    return word_count(frame, _text(frame, value, "wordcount"))


@FILTERS.add("urlencode")
def _urlencode(frame: Frame, value: Any) -> str:
    if type(value) is dict:
        return "&".join(f"{_quoted(frame, key, '')}={_quoted(frame, item, '')}" for key, item in value.items())
    return _quoted(frame, value, "/")


def _quoted(frame: Frame, value: Any, safe: str) -> str:
    text = _text(frame, value, "urlencode")
    size = 3 * len(text) if text.isascii() else 12 * len(text)
    frame.spend(1 + size // 10)
    frame.produce(2 * size)  # once for itself, once where an object's pairs are joined
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise TemplateError("urlencode met a character that does not exist (a lone surrogate)") from None


@FILTERS.add("tojson")
def _tojson(frame: Frame, value: Any, indent: Any = None) -> str:
    return to_json(frame, value, None if indent is None else whole(indent, "indent of tojson", 0, 8))


@FILTERS.add("fromjson")
def _fromjson(frame: Frame, value: Any) -> Any:
    """Values may take twenty times the memory of their text, so text counts for more here."""
    text = words(value, "what fromjson reads")
    frame.spend(1 + len(text) // 20)
    frame.produce(4 * len(text))
    try:
        return _decode(text)
    except RecursionError:
        raise TemplateLimit("fromjson met JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise TemplateError(f"fromjson met text that is not JSON: {error}") from None


def _parse_integer(digits: str) -> Any:
    if len(digits) > 20:
        raise TemplateLimit("fromjson met a whole number beyond 64 bits")
    return bounded(int(digits))


def _refuse_constant(name: str) -> NoReturn:
    raise TemplateError(f"fromjson met {name}, which is not JSON")


_decode: Final = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=lambda digits: bounded(float(digits)), parse_constant=_refuse_constant
).decode


def _number(value: Any, name: str) -> Any:
    if not is_number(value):
        raise TemplateError(f"{name} needs a number, not {describe(value)}")
    return value


@FILTERS.add("abs")
def _abs(frame: Frame, value: Any) -> Any:
    return bounded(abs(_number(value, "abs")))


@FILTERS.add("round")
def _round(frame: Frame, value: Any, precision: Any = 0, method: Any = "common") -> float:
    number = float(bounded(_number(value, "round")))
    precision = whole(precision, "precision of round", -15, 15)
    if method == "common":
        return float(bounded(round(number, precision)))
    if method not in ("ceil", "floor"):
        raise TemplateError("method of round must be 'common', 'ceil' or 'floor'")
    scale = 10.0**precision
    scaled = bounded(number * scale)
    return float(bounded((math.ceil(scaled) if method == "ceil" else math.floor(scaled)) / scale))


def _parsed(value: Any, default: Any, name: str) -> Any:
    """The number that a value is or spells; None if there is none and a default may step in."""
    if is_number(value):
        return bounded(value)
    if type(value) is bool:
        return int(value)
    if type(value) is str:
        if len(value) > LIMITS.number_characters:
            raise TemplateLimit(f"{name} met a number of {len(value):,} characters")
        for parse in (int, float):
            try:
                return bounded(parse(value))
            except ValueError:
                continue
    if default is ABSENT:
        raise TemplateError(f"{name} met {describe(value)} that is no number; give it a default: {name}(0)")
    return None


@FILTERS.add("int")
def _int(frame: Frame, value: Any, default: Any = None) -> Any:
    number = _parsed(value, ABSENT if default is None else default, "int")
    return default if number is None else bounded(int(number))


@FILTERS.add("float")
def _float(frame: Frame, value: Any, default: Any = None) -> Any:
    number = _parsed(value, ABSENT if default is None else default, "float")
    return default if number is None else float(number)
