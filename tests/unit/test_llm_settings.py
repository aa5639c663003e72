"""The settings of `llm_service`: providers by name, aliases, and mistakes that are told without telling a key."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace.settings import Settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith(("LLM_", "OPENAI_")):
            monkeypatch.delenv(name)


def test_nothing_set() -> None:
    settings = Settings()
    assert settings.openai_base_url == "https://api.openai.com/v1"
    assert (settings.openai_api_key, settings.llm_providers, settings.llm_aliases) == (None, {}, {})


def test_providers_and_aliases_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1/")
    monkeypatch.setenv("LLM_OPEN_ROUTER_BASE_URL", "https://host/api/v1")
    monkeypatch.setenv("LLM_OPEN_ROUTER_API_KEY", "sk-router")
    monkeypatch.setenv("LLM_UNUSED_BASE_URL", "")
    monkeypatch.setenv("LLM_ALIASES", " fast = gpt-5-mini, local=ollama/llama3.2:1b ,odd=a=b,")
    settings = Settings()
    assert set(settings.llm_providers) == {"ollama", "open_router"}
    assert settings.llm_providers["ollama"].base_url == "http://127.0.0.1:11434/v1"
    assert settings.llm_providers["ollama"].api_key is None
    key = settings.llm_providers["open_router"].api_key
    assert key is not None and key.get_secret_value() == "sk-router"
    assert settings.llm_aliases == {"fast": "gpt-5-mini", "local": "ollama/llama3.2:1b", "odd": "a=b"}
    assert "sk-router" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("LLM_X_API_KEY", "sk-secret", "LLM_X_BASE_URL is missing"),
        ("LLM_X_BASE_URL", "127.0.0.1:11434", "must be an address like"),
        ("OPENAI_BASE_URL", "https://user:sk-secret@host/v1", "must be an address like"),
        ("OPENAI_BASE_URL", "https://host/v1?key=sk-secret", "must be an address like"),
        ("OPENAI_BASE_URL", "http://[::1/v1", "must be an address like"),
        ("OPENAI_BASE_URL", "http://host:99999/v1", "must be an address like"),
        ("LLM_ALIASES", "fast", "must be a list like"),
        ("LLM_ALIASES", "=x", "must be a list like"),
        ("LLM_ALIASES", "a=b,a=c", "gives the alias a twice"),
        ("LLM_ALIASES", "echo=gpt-5", "echo is the built-in model"),
    ],
)
def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=told) as caught:
        Settings()
    assert "sk-secret" not in str(caught.value)
