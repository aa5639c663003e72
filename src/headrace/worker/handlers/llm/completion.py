"""Reading an answer of the chat protocol, whole or streamed. A whole answer is read as a stream of one piece.

Servers differ in what they leave out, so only what we use must be there. What is not the protocol ends in words that
say so; what looks like a broken-off or overloaded server is worth another attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import Fatal, Retry
from headrace.model.payload import shown

DONE = "[DONE]"


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Piece(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


_decode_piece = msgspec.json.Decoder(_Piece).decode
_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Completion:
    """What a model answered, put together from the pieces that came."""

    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    model: str | None = None
    usage: Any = None
    finish_reason: str | None = None
    is_answered: bool = False
    calls_tools: bool = False

    def add(self, piece: _Piece) -> None:
        if piece.error:
            raise refused(piece.error)
        self.model = self.model or piece.model
        self.usage = piece.usage or self.usage
        for choice in piece.choices or ():
            if not choice.index:  # where `extra` asked for several answers, the first one counts
                self._add_choice(choice)

    def _add_choice(self, choice: _Choice) -> None:
        message = choice.message or choice.delta
        self.finish_reason = choice.finish_reason or self.finish_reason
        if message is not None:
            self.is_answered = True
            self.texts.append(_text(message.content))
            self.refusals.append(message.refusal or "")
            self.calls_tools = self.calls_tools or bool(message.tool_calls)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def refusal(self) -> str:
        return "".join(self.refusals)

    @property
    def tokens(self) -> dict[str, int]:
        """The usage, with 0 for what the server does not tell."""
        given = self.usage if isinstance(self.usage, Mapping) else {}
        prompt, answer, total = (
            count if type(count := given.get(f"{name}_tokens")) is int else 0
            for name in ("prompt", "completion", "total")
        )
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": total or prompt + answer}


def read(content: bytes, content_type: str) -> Completion:
    """The answer in a body, streamed or not, whatever was asked for; raises Retry or Fatal."""
    completion = Completion()
    is_complete = True
    if content_type.lower().startswith("text/event-stream") or content.startswith(b"data:"):
        is_complete = _read_stream(content, completion)
    else:
        completion.add(_piece(content))
    if not completion.is_answered:
        raise Retry("the server's answer has no choices" if is_complete else "the stream ended before an answer came")
    if not is_complete:
        raise Retry("the stream ended before the answer was complete")
    return completion


def refused(error: object) -> Retry | Fatal:
    """What an answer with an error instead of a completion means: another attempt, unless its code forbids that."""
    status = error.get("code") if isinstance(error, dict) else None
    is_final = type(status) is int and 400 <= status < 500 and not is_transient(status)
    message = f"the server answered with an error: {told(error) or 'it does not say which'}"
    return Fatal(message) if is_final else Retry(message)


def is_transient(status: int) -> bool:
    return status in (408, 425, 429) or status >= 500


def told(error: object) -> str:
    """A server's own words about an error, shortened. Servers put them into different places."""
    while isinstance(error, dict | list):
        inner = error if isinstance(error, list) else map(error.get, ("error", "message", "detail", "msg"))
        error = next(filter(None, inner), None)
    return shown(error, 300) if isinstance(error, str) else ""


def told_in(content: bytes) -> str:
    try:
        return told(_decode(content))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


def events(stream: str) -> Iterator[str]:
    """The data of the server-sent events in a text; comments and other fields are left out."""
    data: list[str] = []
    for line in (*re.split("\r\n|\n|\r", stream.removeprefix("\ufeff")), ""):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def _read_stream(content: bytes, completion: Completion) -> bool:
    """Adds all pieces; tells whether the stream came to its end."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Retry("the stream is not UTF-8 text") from None
    for data in events(text):
        if data.strip() == DONE:
            return True
        completion.add(_piece(data))
    return completion.finish_reason is not None


def _piece(data: bytes | str) -> _Piece:
    try:
        return _decode_piece(data)
    except msgspec.ValidationError as error:
        raise Fatal(f"this is not a chat completion: {error}. Is the base URL right?") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Retry(f"the server's answer is not JSON: {error}. Is the base URL right?") from None


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""
