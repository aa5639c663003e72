"""The only reader of the environment. Every name is part of the contract; values are checked once and then frozen."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from headrace.model.definition import RetryConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=True, populate_by_name=True)

    headrace_home: Path = Field(Path(".headrace"), alias="HEADRACE_HOME")
    environment: Literal["dev", "test", "prod"] = Field("dev", alias="ENVIRONMENT")

    redis_url: SecretStr | None = Field(None, alias="REDIS_URL")
    redis_host: str | None = Field(None, alias="REDIS_HOST")
    redis_port: int = Field(6379, alias="REDIS_PORT", ge=1, le=65535)
    redis_password: SecretStr | None = Field(None, alias="REDIS_PASSWORD")
    redis_db: int = Field(0, alias="REDIS_DB", ge=0)
    redis_partitions: Count = Field(1, alias="REDIS_PARTITIONS")
    redis_socket_timeout: Positive = Field(10.0, alias="REDIS_SOCKET_TIMEOUT")
    redis_stream_block_ms: Count = Field(5000, alias="REDIS_STREAM_BLOCK_MS")

    worker_concurrency: Count = Field(64, alias="WORKER_CONCURRENCY")
    worker_lease_seconds: Positive = Field(15.0, alias="WORKER_LEASE_SECONDS")
    worker_heartbeat_interval: Positive = Field(5.0, alias="WORKER_HEARTBEAT_INTERVAL")
    worker_heartbeat_timeout: Positive = Field(15.0, alias="WORKER_HEARTBEAT_TIMEOUT")
    worker_graceful_shutdown_timeout: NotNegative = Field(30.0, alias="WORKER_GRACEFUL_SHUTDOWN_TIMEOUT")
    worker_handlers: Annotated[tuple[str, ...], NoDecode] = Field((), alias="WORKER_HANDLERS")

    orchestrator_batch: int = Field(200, alias="ORCHESTRATOR_BATCH", ge=1, le=1000)
    orchestrator_stale_result_timeout: Positive = Field(30.0, alias="ORCHESTRATOR_STALE_RESULT_TIMEOUT")
    orchestrator_stale_claim_interval: Positive = Field(15.0, alias="ORCHESTRATOR_STALE_CLAIM_INTERVAL")

    retry_max_retries: int = Field(3, alias="RETRY_MAX_RETRIES", ge=0)
    retry_initial_delay: NotNegative = Field(1.0, alias="RETRY_INITIAL_DELAY")
    retry_max_delay: NotNegative = Field(60.0, alias="RETRY_MAX_DELAY")
    retry_exponential_base: float = Field(2.0, alias="RETRY_EXPONENTIAL_BASE", ge=1, allow_inf_nan=False)
    retry_jitter: bool = Field(True, alias="RETRY_JITTER")

    max_nodes: Count = Field(100_000, alias="MAX_NODES")
    max_output_bytes: Count = Field(1 << 20, alias="MAX_OUTPUT_BYTES")
    max_context_bytes: Count = Field(16 << 20, alias="MAX_CONTEXT_BYTES")
    hot_ttl_seconds: Count = Field(3600, alias="HOT_TTL_SECONDS")
    handler_missing_timeout: Positive = Field(60.0, alias="HANDLER_MISSING_TIMEOUT")
    http_allow_private: bool = Field(False, alias="HTTP_ALLOW_PRIVATE")
    http_allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field((), alias="HTTP_ALLOWED_HOSTS")

    @field_validator("worker_handlers", "http_allowed_hosts", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

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
