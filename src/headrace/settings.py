"""The only reader of the environment. Every name is part of the contract; values are checked once and then frozen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from headrace.model.definition import RetryConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

SECRET_PREFIX = "HEADRACE_SECRET_"  # noqa: S105
SCOPES = ("read", "run", "admin")  # of an API key
ECHO_MODEL = "echo"  # built in: an alias may lead to it, and none may take its name


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in url or "?" in url or "#" in url or not url.isprintable() or " " in url:
        raise ValueError("must be an address like https://host/v1, without user, query and fragment")
    return url.rstrip("/")


class LlmProvider(BaseModel):
    """An OpenAI-compatible endpoint that the operator trusts, and the key that goes there and nowhere else."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    base_url: Annotated[str, AfterValidator(_base_url)] = Field(
        description="A further endpoint. A model name/model-id, with the name in lower case, goes there."
    )
    api_key: SecretStr | None = Field(None, description="The key for that endpoint. It is sent nowhere else.")


class FixedKey(NamedTuple):
    """An API key that the environment gives."""

    name: str
    scopes: frozenset[str]
    secret: str


class RateLimit(NamedTuple):
    requests: int
    seconds: int


def read_keys(value: SecretStr | None) -> tuple[FixedKey, ...]:
    written = value.get_secret_value().split(",") if value else []
    keys = tuple(_read_key(text.strip(), number) for number, text in enumerate(written, 1) if text.strip())
    if len({key.name for key in keys}) < len(keys):
        raise ValueError("gives two keys the same name")
    return keys


def _read_key(text: str, number: int) -> FixedKey:
    """The message never shows the key."""
    *named, secret = text.split(":")
    name = named[0] if named else f"key-{number}"
    scopes = set(named[1].split("+") if len(named) > 1 else SCOPES)
    if len(named) > 2 or not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ValueError(f"key {number} must be written key, name:key or name:scope+scope:key")
    if not scopes.issubset(SCOPES):
        raise ValueError(f"key {number} has an unknown scope: known are {', '.join(SCOPES)}")
    if len(secret) < 16:
        raise ValueError(f"key {number} is shorter than 16 characters")
    return FixedKey(name, frozenset(scopes), secret)


def read_rate(value: str | None) -> RateLimit | None:
    if value is None or value.strip().lower() == "off":
        return None
    match = re.fullmatch(r"\s*([1-9]\d{0,8})\s*/\s*(second|minute|hour)\s*", value)
    if not match:
        raise ValueError("must be off, or a number per second, minute or hour, like 60/minute")
    return RateLimit(int(match[1]), {"second": 1, "minute": 60, "hour": 3600}[match[2]])


class _ProviderVariables(EnvSettingsSource):
    """LLM_<NAME>_BASE_URL and LLM_<NAME>_API_KEY as the provider <name>, in lower case."""

    def __call__(self) -> dict[str, Any]:
        providers: dict[str, dict[str, Any]] = {}
        for name, value in self.env_vars.items():
            if value and (match := re.fullmatch(r"LLM_([A-Z0-9_]+)_(BASE_URL|API_KEY)", name)):
                providers.setdefault(match[1].lower(), {})[match[2].lower()] = value
        return {"llm_providers": providers} if providers else {}


