"""Secret values are found in whatever common form a program may have written them."""

from __future__ import annotations

import base64
import html
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.redaction import MARK, SHORTEST, SHORTEST_LINE, Redactor

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQDb\n-----END KEY-----\n"


def encoded(text: str) -> bytes:
    return text.encode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "hex": lambda text: encoded(text).hex(),
    "HEX": lambda text: encoded(text).hex().upper(),
    "base64": lambda text: base64.b64encode(encoded(text)).decode(),
    "base64, one byte before": lambda text: base64.b64encode(b"u" + encoded(text)).decode(),
    "base64, two bytes before": lambda text: base64.b64encode(b"u:" + encoded(text)).decode(),
    "base64, within": lambda text: base64.b64encode(b"user:" + encoded(text) + b"@host").decode(),
    "base64, for URLs": lambda text: base64.urlsafe_b64encode(encoded(text)).decode().rstrip("="),
    "base64, for URLs, within": lambda text: base64.urlsafe_b64encode(b"user:" + encoded(text) + b"?").decode(),
    "base64 in a query": lambda text: urlencode({"b": base64.b64encode(encoded(text))}),
    "percent": quote,
    "percent, all": lambda text: quote(text, safe=""),
    "percent, as browsers do": lambda text: quote(text, safe="!~*'()"),
    "percent, lower": lambda text: "".join(
        quote(char, safe="").lower() if not char.isalnum() or not char.isascii() else char for char in text
    ),
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps({"body": json.dumps({"token": text})}),
    "HTML": html.escape,
    "HTML, text": lambda text: html.escape(text, quote=False),
    "HTML, decimal": lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "Python": repr,
    "Python, bytes": lambda text: repr(encoded(text)),
    "Python, error": lambda text: str(KeyError(text)),
    "Python, in a mapping": lambda text: repr({"say": f'"{text}'}),
}

plain = st.characters(exclude_categories=["Cs", "Cc"])
secret_values = st.text(
    st.one_of(st.sampled_from("abcXYZ0189/+-_=%&<>\"'\\ \t*."), plain), min_size=SHORTEST, max_size=40
)
secret_values = secret_values.filter(lambda value: len(value.strip()) >= SHORTEST)
forms = st.sampled_from(list(FORMS.values()))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@settings(max_examples=60, database=None, deadline=None)
@given(value=secret_values)
def test_every_form_is_found_in_any_value(form: Callable[[str], str], value: str) -> None:
    written = form(value)
    redactor = Redactor([value])
    found = redactor.text(f"< {written} >")
    assert MARK in found
    assert value not in found
    assert json.loads(redactor.json(json.dumps([written]))) != [written]


@st.composite
def outputs(draw: st.DrawFn) -> tuple[list[str], Any]:
    """Values, and JSON in which they stand in random forms at random places."""
    values = draw(st.lists(secret_values, min_size=1, max_size=3))
    leak = st.builds(
        lambda before, form, value, behind: before + form(value) + behind,
        st.text(plain, max_size=5), forms, st.sampled_from(values), st.text(plain, max_size=5),
    )  # fmt: skip
    leaves = st.one_of(leak, st.text(plain, max_size=8), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none())
    keys = st.one_of(leak, st.text(plain, max_size=8))
    tree = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))
    return values, draw(st.dictionaries(keys, tree, max_size=4))


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


