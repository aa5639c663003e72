"""Finds secret values in text and puts a mark in their place, before the text is stored, printed or logged.

A value is looked for as it is and in the forms that programs commonly write it in: base64 at any position of a longer
text, hexadecimal, percent-encoded, escaped for JSON, HTML or Python. Nothing but plain substring searches is done, for
a small set of *signs* such that text without any sign has no secret in it. With no secrets nothing is done at all.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

MARK: Final = "***"
SHORTEST: Final = 4  # a shorter value is found by chance in text that has nothing to do with it
SHORTEST_LINE: Final = 8  # of a value of several lines

_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_URL_SAFE: Final = str.maketrans("+/", "-_")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Redactor:
    """Knows all forms of all values; what it gives back has none of them in it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for part in _parts(value) for form in _forms(part)}
        self._forms = sorted((form for form in forms if len(form) >= SHORTEST), key=len)
        self._signs = _signs(self._forms)
        self._json_signs = [*dict.fromkeys(escaped for sign in self._signs for escaped in _json_escapes(sign))]

    def text(self, text: str) -> str:
        while any(sign in text for sign in self._signs):  # again, should a mark and its neighbours make a secret
            text = _marked(text, self._spans(text))
        return text

    def json(self, text: str) -> str:
        """The same for JSON text: every string, key and number in it; what comes back is JSON."""
        if not self._json_signs or not any(sign in text for sign in self._json_signs):
            return text
        try:
            value = _decode(text)
        except (msgspec.DecodeError, RecursionError):  # a log line with NaN in it
            return self.text(text)
        return _encode(self._value(value)).decode()

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if value is None or isinstance(value, bool):
            return value
        digits = _encode(value).decode()
        return MARK if self.text(digits) != digits else value

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + 1)


def is_redactable(value: str) -> bool:
    """Whether a value is long enough to be looked for."""
    return len(value.strip()) >= SHORTEST


def _marked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with one mark for each run of spans, so that of values that overlap nothing is left either."""
    kept: list[str] = []
    end = -1
    for start, stop in sorted(spans):
        if start > end:
            kept.append(text[max(end, 0) : start])
        end = max(end, stop)
    kept.append(text[max(end, 0) :])
    return MARK.join(kept)


def _signs(forms: Iterable[str]) -> list[str]:
    """Of forms, shortest first, those that have no other one inside."""
    signs: list[str] = []
    for form in forms:
        if not any(sign in form for sign in signs):
            signs.append(form)
    return signs


def _parts(value: str) -> Iterator[str]:
    """What is secret of a value: all of it, without blanks around it, and the lines of a longer one such as a key."""
    if not is_redactable(value):
        return
    yield value
    yield value.strip()
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _forms(text: str) -> Iterator[str]:
    for encoded in (text, text.encode().hex(), text.encode().hex().upper(), *_base64(text.encode())):
        yield encoded
        yield from _percent(encoded)
        for escaped in _json_escapes(encoded):
            yield from (escaped, *_json_escapes(escaped))  # JSON, and JSON within JSON
        yield from (html.escape(encoded), html.escape(encoded, quote=False), _html_decimal(encoded))
        yield from _python(encoded)


def _base64(data: bytes) -> Iterator[str]:
    """As it is written where zero, one or two bytes stand before it: what depends on it alone, and up to the end."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        first, behind = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for form in (encoded[first:behind], encoded[first:], encoded[first:].rstrip("=")):
            yield form
            yield form.translate(_URL_SAFE)


def _percent(text: str) -> Iterator[str]:
    """Encoders differ in what they leave as it is, and in the case of the digits."""
    for encoded in (quote(text), quote(text, safe=""), quote(text, safe="!~*'()"), quote_plus(text)):
        yield encoded
        yield _PERCENT.sub(lambda match: match[0].lower(), encoded)


def _json_escapes(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _python(text: str) -> tuple[str, ...]:
    """As in an error message: how quotes are written depends on which ones are in the text around it."""
    data = text.encode()
    return repr(text)[1:-1], repr('"' + text)[2:-1], repr(data)[2:-1], repr(b'"' + data)[3:-1]


def _html_decimal(text: str) -> str:
    return html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
