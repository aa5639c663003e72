"""`llm_service` through its real handler function and the real client, against a real server on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Fatal, Retry
from headrace.settings import Settings
from headrace.testing import context, run_workflow
from headrace.worker.handlers.llm import LlmConfig, llm_service
from headrace.worker.registry import describe
from tests.llm_server import (
    USAGE,
    LlmServer,
    Reply,
    as_json,
    chunk,
    completion,
    error,
    event,
    llm_server,
    stream,
    usage_chunk,
)

KEY = "sk-test-0123456789"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}

Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    async with llm_server() as served:
        yield served


@pytest.fixture
async def other() -> AsyncIterator[LlmServer]:
    async with llm_server() as served:
        yield served


@pytest.fixture
async def asking() -> AsyncIterator[Callable[..., Ask]]:
    """Makes a function that calls the handler of a worker with these settings."""
    async with AsyncExitStack() as stack:

        def make(**settings: Any) -> Ask:
            service = llm_service(Settings(**settings))
            stack.push_async_callback(service.aclose)

            async def ask(**config: Any) -> dict[str, Any]:
                return await service.handler(LlmConfig.model_validate({"model": "m", **config}), context())

            return ask

        yield make


@pytest.fixture
def ask(asking: Callable[..., Ask], server: LlmServer) -> Ask:
    return asking(openai_base_url=server.base_url, openai_api_key=KEY)


# The request and a plain answer


async def test_a_prompt_is_answered(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion("Hi there"))
    assert await ask(prompt="Hi") == {
        "text": "Hi there",
        "model": "served-model",
        "usage": USAGE,
        "finish_reason": "stop",
    }
    assert server.last.path == "/v1/chat/completions"
    assert server.last.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert server.last.headers["authorization"] == f"Bearer {KEY}"
    assert server.last.headers["content-type"] == "application/json"
    assert server.last.headers["idempotency-key"] == "test:1:node"


async def test_everything_that_a_node_says_is_sent(ask: Ask, server: LlmServer) -> None:
    picture = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    await ask(
        system="Be brief",
        messages=[{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": picture}],
        temperature=0.5,
        max_tokens=99,
        extra={"seed": 7, "stop": ["\n"]},
    )
    assert server.last.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": picture},
        ],
        "temperature": 0.5,
        "max_tokens": 99,
        "seed": 7,
        "stop": ["\n"],
    }


@pytest.mark.parametrize("given", [{}, {"usage": None}, {"usage": {"prompt_tokens": "many"}}, {"usage": [1]}])
async def test_usage_is_zero_where_the_server_gives_none(ask: Ask, server: LlmServer, given: dict[str, Any]) -> None:
    server.will_reply(as_json({"choices": [{"message": {"content": "x"}}], **given}))
    answer = await ask(prompt="Hi")
    assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert answer["model"] == "m"  # the server does not say, so the one that was asked for


async def test_the_total_is_the_sum_where_only_that_is_missing(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion("x", usage={"prompt_tokens": 2, "completion_tokens": 3}))
    assert (await ask(prompt="Hi"))["usage"]["total_tokens"] == 5


async def test_an_answer_that_was_cut_off_is_still_a_text(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion("Once upon", finish_reason="length"))
    answer = await ask(prompt="Hi", max_tokens=2)
    assert (answer["text"], answer["finish_reason"]) == ("Once upon", "length")


async def test_the_connection_is_used_again(ask: Ask, server: LlmServer) -> None:
    for _ in range(3):
        assert (await ask(prompt="Hi"))["text"] == "hello"
    assert len(server.requests) == 3


# JSON


async def test_json_mode(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion(' {"a": [1, null]}\n'))
    answer = await ask(prompt="Hi", response_format="json")
    assert answer["json"] == {"a": [1, None]}
    assert answer["text"] == ' {"a": [1, null]}\n'
    assert server.last.body["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '```json\n{"name": "Ada", "age": 36}\n```',
        '```\n{"name": "Ada", "age": 36}```',
        'Here it is:\n```json\n{"name": "Ada", "age": 36}\n```\nAnything else?',
    ],
)
async def test_an_answer_that_fits_its_schema(ask: Ask, server: LlmServer, text: str) -> None:
    server.will_reply(completion(text))
    assert (await ask(prompt="Who?", json_schema=PERSON))["json"] == {"name": "Ada", "age": 36}
    assert server.last.body["response_format"]["json_schema"] == {"name": "answer", "schema": PERSON}


async def test_the_protocols_own_response_format_is_sent_and_checked(ask: Ask, server: LlmServer) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    server.will_reply(completion('{"name": "Ada", "age": 36}'), completion('{"name": "Ada"}'))
    assert (await ask(prompt="Who?", response_format=asked))["json"]["age"] == 36
    assert server.last.body["response_format"] == asked
    with pytest.raises(Retry, match='"age" is a required property'):
        await ask(prompt="Who?", response_format=asked)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": "Ada", "age": "old"}', 'does not fit json_schema: age: "old" is not of type "integer"'),
        ('{"name": "Ada"}', 'the whole of it: "age" is a required property'),
        ("Ada, 36", "the answer is not JSON: .* It begins with: Ada, 36"),
        ("", "the answer is not JSON"),
        ("```json\nAda\n```", "the answer is not JSON"),
        ("[" * 100_000, "the answer is not JSON"),
        ('{"name": "Ada", "age": 123456789012345678901234567890}', "cannot be stored: its json.age is an integer"),
    ],
)
async def test_an_answer_that_does_not_fit_is_worth_another_attempt(
    ask: Ask, server: LlmServer, text: str, told: str
) -> None:
    server.will_reply(completion(text))
    with pytest.raises(Retry, match=told) as caught:
        await ask(prompt="Who?", json_schema=PERSON)
    assert len(str(caught.value)) < 400


async def test_a_long_answer_is_not_repeated_in_the_error(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion(json.dumps({"name": ["x" * 100_000], "age": 1})))
    with pytest.raises(Retry, match=r'is not of type "string"$') as caught:
        await ask(prompt="Who?", json_schema=PERSON)
    assert len(str(caught.value)) < 400


async def test_json_that_was_cut_off_says_why(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion('{"name": "A', finish_reason="length"))
    with pytest.raises(Retry, match=r"max_tokens \(5\) cut the answer off"):
        await ask(prompt="Who?", json_schema=PERSON, max_tokens=5)
    with pytest.raises(Retry, match="the server's limit of tokens cut the answer off"):
        await ask(prompt="Who?", json_schema=PERSON)


# Answers that are none


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (completion(None, message={"refusal": "I cannot help with that"}), Fatal, "refused: I cannot help with that"),
        (completion("par", finish_reason="content_filter"), Fatal, "content filter"),
        (completion(None, message={"tool_calls": [{"id": "1"}]}, finish_reason="tool_calls"), Fatal, "runs no tools"),
        (completion("", finish_reason="length"), Retry, "cut the answer off"),
        (completion("a\0b"), Retry, "cannot be stored: its text contains a NUL"),
        (as_json({"choices": []}), Retry, "no choices"),
        (as_json({"hello": "world"}), Retry, "no choices"),
        (as_json({"choices": [{"message": {"content": 5}}]}), Fatal, "not a chat completion: Expected"),
        (as_json([1, 2]), Fatal, "not a chat completion"),
        (as_json({"error": {"message": "provider is down", "code": 502}}), Retry, "error: provider is down"),
        (as_json({"error": {"message": "no such voice", "code": 400}}), Fatal, "error: no such voice"),
        (as_json({"error": "out of memory"}), Retry, "error: out of memory"),
        (Reply(200, {"content-type": "text/html"}, [b"<html>login</html>"]), Retry, "not JSON.*base URL"),
        (Reply(200, {"content-type": "application/json"}, [b'{"choices": [{"mess']), Retry, "not JSON"),
        (Reply(200, {"content-type": "application/json"}, [b"\xff\xfe"]), Retry, "not JSON"),
        (Reply(200, {"content-type": "application/json"}, [b'{"error": ' + b"[" * 100_000]), Retry, "not JSON"),
        (Reply(200, {"content-type": "application/json"}, [b" " * (1 << 20)] * 9), Fatal, "larger than"),
        (Reply(200, {"content-type": "application/json"}, [b'{"choices": ['], is_cut=True), Retry, "proper HTTP"),
    ],
)
async def test_what_is_not_an_answer(
    ask: Ask, server: LlmServer, reply: Reply, kind: type[Exception], told: str
) -> None:
    server.will_reply(reply)
    with pytest.raises(kind, match=told):
        await ask(prompt="Hi")


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_overload_is_retried_when_the_server_says(ask: Ask, server: LlmServer, status: int) -> None:
    server.will_reply(error(status, "slow down").with_headers(retry_after="7"), error(status, "slow down"))
    with pytest.raises(Retry, match=f"answered {status}: slow down") as caught:
        await ask(prompt="Hi")
    assert caught.value.after == 7
    with pytest.raises(Retry) as caught:
        await ask(prompt="Hi")
    assert caught.value.after is None


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (error(401, "Incorrect API key"), "answered 401: Incorrect API key; check OPENAI_API_KEY"),
        (error(403, "no"), "answered 403: no; check OPENAI_API_KEY"),
        (error(404, "The model does not exist"), "The model does not exist; there is no model m there"),
        (error(400, "bad temperature"), "answered 400: bad temperature$"),
        (as_json({"detail": [{"msg": "field required"}]}, 422), "answered 422: field required$"),
        (Reply(400, {}, [b"<html>" + b"x" * 9000]), "answered 400$"),
        (Reply(204), "answered 204$"),
    ],
)
async def test_other_refusals_are_final(ask: Ask, server: LlmServer, reply: Reply, told: str) -> None:
    server.will_reply(reply)
    with pytest.raises(Fatal, match=told):
        await ask(prompt="Hi")


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_key_is_never_repeated_and_a_message_is_short(ask: Ask, server: LlmServer, status: int) -> None:
    for place in (0, 290):  # also where the message is cut
        server.will_reply(error(status, "x" * place + f"{KEY} is wrong! " + "x" * 5000))
        with pytest.raises((Retry, Fatal), match=r"\[key\] is") as caught:
            await ask(prompt="Hi")
        assert KEY[:6] not in str(caught.value)
        assert len(str(caught.value)) < 600


async def test_a_refusal_cannot_repeat_a_key_either(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion(None, message={"refusal": f"not with {KEY}"}))
    with pytest.raises(Fatal, match=r"not with \[key\]"):
        await ask(prompt="Hi")


async def test_a_server_that_is_not_there(asking: Callable[..., Ask]) -> None:
    async with llm_server() as gone:
        url = gone.base_url
    with pytest.raises(Retry):
        await asking(openai_base_url=url)(prompt="Hi")


async def test_a_server_that_takes_too_long(ask: Ask, server: LlmServer) -> None:
    server.will_reply(stream([b": still there\n\n"] * 100_000))
    with pytest.raises(Retry, match=r"did not answer within 0\.05 seconds"):
        await ask(prompt="Hi", stream=True, timeout_seconds=0.05)


# Streams

STORY = [chunk(""), chunk("Grüße "), chunk("an 🌍\u2028"), chunk("!"), chunk(None, "stop"), usage_chunk()]
DONE = event("[DONE]")
TOLD = {"text": "Grüße an 🌍\u2028!", "model": "served-model", "usage": USAGE, "finish_reason": "stop"}


@pytest.mark.parametrize("split_bytes", [None, 1, 2, 3, 7, 64])
async def test_a_stream_is_put_together(ask: Ask, server: LlmServer, split_bytes: int | None) -> None:
    server.will_reply(stream([*STORY, DONE], split_bytes=split_bytes))
    assert await ask(prompt="Hi", stream=True) == TOLD
    assert server.last.body["stream"] is True
    assert server.last.body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "events",
    [
        [b": OPENROUTER PROCESSING\n\n", *STORY, b":\n\n", DONE],
        [each.replace(b"\n", b"\r\n") for each in [*STORY, DONE]],
        [each.replace(b"\n", b"\r") for each in [*STORY, DONE]],
        [each.replace(b"data: ", b"id: 4\nevent: x\ndata:") for each in [*STORY, DONE]],
        [event('{"choices": [], "prompt_filter_results": []}'), *STORY, DONE],
        [event('{"choices": [{"index": 1, "delta": {"content": "other"}}]}'), *STORY, DONE],
        STORY,  # no [DONE], but the answer has its end
        [*STORY, DONE.rstrip()],
        [*STORY, DONE, b"data: anything"],
    ],
    ids=[
        "comments",
        "crlf",
        "cr",
        "other fields",
        "no choices",
        "other choice",
        "no done",
        "no last line",
        "after done",
    ],
)
async def test_streams_as_servers_send_them(ask: Ask, server: LlmServer, events: list[bytes]) -> None:
    server.will_reply(stream(events))
    assert await ask(prompt="Hi", stream=True) == TOLD


async def test_a_streamed_answer_is_checked_as_any_other(ask: Ask, server: LlmServer) -> None:
    server.will_reply(stream([chunk('{"name": "Ada",'), chunk('"age": 36}'), DONE]), stream([chunk("{"), DONE]))
    assert (await ask(prompt="Hi", stream=True, json_schema=PERSON))["json"] == {"name": "Ada", "age": 36}
    with pytest.raises(Retry, match="not JSON"):
        await ask(prompt="Hi", stream=True, json_schema=PERSON)


async def test_a_server_decides_itself_whether_it_streams(ask: Ask, server: LlmServer) -> None:
    server.will_reply(completion("whole"), stream([*STORY, DONE]), Reply(200, {}, [*STORY, DONE]))
    assert (await ask(prompt="Hi", stream=True))["text"] == "whole"
    assert await ask(prompt="Hi") == TOLD
    assert await ask(prompt="Hi", stream=True) == TOLD


@pytest.mark.parametrize(
    ("events", "kind", "told"),
    [
        ([chunk("Once"), event('{"error": {"message": "overloaded"}}')], Retry, "error: overloaded"),
        ([chunk("Once"), event('{"error": {"message": "no", "code": 403}}')], Fatal, "error: no"),
        ([chunk("Once upon")], Retry, "before the answer was complete"),
        ([chunk("Once upon")[:-8]], Retry, "not JSON"),
        ([], Retry, "before an answer came"),
        ([usage_chunk(), DONE], Retry, "no choices"),
        ([b"data: \xff\n\n"], Retry, "not UTF-8"),
        ([event("hello")], Retry, "not JSON"),
        ([event("5")], Fatal, "not a chat completion"),
        ([event('{"choices": [{"delta": {"refusal": "I can"}}]}'),
          event('{"choices": [{"delta": {"refusal": "not"}, "finish_reason": "stop"}]}')], Fatal, "refused: I cannot"),
    ],
)  # fmt: skip
async def test_broken_streams(
    ask: Ask, server: LlmServer, events: list[bytes], kind: type[Exception], told: str
) -> None:
    server.will_reply(stream(events))
    with pytest.raises(kind, match=told):
        await ask(prompt="Hi", stream=True)


async def test_a_stream_whose_connection_breaks(ask: Ask, server: LlmServer) -> None:
    server.will_reply(stream([chunk("Once upon")], is_cut=True))
    with pytest.raises(Retry):
        await ask(prompt="Hi", stream=True)


# Keys, hosts and providers


async def test_a_key_goes_only_to_its_own_origin(
    asking: Callable[..., Ask], server: LlmServer, other: LlmServer
) -> None:
    ask = asking(
        openai_base_url=server.base_url,
        openai_api_key=KEY,
        llm_providers={"other": {"base_url": other.base_url, "api_key": "sk-of-the-other"}},
        http_allow_private=True,
    )
    await ask(model="m", prompt="Hi")
    await ask(model="other/m", prompt="Hi")
    await ask(model="m", prompt="Hi", base_url=other.base_url)  # neither key: it is not this provider's address
    await ask(model="other/m", prompt="Hi", base_url=server.base_url)
    await ask(model="other/m", prompt="Hi", base_url=server.base_url, api_key="sk-of-the-node")
    await ask(model="m", prompt="Hi", base_url=f"{server.origin}/v2/")
    assert [each.headers.get("authorization") for each in server.requests] == [
        f"Bearer {KEY}",
        None,
        "Bearer sk-of-the-node",
        f"Bearer {KEY}",
    ]
    assert [each.headers.get("authorization") for each in other.requests] == ["Bearer sk-of-the-other", None]
    assert server.last.path == "/v2/chat/completions"
    assert {each.body["model"] for each in (*server.requests, *other.requests)} == {"m"}


async def test_a_redirect_is_not_followed(ask: Ask, server: LlmServer, other: LlmServer) -> None:
    server.will_reply(Reply(307, {"location": f"{other.base_url}/chat/completions"}))
    with pytest.raises(Fatal, match=r"answered 307, a redirect to http://127.0.0.1:.*: it is not followed"):
        await ask(prompt="Hi")
    assert other.requests == []


async def test_a_base_url_of_a_node_passes_the_address_guard(ask: Ask, server: LlmServer, other: LlmServer) -> None:
    await ask(prompt="Hi")  # the operator's own address may be private
    await ask(prompt="Hi", base_url=f"{server.origin}/v3")
    for url in (other.base_url, f"http://localhost:{server.port}/v1", f"http://127.1:{server.port}/v1"):
        with pytest.raises(Fatal, match="loopback address"):
            await ask(prompt="Hi", base_url=url, api_key="sk-of-the-node")
    assert other.requests == []
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "url", ["ftp://host/v1", "host/v1", "https://", "https://u:p@host/v1", "https://host/v1?x=1", "http://[::1/", ""]
)
async def test_a_base_url_that_is_none(ask: Ask, url: str) -> None:
    with pytest.raises(Fatal, match="base_url must be an address"):
        await ask(prompt="Hi", base_url=url)


async def test_a_refused_key_names_what_to_set(asking: Callable[..., Ask], server: LlmServer) -> None:
    server.will_reply(error(401, "no key"))
    keyless = asking(openai_base_url=server.base_url, http_allow_private=True)
    with pytest.raises(Fatal, match="no key was sent: set OPENAI_API_KEY"):
        await keyless(prompt="Hi")
    with pytest.raises(Fatal, match="check the node's api_key"):
        await keyless(prompt="Hi", api_key="sk-of-the-node")
    local = asking(llm_providers={"local": {"base_url": server.base_url, "api_key": KEY}}, http_allow_private=True)
    with pytest.raises(Fatal, match="check LLM_LOCAL_API_KEY"):
        await local(prompt="Hi", model="local/m")
    with pytest.raises(Fatal, match="OPENAI_API_KEY does not belong to this base_url"):
        await local(prompt="Hi", base_url=server.base_url)


async def test_an_alias_leads_to_a_provider(asking: Callable[..., Ask], server: LlmServer) -> None:
    ask = asking(llm_aliases="fast=local/llama3.2:1b,test=echo", llm_providers={"local": {"base_url": server.base_url}})
    assert (await ask(model="fast", prompt="Hi"))["text"] == "hello"
    assert server.last.body["model"] == "llama3.2:1b"
    assert (await ask(model="test", prompt="Hi"))["model"] == "echo"


async def test_an_unusable_key_is_not_repeated(asking: Callable[..., Ask], server: LlmServer) -> None:
    ask = asking(openai_base_url=server.base_url, openai_api_key="sk-wrong\nx-evil: 1")
    with pytest.raises(Fatal) as caught:
        await ask(prompt="Hi")
    assert "sk-wrong" not in str(caught.value)
    assert server.requests == []


def test_the_handler_is_described() -> None:
    found = describe(llm_service(Settings()).handler)
    assert (found.name, found.is_async, found.takes_context, found.config_model) == (
        "llm_service",
        True,
        True,
        LlmConfig,
    )
    assert found.config_schema is not None
    assert all("description" in each for each in found.config_schema["properties"].values())


# The page in docs/how-to

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "llm.md").read_text()
DEFINITIONS = dict(re.findall(r"```yaml\n# (\w+)\.yaml\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("ask", {"text": "Write one sentence about rivers.", "tokens": 13}),
        ("classify", {"kind": "defect", "urgency": 1}),
        ("decided", {"kind": "praise"}),
    ],
)
def test_the_definitions_of_the_page_run_offline(name: str, output: dict[str, Any]) -> None:
    result = run_workflow(DEFINITIONS[name])
    assert (result.error, result.output) == (None, output)


def test_the_page_has_no_other_definitions() -> None:
    assert set(DEFINITIONS) == {"ask", "classify", "decided"}