@settings(max_examples=300, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(outputs())
def test_no_output_keeps_a_secret_and_all_stay_json(given_output: tuple[list[str], Any]) -> None:
    values, output = given_output
    redactor = Redactor(values)
    written = json.dumps(output, ensure_ascii=False)
    redacted = redactor.json(written)
    for text in texts(json.loads(redacted)):
        for value in values:
            assert value not in text
            assert value.encode().hex() not in text
            assert base64.b64encode(value.encode()).decode() not in text
            assert quote(value, safe="") not in text
    assert redactor.json(redacted) == redacted or json.loads(redactor.json(redacted)) == json.loads(redacted)


@settings(max_examples=200, database=None, deadline=None)
@given(st.text(plain, max_size=50), st.lists(secret_values, max_size=3))
def test_text_without_a_secret_stays_as_it_is(text: str, values: list[str]) -> None:
    redacted = Redactor(values).text(text)
    assert redacted is text or MARK in redacted


def test_without_secrets_nothing_is_touched() -> None:
    assert Redactor().text("hunter2") == "hunter2"
    assert Redactor().json("not even JSON") == "not even JSON"


def test_one_mark_for_each_place() -> None:
    redactor = Redactor(["abcdef", "defghi"])
    assert redactor.text("abcdefghi abcdef, defghi.") == "*** ***, ***."
    assert redactor.text("abcdefabcdef") == "***"
    assert redactor.text("user:abcde") == "user:abcde"


def test_a_mark_does_not_complete_a_secret() -> None:
    assert Redactor(["secret-1", "a***b"]).text("asecret-1b") == MARK


def test_keys_and_numbers_are_redacted() -> None:
    redactor = Redactor(["123456"])
    assert json.loads(redactor.json('{"123456":[123456,9123456.5,12345,true,null]}')) == {
        MARK: [MARK, MARK, 12345, True, None]
    }


def test_an_escape_is_never_cut_in_two() -> None:
    """JSON writes a line break as \\n: the letter n of it is not the first one of this secret."""
    text = json.dumps({"a": "\nabcd", "b": "nabcd"})
    assert json.loads(Redactor(["nabcd"]).json(text)) == {"a": "\nabcd", "b": MARK}


@pytest.mark.parametrize("value", ["", "abc", " abc\n"])
def test_values_that_are_too_short_are_left(value: str) -> None:
    assert Redactor([value]).text("abc is as easy as 123") == "abc is as easy as 123"


def test_a_value_is_also_known_without_blanks_around_it() -> None:
    assert Redactor(["hunter2\n"]).text("hunter2!") == "***!"


def test_lines_of_a_longer_value_are_known_one_by_one() -> None:
    redactor = Redactor([PEM])
    for line in PEM.splitlines():
        assert len(line) >= SHORTEST_LINE
        assert redactor.text(f"> {line} <") == "> *** <"
    assert redactor.text(PEM) == MARK
    assert redactor.text(PEM.replace("\n", "\\n")) == MARK
    assert redactor.text("-----END") == "-----END"


LOGGING = """
import logging, sys, structlog
from headrace import logs
logs.configure()
logs.hide(["hunter2secret", 'pä"ss\\nword-of-lines'])
class Leaky:
    def __repr__(self):
        return "Leaky(hunter2secret)"
log = structlog.get_logger(token="hunter2secret")
log.info("got hunter2secret", nested={"hunter2secret": ["hunter2secret"]}, leaky=Leaky(), nan=float("nan"))
log.info("got", error=ValueError('pä"ss\\nword-of-lines'))
for out in (log, logging.getLogger("library")):
    try:
        password = "hunter" + "2secret"
        raise ValueError(password)
    except ValueError:
        out.exception("failed")
logging.getLogger("library").warning("says %s", "hunter2secret")
log.info("the end")
"""


@pytest.mark.parametrize("terminal", [False, True])
def test_logs_are_redacted(terminal: bool) -> None:
    source = LOGGING.replace("logs.configure()", "sys.stderr.isatty = lambda: True; logs.configure()")
    ended = subprocess.run(
        [sys.executable, "-c", source if terminal else LOGGING], capture_output=True, text=True, timeout=60, check=True
    )
    assert "hunter2secret" not in ended.stderr
    assert "word-of-lines" not in ended.stderr
    assert ended.stderr.count(MARK) > 8
    assert "the end" in ended.stderr
    if not terminal:
        lines = [line for line in ended.stderr.splitlines() if "NaN" not in line]
        assert all(isinstance(json.loads(line), dict) for line in lines)
        assert len(lines) == 5
