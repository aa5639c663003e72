"""What a server said, and what to make of it: a body as JSON or text, a status as success, another attempt or the end.

Everything in an answer comes from a stranger. Only known character sets are looked up, delays are bounded, and what is
quoted in an error is short and printable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import Fatal, Retry
from headrace.model.retry import MAX_EXPLICIT_DELAY_SECONDS

EXCERPT_CHARS = 200
TRY_AGAIN = frozenset({408, 425, 429})

# By name, since Python's own list has encodings that are slow on purpose-made input, and remembers every unknown name.
CHARSETS = re.compile(
    r"utf-?(8|16|16le|16be|32)|(us-)?ascii|latin-?1|iso-8859-\d{1,2}|windows-125\d|cp125\d|koi8-[ru]|gb2312|gbk|gb18030|"
    r"big5|shift[_-]jis|euc-(jp|kr)|iso-2022-jp",
    re.ASCII | re.IGNORECASE,
)
LAST_WORD = re.compile(r"[^\s\"',:;&<>(){}\[\]]*\Z")
SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Answer:
    """Header names are in lower case and repeated ones joined by ", "; the content is decoded; url is the last one."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


def is_json(answer: Answer) -> bool:
    kind, _ = _content_type(answer)
    return kind == "application/json" or kind.endswith("+json")


def body_of(answer: Answer) -> Any:
    """A JSON body as what it means, any other as text; Fatal when it is neither.

    A body that only says that it is JSON is given as text, so that what looks at it can say what is wrong.
    """
    if is_json(answer):
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            pass
    return _text(answer)


def refuse_status(answer: Answer, expected: Callable[[int], bool]) -> None:
    """Raise Retry for a status that may be another one next time, and Fatal for any other that is not expected."""
    status = answer.status
    if expected(status):
        return
    told = f"{urlsplit(answer.url).netloc} answered {status}{_phrase(status)}{_excerpt(answer.content)}"
    if status in TRY_AGAIN or 500 <= status <= 599:
        raise Retry(told, after=retry_after_seconds(answer.headers, datetime.now(UTC)))
    raise Fatal(told)


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """What `Retry-After` asks for, as seconds or as a date: at least 0, at most a day; None if it cannot be read."""
    text = headers.get("retry-after", "").strip()
    if SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_EXPLICIT_DELAY_SECONDS)


def _text(answer: Answer) -> str:
    kind, charset = _content_type(answer)
    declared = bool(CHARSETS.fullmatch(charset))
    lenient = declared or kind.startswith("text/")
    try:
        text = answer.content.decode(charset if declared else "utf-8", "replace" if lenient else "strict")
    except (UnicodeError, LookupError):
        text = "\0"
    if "\0" in text:
        named = kind[:100] or "unknown type"
        raise Fatal(
            f"{urlsplit(answer.url).netloc} answered with binary data ({named}): only JSON and text can be an output"
        )
    return text.removeprefix("\ufeff")


def _content_type(answer: Answer) -> tuple[str, str]:
    """The media type and its charset, each "" if there is none."""
    kind, *parameters = answer.headers.get("content-type", "").lower().split(";")
    pairs = (each.partition("=") for each in parameters)
    return kind.strip(), next((value.strip(" \"'") for name, _, value in pairs if name.strip() == "charset"), "")


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _excerpt(content: bytes) -> str:
    """The start of a body. It is cut between words: half a secret would not be recognised as one and taken out."""
    start = content[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")
    text = "".join(each if each.isprintable() else "\ufffd" for each in " ".join(start.split()))
    if len(content) > 4 * EXCERPT_CHARS or len(text) > EXCERPT_CHARS:
        text = LAST_WORD.sub("…", text[:EXCERPT_CHARS], count=1)
    return f": {text}" if text else ""
