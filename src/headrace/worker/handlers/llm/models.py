"""Which endpoint a model's name means, and which key may go there.

The invariant: a key of the operator's is sent only to the origin (scheme, host, port) that the operator configured it
for. A node may give another `base_url`, but definition authors are not operators. Where that address is of the
provider's own origin, the call is made to the configured origin, letter by letter, with the node's path: so it does
not matter whether two URL parsers would agree about the node's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from headrace.errors import Fatal
from headrace.settings import LlmProvider, Settings

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one call goes. `key_hint` says what to do when the key is missing or refused."""

    origin: str
    path: str
    model: str
    api_key: str | None = field(repr=False)
    key_hint: str
    is_trusted: bool

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}/chat/completions"


def resolved(settings: Settings, model: str) -> str:
    """What a model's name stands for. An alias is looked up once: it may have the name of a real model."""
    return settings.llm_aliases.get(model, model)


def endpoint(settings: Settings, model: str, base_url: str | None = None, api_key: SecretStr | None = None) -> Endpoint:
    """Where to ask for a resolved model; `base_url` and `api_key` are what the node says. Raises Fatal."""
    provider, setting, name = _provider(settings, model)
    configured = urlsplit(provider.base_url)
    origin, path = f"{configured.scheme}://{configured.netloc}", configured.path
    is_trusted = base_url is None
    if base_url is not None:
        asked_origin, path = _split(base_url)
        is_trusted = _same_origin(asked_origin, origin)
        origin = origin if is_trusted else asked_origin
    key, hint = _secret(api_key), "check the node's api_key"
    if not key and is_trusted:
        key, hint = _secret(provider.api_key), f"check {setting}"
        hint = hint if key else f"no key was sent: set {setting}"
    elif not key:
        hint = f"no key was sent: {setting} does not belong to this base_url, so give the node an api_key"
    return Endpoint(origin, path, name, key, hint, is_trusted)


def trusted_hosts(settings: Settings) -> frozenset[str]:
    """The configured origins as host:port. They may be private: that is how a local model server is allowed."""
    providers = (settings.openai_base_url, *(each.base_url for each in settings.llm_providers.values()))
    return frozenset(f"{host}:{port}" for _, host, port in map(_origin, providers))


def _provider(settings: Settings, model: str) -> tuple[LlmProvider, str, str]:
    """The provider, the setting of its key, and the model's name there."""
    prefix, _, name = model.partition("/")
    if name and prefix in settings.llm_providers:
        return settings.llm_providers[prefix], f"LLM_{prefix.upper()}_API_KEY", name
    default = LlmProvider(base_url=settings.openai_base_url, api_key=settings.openai_api_key)
    return default, "OPENAI_API_KEY", model


def _split(base_url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(base_url)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if not host or parts.scheme not in _PORTS or parts.query or parts.fragment or "@" in parts.netloc:
        raise Fatal("base_url must be an address like https://host/v1, without user, query and fragment")
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")


def _same_origin(one: str, other: str) -> bool:
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme, f"[{host}]" if ":" in host else host, parts.port or _PORTS[parts.scheme]


def _secret(value: SecretStr | None) -> str | None:
    return (value.get_secret_value().strip() or None) if value is not None else None
