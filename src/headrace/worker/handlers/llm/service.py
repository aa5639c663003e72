"""The handler: asks an endpoint, and makes an output of its answer or an error that says what to do.

There are two clients, so that a connection that was opened to an origin the operator trusts, perhaps a private one, is
never used for an address that a definition gave. Redirects are not followed: a key never travels on.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.errors import Fatal, Retry
from headrace.model.payload import dotted, flaws, shown
from headrace.settings import ECHO_MODEL, Settings
from headrace.worker.handlers.llm import echo, models
from headrace.worker.handlers.llm.completion import Completion, is_transient, read, told_in
from headrace.worker.handlers.llm.config import LlmConfig, request_body
from headrace.worker.handlers.llm.models import Endpoint
from headrace.worker.handlers.llm.structured import json_answer
from headrace.worker.outbound import Answer, Outbound, retry_after_seconds
from headrace.worker.registry import Context, handler

MAX_BYTES = 8 << 20
MAX_STREAM_BYTES = 32 << 20  # a token is a few characters, and some 300 bytes when it is streamed
MIN_KEY_CHARS = 8  # a shorter key is a placeholder for a server that wants none, and may be any word


class LlmService:
    """Owns the connections of `llm_service`; close it when the worker ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guarded = Outbound(allow_private=settings.http_allow_private, allowed_hosts=settings.http_allowed_hosts)
        self._trusted = Outbound(allowed_hosts=models.trusted_hosts(settings))

        @handler("llm_service")
        async def complete(config: LlmConfig, ctx: Context) -> dict[str, Any]:
            """One chat completion on an OpenAI-compatible endpoint, or on the built-in model echo."""
            return await self._complete(config, ctx)

        self.handler = complete

    async def aclose(self) -> None:
        try:
            await self._guarded.aclose()
        finally:
            await self._trusted.aclose()

    async def _complete(self, config: LlmConfig, ctx: Context) -> dict[str, Any]:
        model = models.resolved(self._settings, config.model)
        if model == ECHO_MODEL:
            return output(config, echo.complete(config), ECHO_MODEL)
        endpoint = models.endpoint(self._settings, model, config.base_url, config.api_key)
        answer = _hidden(endpoint.api_key, await self._ask(config, endpoint, ctx))
        if answer.status != 200:
            raise refusal(answer, endpoint)
        return output(config, read(answer.content, answer.headers.get("content-type", "")), endpoint.model)

    async def _ask(self, config: LlmConfig, endpoint: Endpoint, ctx: Context) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if config.stream else "application/json",
            "Idempotency-Key": ctx.idempotency_key,
        }
        if ctx.traceparent is not None:
            headers["traceparent"] = ctx.traceparent
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        client = self._trusted if endpoint.is_trusted else self._guarded
        return await client.send(
            "POST",
            endpoint.url,
            headers=headers,
            content=msgspec.json.encode(request_body(config, endpoint.model, endpoint.origin)),
            timeout_seconds=config.timeout_seconds,
            max_bytes=MAX_STREAM_BYTES if config.stream else MAX_BYTES,
            redirects=0,
        )


def llm_service(settings: Settings) -> LlmService:
    return LlmService(settings)


def refusal(answer: Answer, endpoint: Endpoint) -> Retry | Fatal:
    """What to raise for a status other than 200."""
    status = answer.status
    words = told_in(answer.content)
    message = f"{endpoint.origin} answered {status}" + (f": {words}" if words else "")
    if is_transient(status):
        return Retry(message, after=retry_after_seconds(answer.headers, datetime.now(UTC)))
    if 300 <= status < 400:
        place = shown(answer.headers.get("location", "elsewhere"))
        message = f"{message}, a redirect to {place}: it is not followed, for a key must not travel. Fix the base URL"
    elif status in (401, 403):
        message = f"{message}; {endpoint.key_hint}"
    elif status == 404:
        message = f"{message}; there is no model {shown(endpoint.model)} there, or the base URL is wrong"
    return Fatal(message)


def output(config: LlmConfig, completion: Completion, model: str) -> dict[str, Any]:
    """The node's output; raises Retry or Fatal where the answer is not what was asked for."""
    _check_is_answer(config, completion)
    text = completion.text
    given: dict[str, Any] = {"text": text}
    if config.wants_json:
        given["json"] = json_answer(text, config.schema_given)
    given["model"] = completion.model or model
    given |= {"usage": completion.tokens, "finish_reason": completion.finish_reason}
    for flaw in flaws(given):
        raise Retry(f"the answer cannot be stored: its {dotted(flaw.loc)} {flaw.message}")
    return given


def _check_is_answer(config: LlmConfig, completion: Completion) -> None:
    reason = completion.finish_reason
    if completion.refusal:
        raise Fatal(f"the model refused: {shown(completion.refusal, 300)}")
    if reason == "content_filter":
        raise Fatal("the server's content filter stopped the answer (finish_reason content_filter)")
    if completion.calls_tools and not completion.text:
        raise Fatal("the model answered with tool calls, and llm_service runs no tools")
    if reason == "length" and (config.wants_json or not completion.text):
        limit = f"max_tokens ({config.max_tokens})" if config.max_tokens else "the server's limit of tokens"
        raise Retry(f"{limit} cut the answer off before it was complete: allow more with max_tokens")


def _hidden(key: str | None, answer: Answer) -> Answer:
    """The answer without the key: servers repeat it in their error messages. Done before anything is shortened."""
    if key is None or len(key) < MIN_KEY_CHARS:
        return answer
    headers = {name: value.replace(key, "[key]") for name, value in answer.headers.items()}
    return replace(answer, headers=headers, content=answer.content.replace(key.encode(), b"[key]"))
