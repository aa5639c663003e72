"""The built-in model: the same answer to the same question, and JSON that fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Fatal
from headrace.worker.handlers.llm import LlmConfig, echo
from headrace.worker.handlers.llm.service import output
from headrace.worker.handlers.llm.structured import json_answer


def said(**config: Any) -> dict[str, Any]:
    given_config = LlmConfig.model_validate({"model": "echo", **config})
    return output(given_config, echo.complete(given_config), "echo")


def test_it_says_the_prompt_again() -> None:
    assert said(prompt="Hello  big world", system="Be brief") == {
        "text": "Hello  big world",
        "model": "echo",
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
        "finish_reason": "stop",
    }


def test_it_says_the_last_message_of_the_user() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x"}}]
    talk = [("user", "one"), ("user", parts), ("assistant", "?")]
    messages = [{"role": role, "content": content} for role, content in talk]
    assert said(messages=messages)["text"] == "look"
    assert said(messages=[{"role": "assistant", "content": "only me"}])["text"] == "only me"


@pytest.mark.parametrize(
    ("prompt", "value"), [('{"a": 1}', {"a": 1}), ("```json\n[1]\n```", [1]), ("plain words", {"text": "plain words"})]
)
def test_json_mode(prompt: str, value: object) -> None:
    answer = said(prompt=prompt, response_format="json")
    assert answer["json"] == value
    assert json.loads(answer["text"]) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}}, {"a": "Hi", "b": None}),
        ({"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}, {"summary": "Hi"}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}, {"n": 0}),
        ({"type": "integer", "minimum": 3, "multipleOf": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 3}, 4),
        ({"type": "number", "maximum": -2}, -2),
        ({"type": "number", "minimum": 1e308, "multipleOf": 1e-308}, 1e308),
        ({"enum": ["b", "c"]}, "b"),
        ({"const": None}, None),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": {"const": 1}, "minItems": 2}, [None, 1]),
        ({"type": "string", "minLength": 4}, "Hi.."),
        ({"type": "string", "maxLength": 1}, "H"),
        ({"type": ["null", "string"]}, None),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 0),
        ({"$defs": {"a": {"type": "array"}}, "$ref": "#/$defs/a"}, []),
    ],
)
def test_the_smallest_answer_that_fits(schema: dict[str, Any], value: object) -> None:
    assert said(prompt="Hi", json_schema=schema)["json"] == value


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string", "pattern": "^[0-9]+$"}, "let the prompt itself be JSON that fits"),
        ({"not": {}}, "let the prompt itself be JSON that fits"),
        ({"type": "array", "minItems": 10**12}, "as long as json_schema asks for"),
        ({"type": "string", "minLength": 10**12}, "as long as json_schema asks for"),
    ],
)
def test_what_it_cannot_make(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(Fatal, match=told):
        said(prompt="Hi", json_schema=schema)


def test_a_prompt_that_fits_helps_where_it_cannot_make_one() -> None:
    assert said(prompt='"42"', json_schema={"type": "string", "pattern": "^[0-9]+$"})["json"] == "42"


limits = st.integers(-20, 20)
schemas: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"enum": [1, "x"]}, {"const": [1]}])
    | st.builds(lambda low: {"type": "integer", "minimum": low}, limits)
    | st.builds(lambda high: {"type": "number", "exclusiveMaximum": high}, limits)
    | st.builds(lambda least: {"type": "string", "minLength": least}, st.integers(0, 9)),
    lambda inner: (
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3))
        | st.builds(
            lambda fields: {"type": "object", "properties": fields, "required": sorted(fields)},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        )
        | st.builds(lambda first, second: {"oneOf": [first], "anyOf": [first, second]}, inner, inner)
    ),
    max_leaves=6,
)


@given(schemas, st.text(max_size=30))
def test_an_answer_fits_and_is_always_the_same(schema: dict[str, Any], prompt: str) -> None:
    answer = said(prompt=prompt.replace("\0", ""), json_schema=schema)
    assert json_answer(answer["text"], schema) == answer["json"]
    assert answer == said(prompt=prompt.replace("\0", ""), json_schema=schema)
