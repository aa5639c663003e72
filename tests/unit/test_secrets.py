"""Secrets in settings, and on their way into a config."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr, ValidationError

from headrace.errors import BadValue
from headrace.model.definition import Definition, Node, RetryConfig
from headrace.model.messages import Secret, SecretText, Work
from headrace.model.plan import Plan
from headrace.settings import Settings
from headrace.steps.plans import LoadedPlan
from headrace.worker.secrets import MOST_CHARACTERS, SecretMissing, Secrets


def filled(values: dict[str, str], config: Any, *texts: SecretText) -> Any:
    return json.loads(bytes(Secrets(values).put_into(msgspec.Raw(json.dumps(config).encode()), texts)))


def test_values_go_to_their_places_and_nowhere_else() -> None:
    config = {"a": [{"b": "shown"}, "{{ secret.T }}"], "c": {"0": "shown"}, "d": {"secret": "T"}}
    texts = (
        SecretText(("a", 0, "b"), ("Bearer ", Secret("T"), "!")),
        SecretText(("c", "0"), (Secret("T"), Secret("U"))),
    )
    assert filled({"T": "{{ secret.U }}", "U": 'é"\n'}, config, *texts) == {
        "a": [{"b": "Bearer {{ secret.U }}!"}, "{{ secret.T }}"],
        "c": {"0": '{{ secret.U }}é"\n'},
        "d": {"secret": "T"},
    }


def test_what_is_missing_is_named() -> None:
    text = SecretText(("a",), (Secret("HERE"), Secret("TOKEN")))
    with pytest.raises(SecretMissing) as caught:
        filled({"HERE": "value"}, {"a": ""}, text)
    assert str(caught.value) == "secret TOKEN is not set on this worker: set HEADRACE_SECRET_TOKEN"
    with pytest.raises(SecretMissing, match=r"secrets HERE, TOKEN are not set .* HEADRACE_SECRET_HERE, "):
        filled({}, {"a": ""}, text)


@pytest.mark.parametrize("path", [("b",), ("a", "x"), ("a", 0, "x"), ("l", 1), ("l", "x"), (0,)])
def test_places_that_do_not_fit_are_refused(path: tuple[str | int, ...]) -> None:
    with pytest.raises(BadValue):
        filled({"T": "value"}, {"a": "text", "l": [1]}, SecretText(path, (Secret("T"),)))


def test_the_size_is_bounded_before_anything_is_built() -> None:
    text = SecretText(("a",), (Secret("T"),) * 1000)
    assert len(filled({"T": "x" * (MOST_CHARACTERS // 1000)}, {"a": ""}, text)["a"]) == MOST_CHARACTERS // 1000 * 1000
    with pytest.raises(BadValue):
        filled({"T": "x" * (MOST_CHARACTERS // 1000 + 5)}, {"a": ""}, text)


def test_payloads_carry_names_beside_the_config_and_nothing_where_there_are_none() -> None:
    nodes = (Node("a", "h", config={"x": "Bearer {{ secret.T }}"}), Node("b", "h", config={"x": "{{ 1 + 1 }}"}))
    plan = LoadedPlan(Plan(Definition("d", nodes)), RetryConfig())
    payload = plan.constant_payload(0)
    assert payload is not None
    assert json.loads(payload) == {
        "config": {"x": "Bearer {{ secret.T }}"},
        "secrets": [{"path": ["x"], "pieces": ["Bearer ", {"secret": "T"}]}],
    }
    assert plan.constant_payload(0) is payload
    assert msgspec.json.decode(payload, type=Work).secrets == (SecretText(("x",), ("Bearer ", Secret("T"))),)
    assert plan.constant_payload(1) == '{"config":{"x":2}}'


def test_settings_read_secrets_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET_API_KEY", "value\n")
    monkeypatch.setenv("HEADRACE_SECRET_api_key", "")
    monkeypatch.setenv("HEADRACE_SECRETS", "no")
    settings = Settings()
    assert settings.secrets == {"API_KEY": SecretStr("value\n"), "api_key": SecretStr("")}
    assert "value\n" in settings.confidential
    assert "value" not in repr(settings)


@pytest.mark.parametrize("name", ["", "2FA", "my-key", "ä", "a.b"])
def test_a_name_that_no_template_could_use_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HEADRACE_SECRET_{name}", "hunter2secret")
    with pytest.raises(ValidationError, match=f"HEADRACE_SECRET_{name} is no name") as caught:
        Settings()
    assert "hunter2secret" not in str(caught.value)


def test_a_value_that_is_not_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET_A", b"\xffhunter2".decode(errors="surrogateescape"))
    with pytest.raises(ValidationError, match="HEADRACE_SECRET_A is not UTF-8") as caught:
        Settings()
    assert "hunter2" not in str(caught.value)


def test_other_confidential_settings_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "redis-password")
    monkeypatch.setenv("REDIS_URL", "rediss://user:in%2Fthe-url@valkey.test:6380/1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert {"redis-password", "sk-0123456789", "in/the-url", "in%2Fthe-url"} <= set(Settings().confidential)
