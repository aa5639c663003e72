"""What a node of `llm_service` may say, and the request that it becomes.

The model's schema is what `headrace validate` and editors check a definition with. Nothing here knows of keys but the
node's own: the endpoint, and whether a key of the operator's may go there, are chosen in models.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from headrace.worker.handlers.llm.structured import usable

OPENAI = "https://api.openai.com"
_HAVE_FIELDS = {"model", "messages", "stream", "temperature", "max_tokens", "response_format"}


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "developer", "user", "assistant"] = Field(description="Who says it.")
    content: str | list[dict[str, Any]] = Field(
        description="Text, or a list of the protocol's content parts, such as text and image_url."
    )

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if isinstance(part.get("text"), str))


class LlmConfig(BaseModel):
    """One chat completion."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]},
    )

    model: str = Field(
        min_length=1,
        description="The model's name, an alias of LLM_ALIASES, provider/name for a configured provider, or echo.",
    )
    prompt: str | None = Field(None, description="The user's message. Either this or messages.")
    messages: Annotated[list[Message], Field(min_length=1)] | None = Field(
        None, description="The conversation so far, oldest message first. Either this or prompt."
    )
    system: str | None = Field(None, description="A system message that comes before all others.")
    temperature: float | None = Field(None, ge=0, le=2, description="How much chance there is in the answer.")
    max_tokens: int | None = Field(None, ge=1, description="The longest answer, in tokens.")
    response_format: Literal["text", "json"] | dict[str, Any] | None = Field(
        None, description="text (the default), json (the answer is parsed too), or the protocol's own object."
    )
    json_schema: dict[str, Any] | None = Field(
        None, description="A JSON Schema that the answer must fit. The answer is parsed and checked."
    )
    base_url: str | None = Field(
        None, description="Another endpoint than the provider's, such as https://host/v1. It gets no key but api_key."
    )
    api_key: SecretStr | None = Field(
        None, description="The key for this endpoint, instead of the provider's. Use {{ secret.NAME }}."
    )
    stream: bool = Field(False, description="Have the answer sent in pieces, so that no proxy gives up on a long one.")
    timeout_seconds: float = Field(120, gt=0, le=3600, description="How long the whole answer may take.")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the request, sent as they are: seed, stop, top_p, ..."
    )

    @field_validator("extra")
    @classmethod
    def _has_no_field(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := _HAVE_FIELDS & extra.keys():
            raise ValueError(f"{', '.join(sorted(taken))} may not be here: the config has a field for it")
        return extra

    @model_validator(mode="after")
    def _is_consistent(self) -> LlmConfig:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        if self.json_schema is not None and self.response_format not in (None, "json"):
            raise ValueError("json_schema is a response_format of its own: leave response_format out")
        if self.schema_given is not None:
            usable(self.schema_given)
        return self

    @property
    def conversation(self) -> list[Message]:
        first = [] if self.system is None else [Message(role="system", content=self.system)]
        return [*first, *(self.messages or [Message(role="user", content=self.prompt or "")])]

    @property
    def wants_json(self) -> bool:
        kind = self.response_format.get("type") if isinstance(self.response_format, dict) else self.response_format
        return self.json_schema is not None or kind in ("json", "json_object", "json_schema")

    @property
    def schema_given(self) -> dict[str, Any] | None:
        """What a JSON answer must fit: json_schema, or the schema inside the protocol's response_format."""
        if self.json_schema is not None or not isinstance(self.response_format, dict):
            return self.json_schema
        inner = self.response_format.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        return schema if isinstance(schema, dict) else None


def request_body(config: LlmConfig, model: str, origin: str) -> dict[str, Any]:
    """What the node says, in the protocol's words. What it does not say is left to the server."""
    # OpenAI's own newer models refuse `max_tokens`; most other servers do not know its successor.
    limit = "max_completion_tokens" if origin == OPENAI else "max_tokens"
    asked = {
        "model": model,
        "messages": [message.model_dump() for message in config.conversation],
        "temperature": config.temperature,
        limit: config.max_tokens,
        "response_format": _response_format(config),
        "stream": config.stream or None,
        "stream_options": {"include_usage": True} if config.stream else None,
    }
    return {name: value for name, value in asked.items() if value is not None} | config.extra


def _response_format(config: LlmConfig) -> dict[str, Any] | None:
    if config.json_schema is not None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": config.json_schema}}
    if isinstance(config.response_format, dict):
        return config.response_format
    return {"type": "json_object"} if config.response_format == "json" else None
