"""The pure parts of `llm_service`: which endpoint and key a model's name means, its config, and JSON answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from headrace.errors import Fatal, Retry
from headrace.settings import Settings
from headrace.worker.handlers.llm import LlmConfig, models
from headrace.worker.handlers.llm.completion import events
from headrace.worker.handlers.llm.config import request_body
from headrace.worker.handlers.llm.structured import check, parsed, usable

DEFAULT_KEY, LOCAL_KEY = "sk-default", "sk-local"
SETTINGS = Settings(
    openai_base_url="https://api.example/v1",
    openai_api_key=DEFAULT_KEY,
    llm_providers={"local": {"base_url": "http://127.0.0.1:11434/v1", "api_key": LOCAL_KEY}},
    llm_aliases={"fast": "local/llama", "loop": "fast", "local/llama": "other"},
)
OWNERS = {DEFAULT_KEY: ("https", "api.example", 443), LOCAL_KEY: ("http", "127.0.0.1", 11434)}


# Which endpoint, which key


@pytest.mark.parametrize(
    ("model", "origin", "name", "key"),
    [
        ("gpt-5", "https://api.example", "gpt-5", DEFAULT_KEY),
        ("local/llama3.2", "http://127.0.0.1:11434", "llama3.2", LOCAL_KEY),
        ("local/meta/llama", "http://127.0.0.1:11434", "meta/llama", LOCAL_KEY),
        ("meta/llama", "https://api.example", "meta/llama", DEFAULT_KEY),
        ("LOCAL/llama", "https://api.example", "LOCAL/llama", DEFAULT_KEY),
        ("local", "https://api.example", "local", DEFAULT_KEY),
        ("local/", "https://api.example", "local/", DEFAULT_KEY),
    ],
)
def test_a_name_means_an_endpoint(model: str, origin: str, name: str, key: str) -> None:
    found = models.endpoint(SETTINGS, model)
    assert (found.origin, found.model, found.api_key, found.is_trusted) == (origin, name, key, True)
    assert found.url == f"{origin}/v1/chat/completions"
    assert key not in repr(found)


def test_a_node_that_names_the_providers_origin_gets_it_letter_by_letter() -> None:
    found = models.endpoint(SETTINGS, "m", "HTTPS://API.example:443/v2/")
    assert (found.url, found.api_key) == ("https://api.example/v2/chat/completions", DEFAULT_KEY)


def test_an_alias_is_looked_up_once() -> None:
    assert models.resolved(SETTINGS, "fast") == "local/llama"  # and not "other"
    assert models.resolved(SETTINGS, "loop") == "fast"
    assert models.resolved(SETTINGS, "gpt-5") == "gpt-5"


hosts = st.sampled_from(["api.example", "API.example", "api.example.", "api.example.evil", "127.0.0.1", "127.1"])
ports = st.sampled_from(["", ":", ":443", ":80", ":11434", ":0443", ":0", ":99999", ":x"])
schemes = st.sampled_from(["https://", "http://", "HTTPS://", "https:/", "https:\\\\", "//", "ftp://", "", " https://"])
users = st.sampled_from(["", "", "", "evil@", "api.example@", "api.example\\@", "api.example#@", "api.example/@"])
paths = st.sampled_from(["", "/", "/v1", "/v1/", "//v1", "/..//@evil/", "\\@evil", "#", "?x", "/\tv1", "\n", "/v1?"])
urls = st.builds("".join, st.tuples(schemes, users, hosts, ports, paths)) | st.text(max_size=40)


@given(st.sampled_from(["m", "local/m", "meta/m"]), urls, st.sampled_from([None, "sk-of-the-node"]))
def test_whatever_a_node_says_a_key_goes_only_to_its_origin(model: str, base_url: str, own_key: str | None) -> None:
    try:
        found = models.endpoint(SETTINGS, model, base_url, SecretStr(own_key) if own_key else None)
    except Fatal:
        return
    import httpx2  # what the client will make of it

    try:
        sent_to = httpx2.URL(found.url)
    except httpx2.InvalidURL:
        return
    origin = (sent_to.scheme, sent_to.host, sent_to.port or {"http": 80, "https": 443}[sent_to.scheme])
    if own_key:
        assert found.api_key == own_key
    if found.api_key in OWNERS:
        assert origin == OWNERS[found.api_key]
    if found.is_trusted:
        assert origin in OWNERS.values()


def test_the_operators_origins_are_trusted() -> None:
    settings = Settings(
        openai_base_url="https://API.example/v1",
        llm_providers={"six": {"base_url": "http://[::1]:8000"}, "plain": {"base_url": "http://host"}},
    )
    assert models.trusted_hosts(settings) == {"api.example:443", "[::1]:8000", "host:80"}


@given(st.sampled_from(["local", "x", "meta"]), st.text(min_size=1, max_size=20))
def test_a_prefix_counts_only_where_such_a_provider_is(prefix: str, name: str) -> None:
    found = models.endpoint(SETTINGS, f"{prefix}/{name}")
    assert found.model == (name if prefix == "local" else f"{prefix}/{name}")
    assert (urlsplit(found.url).hostname == "127.0.0.1") == (prefix == "local")


# The config and its request


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "either prompt or messages"),
        ({"messages": []}, "at least 1 item"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"prompt": "a", "extra": {"stream": True, "model": "x"}}, "model, stream may not be here"),
        ({"prompt": "a", "tmperature": 1}, "Extra inputs"),
        ({"prompt": "a", "temperature": 3}, "less than or equal to 2"),
        ({"prompt": "a", "json_schema": {"type": "nonsense"}}, "not a usable JSON Schema"),
        ({"prompt": "a", "json_schema": {"$ref": "https://host/schema"}}, "must name one of its own"),
        ({"prompt": "a", "json_schema": {}, "response_format": "text"}, "leave response_format out"),
        ({"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}}}, "usable"),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        LlmConfig.model_validate({"model": "m", **config})


@pytest.mark.parametrize("config", [{}, {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}])
def test_validation_without_a_worker_sees_it_too(config: dict[str, Any]) -> None:
    from headrace.model.definition import validator

    schema = validator(LlmConfig.model_json_schema())
    assert not schema.is_valid({"model": "m", **config})
    assert schema.is_valid({"model": "m", "prompt": "a"})


def test_a_key_is_in_no_text_of_a_config() -> None:
    config = LlmConfig(model="m", prompt="a", api_key=SecretStr("sk-secret"))
    assert "sk-secret" not in f"{config!r}{config}{config.model_dump_json()}"


def test_openai_gets_the_name_that_its_models_know() -> None:
    config = LlmConfig(model="m", prompt="a", max_tokens=5)
    assert request_body(config, "m", "https://api.openai.com")["max_completion_tokens"] == 5
    assert request_body(config, "m", "https://host")["max_tokens"] == 5


# Streams


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8), max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.booleans(),
)
def test_events_are_read_as_they_were_written(data: list[str], end: str, has_comments: bool) -> None:
    written = "".join(f"{': hi' + end if has_comments else ''}data: {each}{end}{end}" for each in data)
    assert list(events(written)) == data


# JSON answers

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(["{}", "```json\n{}\n```", "```\n{}\n```", "Sure:\n```json\n{}```\nDone."]))
def test_json_is_found_in_its_fence(value: object, around: str) -> None:
    assert parsed(around.replace("{}", json.dumps(value), 1)) == value


class Leaf(BaseModel):
    word: str


class Tree(BaseModel):
    left: Leaf
    right: Leaf | None = None
    many: list[Leaf]


class Endless(BaseModel):
    more: list[Endless]


def test_references_are_written_out() -> None:
    schema = Tree.model_json_schema()
    assert "$ref" in json.dumps(schema)
    assert "$ref" not in json.dumps(usable(schema))
    check({"left": {"word": "a"}, "many": [{"word": "b"}]}, "", schema)
    with pytest.raises(Retry, match=r"many\[0\]\.word: 5 is not of type"):
        check({"left": {"word": "a"}, "many": [{"word": 5}]}, "", schema)


def test_a_reference_with_neighbours_means_both() -> None:
    schema = {"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a", "minLength": 2}}}
    check({"x": "ab"}, "", schema)
    for value in ("a", 5):
        with pytest.raises(Retry):
            check({"x": value}, "", schema)


def _doubling(times: int) -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(times)
    }
    return {"$defs": {**defs, f"d{times}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (Endless.model_json_schema(), "refers to itself"),
        (_doubling(25), "too large or too deep"),
        ({"$ref": "#/$defs/none"}, "must name one of its own"),
        ({"$ref": 5}, "must name one of its own"),
        ({"properties": {"a": {"unevaluatedItems": False}}}, "unevaluatedItems may not be used"),
        ({"enum": ["x" * 70_000]}, "longer than"),
        ({"pattern": "(?<=x)y"}, "not a usable"),
    ],
)
def test_schemas_that_cannot_be_checked_with(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        usable(schema)


def test_a_long_answer_is_not_held_against_a_long_schema() -> None:
    schema = {"items": {"anyOf": [{"const": -n} for n in range(2000)]}}
    with pytest.raises(Retry, match="too long to be checked"):
        check([1] * 200_000, "1," * 200_000, schema)
