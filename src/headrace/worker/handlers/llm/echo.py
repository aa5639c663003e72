"""The built-in model `echo`, for demos and tests: no network, and the same answer to the same question.

It says the user's last message again. Where JSON is wanted it answers with that message if it is JSON that fits, else
with the smallest thing that fits the schema and has the message where text may be.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import msgspec

from headrace.errors import Fatal, Retry
from headrace.worker.handlers.llm.completion import Completion
from headrace.worker.handlers.llm.config import LlmConfig
from headrace.worker.handlers.llm.structured import json_answer, usable

MAX_MADE = 100_000  # characters and values of a made answer: schemas may ask for a billion
MAX_TEXT = 1000


def complete(config: LlmConfig) -> Completion:
    said = config.conversation
    last = next((message.text for message in reversed(said) if message.role == "user"), said[-1].text)
    text = _json(last, config.schema_given) if config.wants_json else last
    prompt, answer = sum(len(message.text.split()) for message in said), len(text.split())
    usage = {"prompt_tokens": prompt, "completion_tokens": answer}
    return Completion([text], usage=usage, finish_reason="stop")


def _json(text: str, schema: dict[str, Any] | None) -> str:
    with suppress(Retry):
        return _encoded(json_answer(text, schema))
    made = _encoded({"text": text} if schema is None else _Maker(text[:MAX_TEXT]).make(usable(schema)))
    try:
        json_answer(made, schema)
    except Retry:
        told = "echo cannot make an answer that fits json_schema: let the prompt itself be JSON that fits"
        raise Fatal(told) from None
    return made


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


class _Maker:
    """Makes a small value for a schema without references. What it does not know it ignores: the caller checks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = MAX_MADE

    def make(self, schema: Any) -> Any:
        self._spend(1)
        if not isinstance(schema, dict):
            return self._text
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        for choice in ("anyOf", "oneOf", "allOf"):
            if schema.get(choice) and "type" not in schema:
                return self.make(schema[choice][0])
        return self._make_type(schema)

    def _make_type(self, schema: dict[str, Any]) -> Any:
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "object":
            properties = schema.get("properties", {})
            return {name: self.make(properties.get(name)) for name in schema.get("required", properties)}
        if kind == "array":
            first = schema.get("prefixItems", [])
            count = max(int(schema.get("minItems", 0)), len(first))
            self._spend(count)
            return [self.make(first[at] if at < len(first) else schema.get("items")) for at in range(count)]
        if kind == "string":
            return self._make_text(schema)
        if kind in ("integer", "number"):
            return _number(schema)
        return False if kind == "boolean" else None

    def _make_text(self, schema: dict[str, Any]) -> str:
        least = int(schema.get("minLength", 0))
        self._spend(least + len(self._text))
        most = schema.get("maxLength")
        return self._text.ljust(least, ".")[: None if most is None else int(most)]

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise Fatal("echo cannot make an answer as long as json_schema asks for")


def _number(schema: dict[str, Any]) -> float:
    """The number nearest to zero, or near it, that is in range."""
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if "exclusiveMinimum" in schema:
        least = max(least, schema["exclusiveMinimum"] + 1)
    if "exclusiveMaximum" in schema:
        most = min(most, schema["exclusiveMaximum"] - 1)
    number: float = min(max(0, least), most)
    step = schema.get("multipleOf", 1 if schema.get("type") == "integer" else 0)
    return math.ceil(number / step) * step if step and math.isfinite(number / step) else number