class _SecretVariables(EnvSettingsSource):
    """HEADRACE_SECRET_<NAME> as the secret <NAME>, to the letter."""

    def __call__(self) -> dict[str, Any]:
        found = {name: value for name, value in self.env_vars.items() if name.startswith(SECRET_PREFIX)}
        return {f"{SECRET_PREFIX}*": {name.removeprefix(SECRET_PREFIX): value for name, value in found.items()}}


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        case_sensitive=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    headrace_home: Path = Field(
        Path(".headrace"),
        alias="HEADRACE_HOME",
        description="The folder for what is kept on this machine, such as the private Valkey of headrace run.",
    )
    environment: Literal["dev", "test", "prod"] = Field(
        "dev", alias="ENVIRONMENT", description="Where this runs. In prod the API limits the rate of requests."
    )

    headrace_server: Annotated[str, AfterValidator(_base_url)] = Field(
        "http://127.0.0.1:8080", alias="HEADRACE_SERVER", description="The API that the client commands talk to."
    )
    headrace_api_key: SecretStr | None = Field(
        None, alias="HEADRACE_API_KEY", description="The key that the client commands send to the API."
    )

    redis_url: SecretStr | None = Field(
        None,
        alias="REDIS_URL",
        description="The server: redis://[user:password@]host[:port][/db], rediss://… for TLS, or unix:///path.",
    )
    redis_host: str | None = Field(None, alias="REDIS_HOST", description="The server, where REDIS_URL is not set.")
    redis_port: int = Field(6379, alias="REDIS_PORT", ge=1, le=65535, description="The port on REDIS_HOST.")
    redis_password: SecretStr | None = Field(None, alias="REDIS_PASSWORD", description="The password for REDIS_HOST.")
    redis_db: int = Field(0, alias="REDIS_DB", ge=0, description="The number of the database on REDIS_HOST.")
    redis_partitions: Count = Field(
        1,
        alias="REDIS_PARTITIONS",
        description="How many sets of keys the executions are spread over. Every role must be given the same number.",
    )
    redis_socket_timeout: Positive = Field(
        10.0,
        alias="REDIS_SOCKET_TIMEOUT",
        description="After how many seconds without an answer the server counts as away.",
    )
    redis_stream_block_ms: Count = Field(
        5000,
        alias="REDIS_STREAM_BLOCK_MS",
        description="How long one read waits for something new, in milliseconds, before it asks again.",
    )

    database_url: SecretStr | None = Field(
        None,
        alias="DATABASE_URL",
        description="The SQL store: postgresql://[user:password@]host[:port]/db or sqlite:///path. "
        "Nothing set: SQLite under HEADRACE_HOME.",
    )
    postgres_host: str | None = Field(
        None, alias="POSTGRES_HOST", description="The PostgreSQL server, where DATABASE_URL is not set."
    )
    postgres_port: int = Field(5432, alias="POSTGRES_PORT", ge=1, le=65535, description="The port on POSTGRES_HOST.")
    postgres_user: str = Field("headrace", alias="POSTGRES_USER", description="The user on POSTGRES_HOST.")
    postgres_password: SecretStr | None = Field(
        None, alias="POSTGRES_PASSWORD", description="The password of POSTGRES_USER."
    )
    postgres_db: str = Field("headrace", alias="POSTGRES_DB", description="The database on POSTGRES_HOST.")

    api_host: str = Field("127.0.0.1", alias="API_HOST", description="The address that the API listens on.")
    api_port: int = Field(
        8080, alias="API_PORT", ge=0, le=65535, description="The port that the API listens on; 0 takes any free one."
    )
    api_keys: SecretStr | None = Field(
        None,
        alias="API_KEYS",
        description="Fixed keys, with commas between them: key, name:key or name:scope+scope:key. Scopes are read, run "
        "and admin; a key without any has all. A key has at least 16 characters.",
    )
    api_allow_open: bool = Field(
        False,
        alias="API_ALLOW_OPEN",
        description="Whether the API may listen beyond this machine without any key.",
    )
    api_rate_limit: str | None = Field(
        None,
        alias="API_RATE_LIMIT",
        description="How many requests a client may make: a number per second, minute or hour, like 60/minute, or off. "
        "Nothing set: 60/minute in prod, else off.",
    )
    api_max_definition_bytes: Count = Field(
        32 << 20, alias="API_MAX_DEFINITION_BYTES", description="How large a request with a definition may be."
    )
    api_max_body_bytes: Count = Field(
        1 << 20, alias="API_MAX_BODY_BYTES", description="How large any other request may be."
    )

    worker_concurrency: Count = Field(
        64, alias="WORKER_CONCURRENCY", description="How many attempts a worker runs at the same time."
    )
    worker_lease_seconds: Positive = Field(
        15.0,
        alias="WORKER_LEASE_SECONDS",
        description="After how many seconds without a sign of life the attempts of a worker are given to others.",
    )
    worker_heartbeat_interval: Positive = Field(
        5.0,
        alias="WORKER_HEARTBEAT_INTERVAL",
        description="Seconds between two signs of life, but never more than a third of the lease.",
    )
    worker_heartbeat_timeout: Positive = Field(
        15.0,
        alias="WORKER_HEARTBEAT_TIMEOUT",
        description="After how many silent seconds a worker does not count as alive. Its work is decided by the lease.",
    )
    worker_graceful_shutdown_timeout: NotNegative = Field(
        30.0,
        alias="WORKER_GRACEFUL_SHUTDOWN_TIMEOUT",
        description="Seconds for running handlers to finish after SIGTERM. Then their work is given back.",
    )
    worker_plan_bytes: int = Field(
        256 << 10,
        alias="WORKER_PLAN_BYTES",
        ge=0,
        description="Of definitions up to this size workers queue what follows from a result themselves; "
        "0 leaves it to the orchestrators.",
    )
    worker_handlers: Annotated[tuple[str, ...], NoDecode] = Field(
        (), alias="WORKER_HANDLERS", description="Modules with handlers, loaded like those of --handlers."
    )

    orchestrator_batch: int = Field(
        200, alias="ORCHESTRATOR_BATCH", ge=1, le=1000, description="How many results are handled together, at most."
    )
    orchestrator_stale_result_timeout: Positive = Field(
        30.0,
        alias="ORCHESTRATOR_STALE_RESULT_TIMEOUT",
        description="After how many seconds a result that an orchestrator took and did not finish goes to another one.",
    )
    orchestrator_stale_claim_interval: Positive = Field(
        15.0, alias="ORCHESTRATOR_STALE_CLAIM_INTERVAL", description="Seconds between two looks for such results."
    )

    orchestrator_archive_interval: Positive = Field(
        0.1,
        alias="ORCHESTRATOR_ARCHIVE_INTERVAL",
        description="How many seconds to wait between two looks for what to archive.",
    )
    orchestrator_reconcile_interval: Positive = Field(
        10.0,
        alias="ORCHESTRATOR_RECONCILE_INTERVAL",
        description="How often the hot store is compared with the record.",
    )

    retry_max_retries: int = Field(
        3, alias="RETRY_MAX_RETRIES", ge=0, description="How often a failed attempt is repeated, at most."
    )
    retry_initial_delay: NotNegative = Field(
        1.0, alias="RETRY_INITIAL_DELAY", description="Seconds before the first repetition."
    )
    retry_max_delay: NotNegative = Field(
        60.0, alias="RETRY_MAX_DELAY", description="Seconds before a repetition, at most."
    )
    retry_exponential_base: float = Field(
        2.0,
        alias="RETRY_EXPONENTIAL_BASE",
        ge=1,
        allow_inf_nan=False,
        description="How many times longer each delay is than the one before it.",
    )
    retry_jitter: bool = Field(
        True, alias="RETRY_JITTER", description="Vary the delays, so that nodes do not retry in step."
    )

    max_nodes: Count = Field(100_000, alias="MAX_NODES", description="How many nodes a definition may have.")
    max_output_bytes: Count = Field(
        1 << 20, alias="MAX_OUTPUT_BYTES", description="How large the output of a node may be, as JSON."
    )
    max_context_bytes: Count = Field(
        16 << 20,
        alias="MAX_CONTEXT_BYTES",
        description="How large the outputs that one node's templates read may be, together.",
    )
    hot_ttl_seconds: Count = Field(
        3600, alias="HOT_TTL_SECONDS", description="How long Valkey keeps a definition that no execution uses."
    )
    dlq_policy: Literal["all", "non_retryable"] = Field(
        "all",
        alias="DLQ_POLICY",
        description="Which final failures become dead letters: all, or only those that no retry could have helped.",
    )
    retention_days: Count = Field(
        30, alias="RETENTION_DAYS", description="How long ended executions are kept in the record, in days."
    )
    handler_missing_timeout: Positive = Field(
        60.0,
        alias="HANDLER_MISSING_TIMEOUT",
        description="Seconds that a task waits for a worker with its handler while others live. Then it fails.",
    )
    http_allow_private: bool = Field(
        False,
        alias="HTTP_ALLOW_PRIVATE",
        description="Whether HTTP calls may reach private, loopback and other internal addresses.",
    )
    http_allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        alias="HTTP_ALLOWED_HOSTS",
        description="Internal hosts that HTTP calls may reach: host, host:port, *.suffix, address, block (10.0.0.0/8).",
    )

    otel_exporter_otlp_endpoint: str | None = Field(
        None,
        alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="The OpenTelemetry collector that traces are sent to, by OTLP over HTTP. Nothing set: no traces.",
    )
    otel_exporter_otlp_traces_endpoint: str | None = Field(
        None,
        alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        description="The same for traces alone, as the full address.",
    )
    otel_exporter_otlp_headers: SecretStr | None = Field(
        None,
        alias="OTEL_EXPORTER_OTLP_HEADERS",
        description="Headers for the collector, such as its key: name=value,name=value.",
    )
    otel_exporter_otlp_traces_headers: SecretStr | None = Field(
        None, alias="OTEL_EXPORTER_OTLP_TRACES_HEADERS", description="The same for traces alone."
    )
    otel_sdk_disabled: Annotated[bool, BeforeValidator(lambda value: str(value).strip().lower() == "true")] = Field(
        False, alias="OTEL_SDK_DISABLED", description="Whether traces are off, whatever else is set."
    )

    openai_base_url: Annotated[str, AfterValidator(_base_url)] = Field(
        "https://api.openai.com/v1", alias="OPENAI_BASE_URL", description="Where the models without a provider are."
    )
    openai_api_key: SecretStr | None = Field(
        None, alias="OPENAI_API_KEY", description="The key for OPENAI_BASE_URL. It is sent nowhere else."
    )
    llm_aliases: Annotated[Mapping[str, str], NoDecode] = Field(
        {}, alias="LLM_ALIASES", description="Names for models: fast=gpt-5-mini,local=ollama/llama3.2."
    )
    llm_providers: Mapping[str, LlmProvider] = {}  # LLM_<NAME>_BASE_URL and LLM_<NAME>_API_KEY

    secrets: Mapping[str, SecretStr] = Field(
        {}, alias=f"{SECRET_PREFIX}*", description="A value that definitions use as {{ secret.<NAME> }}."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _ProviderVariables(settings_cls), _SecretVariables(settings_cls), env_settings

    @field_validator("worker_handlers", "http_allowed_hosts", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("api_keys")
    @classmethod
    def _usable_keys(cls, value: SecretStr | None) -> SecretStr | None:
        read_keys(value)
        return value

    @field_validator("api_rate_limit")
    @classmethod
    def _usable_rate(cls, value: str | None) -> str | None:
        read_rate(value)
        return value

    @field_validator("llm_aliases", mode="before")
    @classmethod
    def _aliases(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [[part.strip() for part in pair.split("=", 1)] for pair in value.split(",") if pair.strip()]
        if any(len(pair) != 2 or not all(pair) for pair in pairs):
            raise ValueError("must be a list like fast=gpt-5-mini,local=ollama/llama3.2")
        names = [name for name, _ in pairs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"gives the alias {min(twice)} twice")
        return dict(pairs)

    @field_validator("llm_aliases")
    @classmethod
    def _echo_stays(cls, aliases: Mapping[str, str]) -> Mapping[str, str]:
        if ECHO_MODEL in aliases:
            raise ValueError(f"{ECHO_MODEL} is the built-in model and cannot be an alias")
        return aliases

    @field_validator("llm_providers", mode="before")
    @classmethod
    def _keys_have_an_address(cls, providers: object) -> object:
        for name, provider in providers.items() if isinstance(providers, Mapping) else ():
            if isinstance(provider, Mapping) and not provider.get("base_url"):
                setting = f"LLM_{name.upper()}"
                raise ValueError(f"{setting}_BASE_URL is missing: without it {setting}_API_KEY belongs to no address")
        return providers

    @field_validator("secrets")
    @classmethod
    def _names_of_secrets(cls, secrets: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in secrets.items():
            if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(
                    f"{SECRET_PREFIX}{name} is no name that a template could use: after {SECRET_PREFIX} come letters, "
                    "digits and _, and first no digit"
                )
            if re.search("[\ud800-\udfff]", value.get_secret_value()):
                raise ValueError(f"the value of {SECRET_PREFIX}{name} is not UTF-8 text")
        return secrets

    @cached_property
    def confidential(self) -> tuple[str, ...]:
        """The values that must be seen nowhere: a worker takes them out of outputs, errors and logs."""
        providers = (provider.api_key for provider in self.llm_providers.values())
        values = (
            *self.secrets.values(), self.openai_api_key, self.redis_password, self.headrace_api_key,
            self.postgres_password, *providers,
        )  # fmt: skip
        told = [value.get_secret_value() for value in values if value is not None]
        urls = (url.get_secret_value() for url in (self.redis_url, self.database_url) if url)
        passwords = [password for url in urls if (password := urlsplit(url).password)]
        sent = (self.otel_exporter_otlp_headers, self.otel_exporter_otlp_traces_headers)
        headers = (
            unquote(pair.partition("=")[2].strip())
            for each in sent
            if each is not None
            for pair in each.get_secret_value().split(",")
        )
        keys = (key.secret for key in self.fixed_keys)
        return (*told, *keys, *headers, *(each for password in passwords for each in (unquote(password), password)))

    @cached_property
    def valkey_url(self) -> str | None:
        """The configured server, or None: then a private one is started."""
        if self.redis_url is not None:
            return self.redis_url.get_secret_value()
        if self.redis_host is None:
            return None
        password = self.redis_password.get_secret_value() if self.redis_password else ""
        login = f":{quote(password, safe='')}@" if password else ""
        return f"redis://{login}{self.redis_host}:{self.redis_port}/{self.redis_db}"

    @property
    def sends_traces(self) -> bool:
        is_set = self.otel_exporter_otlp_endpoint or self.otel_exporter_otlp_traces_endpoint
        return bool(is_set) and not self.otel_sdk_disabled

    @cached_property
    def sql_url(self) -> str:
        """The configured database, or the SQLite file under HEADRACE_HOME."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        if self.postgres_host is None:
            return f"sqlite:///{self.headrace_home / 'headrace.db'}"
        password = f":{quote(self.postgres_password.get_secret_value(), safe='')}" if self.postgres_password else ""
        login = quote(self.postgres_user, safe="") + password
        return f"postgresql://{login}@{self.postgres_host}:{self.postgres_port}/{quote(self.postgres_db, safe='')}"

    @cached_property
    def fixed_keys(self) -> tuple[FixedKey, ...]:
        return read_keys(self.api_keys)

    @cached_property
    def rate_limit(self) -> RateLimit | None:
        if self.api_rate_limit is None:
            return RateLimit(60, 60) if self.environment == "prod" else None
        return read_rate(self.api_rate_limit)

    @cached_property
    def retry(self) -> RetryConfig:
        """The policy of a node that does not say otherwise."""
        return RetryConfig(
            max_retries=self.retry_max_retries,
            initial_delay=self.retry_initial_delay,
            max_delay=self.retry_max_delay,
            exponential_base=self.retry_exponential_base,
            jitter=self.retry_jitter,
        )
