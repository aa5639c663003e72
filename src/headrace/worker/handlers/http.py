"""`call_external_service`: one HTTP call, and its answer as the node's output.

The config says what to send; everything about safety (addresses, limits, redirects) is the client's (`outbound`), and
which answers are worth another attempt is in `answers`. The descriptions here are the reference that users read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.worker.outbound import Outbound, body_of, refuse_status
from headrace.worker.registry import Context, handler

MAX_REDIRECTS = 3
DEFAULT_RESPONSE_BYTES = (1 << 20) - (64 << 10)  # an output has 1 MiB, and the headers are in it too
LARGEST_RESPONSE_BYTES = 16 << 20

Scalar = str | int | float | bool
StatusNumber = Annotated[int, Field(ge=100, le=599)]
StatusRange = Annotated[str, Field(pattern=r"^([1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?)$")]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Basic(_Section):
    username: Annotated[str, Field(pattern=r"^[^:]*$", description="Without a colon.")]
    password: str = Field(repr=False, description="Use {{ secret.NAME }}.")


class Header(_Section):
    name: str = Field(description="Such as X-Api-Key.")
    value: str = Field(repr=False, description="Use {{ secret.NAME }}.")


class Auth(_Section):
    """One of the three."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    bearer: str | None = Field(None, repr=False, description="Sent as Authorization: Bearer … Use {{ secret.NAME }}.")
    basic: Basic | None = Field(None, description="Sent as Authorization: Basic …")
    header: Header | None = Field(None, description="Sent as a header of your choice.")

    @model_validator(mode="after")
    def _is_one(self) -> Auth:
        if len([each for each in (self.bearer, self.basic, self.header) if each is not None]) != 1:
            raise ValueError("give one of bearer, basic and header")
        return self

    @property
    def as_header(self) -> tuple[str, str]:
        if self.header is not None:
            return self.header.name, self.header.value
        if self.basic is not None:
            pair = f"{self.basic.username}:{self.basic.password}".encode()
            return "Authorization", f"Basic {base64.b64encode(pair).decode()}"
        return "Authorization", f"Bearer {self.bearer}"


class HttpConfig(_Section):
    """One HTTP call."""

    model_config = ConfigDict(json_schema_extra={"dependentSchemas": {"body": {"properties": {"json": False}}}})

    method: Method = Field("GET", description="The HTTP method.")
    url: str = Field(description="Where to send it: http:// or https://, without user and password.")
    headers: dict[str, Scalar] = Field(default_factory=dict, repr=False, description="Further request headers.")
    query: dict[str, Scalar | list[Scalar] | None] = Field(
        default_factory=dict,
        description="Added to the URL's query. A list gives its name several times, null leaves it out.",
    )
    json_: Any = Field(
        None, alias="json", repr=False, description="Sent as the JSON body, with its Content-Type. Not with body."
    )
    body: str | None = Field(None, repr=False, description="Sent as the body, as UTF-8 text. Not with json.")
    timeout_seconds: float = Field(
        30, gt=0, le=3600, description="How long the call may take, from the name lookup to the last byte."
    )
    expected_status: StatusNumber | StatusRange | list[StatusNumber | StatusRange] = Field(
        "2xx",
        description="Which answers are a success: a number, a range such as 2xx or 200-204, or a list of them. With a "
        "redirect (such as 302) among them redirects are not followed.",
    )
    auth: Auth | None = Field(None, description="Credentials. They are not sent on to another origin by a redirect.")
    max_response_bytes: int = Field(
        DEFAULT_RESPONSE_BYTES,
        ge=1,
        le=LARGEST_RESPONSE_BYTES,
        description="The largest body that is read, after decompression. MAX_OUTPUT_BYTES limits the whole output.",
    )

    @model_validator(mode="after")
    def _says_it_once(self) -> HttpConfig:
        if self.has_json and self.body is not None:
            raise ValueError("give json or body, not both")
        if self.auth is not None and self.has_header(self.auth.as_header[0]):
            raise ValueError("auth and headers both set the same header")
        return self

    @property
    def has_json(self) -> bool:
        return "json_" in self.model_fields_set

    def has_header(self, name: str) -> bool:
        return name.lower() in map(str.lower, self.headers)

    def expects(self, status: int) -> bool:
        given = self.expected_status
        return any(_covers(each, status) for each in (given if isinstance(given, list) else [given]))


def call_external_service(outbound: Outbound) -> Callable[[HttpConfig, Context], Coroutine[Any, Any, dict[str, Any]]]:
    """The handler, bound to the worker's client."""

    @handler("call_external_service")
    async def call(config: HttpConfig, ctx: Context) -> dict[str, Any]:
        answer = await outbound.send(
            config.method,
            config.url,
            headers=_headers(config, ctx),
            query=config.query,
            content=_content(config),
            timeout_seconds=config.timeout_seconds,
            max_bytes=config.max_response_bytes,
            redirects=0 if any(map(config.expects, range(300, 400))) else MAX_REDIRECTS,
        )
        refuse_status(answer, config.expects)
        headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
        return {"status_code": answer.status, "headers": headers, "body": body_of(answer)}

    return call


def _headers(config: HttpConfig, ctx: Context) -> dict[str, str]:
    headers = {name: _text(value) for name, value in config.headers.items()}
    if config.auth is not None:
        name, value = config.auth.as_header
        headers[name] = value
    if not config.has_header("idempotency-key"):
        headers["Idempotency-Key"] = ctx.idempotency_key
    if ctx.traceparent is not None and not config.has_header("traceparent"):
        headers["traceparent"] = ctx.traceparent
    if not config.has_header("content-type") and (config.has_json or config.body is not None):
        headers["Content-Type"] = "application/json" if config.has_json else "text/plain; charset=utf-8"
    return headers


def _content(config: HttpConfig) -> bytes | None:
    if config.has_json:
        return msgspec.json.encode(config.json_)
    return None if config.body is None else config.body.encode()


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _covers(expected: int | str, status: int) -> bool:
    if isinstance(expected, int):
        return status == expected
    first, _, last = expected.replace("xx", "00").partition("-")
    until = int(last or first) + (99 if expected.endswith("xx") else 0)
    return int(first) <= status <= until
