"""`call_external_service` as a worker runs it: configs as JSON, a real server, outcomes as they are reported."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from headrace.errors import HeadraceError
from headrace.model.messages import Failure, Outcome, Task
from headrace.settings import Settings
from headrace.worker.attempt import Attempts
from headrace.worker.registry import Registry
from tests.hostile_server import Script, Seen, answer, endless, redirect, serving

NAME = "call_external_service"
ENDS_SECONDS = 30
JSON = {"Content-Type": "application/json; charset=utf-8"}


class Calls:
    """Calls the handler with the settings of a worker that may reach loopback."""

    def __init__(self, **settings: Any) -> None:
        self.registry = Registry.load((), Settings(**{"http_allowed_hosts": ("127.0.0.1",), **settings}))
        self.attempts = Attempts(self.registry, concurrency=4, max_output_bytes=1 << 20)

    async def run(self, config: dict[str, Any], *, timeout_seconds: float | None = None, attempt: int = 1) -> Outcome:
        payload = msgspec.json.encode({"config": config, "timeout_seconds": timeout_seconds}).decode()
        async with asyncio.timeout(ENDS_SECONDS):
            return await self.attempts.run(Task("x1", "1", 1, "n", attempt, NAME, payload))

    async def output(self, config: dict[str, Any]) -> dict[str, Any]:
        outcome = await self.run(config)
        assert outcome.output is not None, outcome.failure
        decoded: dict[str, Any] = json.loads(outcome.output)
        return decoded

    async def failure(self, config: dict[str, Any]) -> Failure:
        outcome = await self.run(config)
        assert outcome.failure is not None, outcome.output
        return outcome.failure


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    made = Calls()
    yield made
    await made.attempts.aclose()
    await made.registry.aclose()


# ---- answers


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b'{"a": [1, "\xc3\xa9"]}', JSON, {"a": [1, "é"]}),
        (b"[1]", {"Content-Type": "application/problem+json"}, [1]),
        (b"null", {"Content-Type": "APPLICATION/JSON"}, None),
        (b'{"a": 1}', {"Content-Type": "text/plain"}, '{"a": 1}'),
        (b"{not json", JSON, "{not json"),
        (b"[" * 100_000, JSON, "[" * 100_000),
        (b"9" * 5000, JSON, "9" * 5000),
        (b"", JSON, ""),
        (b"", {}, ""),
        ("häß".encode(), {}, "häß"),
        ("\ufeffx".encode(), {"Content-Type": "text/csv"}, "x"),
        (b"h\xe4", {"Content-Type": "text/plain; charset=ISO-8859-1"}, "hä"),
        (b"h\xe4", {"Content-Type": 'text/plain; x=y; charset="windows-1252"'}, "hä"),
        ("日本".encode("shift_jis"), {"Content-Type": "text/html;charset=Shift_JIS"}, "日本"),
        ("hä".encode("utf-16"), {"Content-Type": "application/xml; charset=utf-16"}, "hä"),
        (b"h\xe4", {"Content-Type": "text/plain"}, "h\ufffd"),
        (b"+AGEAYg-", {"Content-Type": "text/plain; charset=utf-7"}, "+AGEAYg-"),
        (b"abc", {"Content-Type": "text/plain; charset=no-such-thing"}, "abc"),
        (b"abc", {"Content-Type": ";;;=;charset"}, "abc"),
    ],
)
async def test_bodies(calls: Calls, body: bytes, headers: dict[str, str], expected: Any) -> None:
    async with serving(answer(body, headers=headers)) as server:
        assert (await calls.output({"url": server.url}))["body"] == expected


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", {"Content-Type": "image/png"}),
        (b"a\0b", {"Content-Type": "text/plain"}),
        (b"h\xe4", {}),
        (b"\xff\xfe", {"Content-Type": "application/octet-stream"}),
        (b"\xff\xfe{", {"Content-Type": "application/json"}),
    ],
)
async def test_binary_bodies_are_refused(calls: Calls, body: bytes, headers: dict[str, str]) -> None:
    async with serving(answer(body, headers=headers)) as server:
        failure = await calls.failure({"url": server.url})
        assert (failure.code, failure.retryable) == ("fatal", False)
        assert "binary data" in failure.message


async def test_an_output_has_status_headers_and_body(calls: Calls) -> None:
    said = answer('{"ok": true}', status=201, headers={**JSON, "Set-Cookie": "session=secret", "X-Two": "a"})
    async with serving(said) as server:
        assert await calls.output({"url": server.url}) == {
            "status_code": 201,
            "headers": {"content-length": "12", "content-type": JSON["Content-Type"], "x-two": "a"},
            "body": {"ok": True},
        }


@pytest.mark.parametrize("body", [b'{"a": NaN}', b'{"a": 99999999999999999999}', b'{"a": "\\ud800"}', b'"\\u0000"'])
async def test_what_cannot_be_an_output_fails_the_node_alone(calls: Calls, body: bytes) -> None:
    async with serving(answer(body, headers=JSON)) as server:
        failure = await calls.failure({"url": server.url})
        assert (failure.code, failure.retryable) == ("bad_output", False)


async def test_a_body_within_its_default_limit_fits_into_an_output(calls: Calls) -> None:
    async with serving(answer(b"a" * ((1 << 20) - (64 << 10)))) as server:
        assert len((await calls.output({"url": server.url}))["body"]) == (1 << 20) - (64 << 10)
    async with serving(answer(b"a" * 101)) as server:
        failure = await calls.failure({"url": server.url, "max_response_bytes": 100})
        assert "larger than the 100 bytes" in failure.message
        assert not failure.retryable


# ---- statuses


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        (None, [200, 204, 299], [300, 304, 404]),
        (404, [404], [200, 403]),
        ("404", [404], [200]),
        ("4xx", [400, 499], [200]),
        ("200-204", [200, 204], [205]),
        ([200, "404", "410-419"], [200, 404, 410, 419], [201, 420]),
        ([503, "2xx"], [503, 200], [404]),
    ],
)
async def test_expected_status(calls: Calls, expected: Any, good: list[int], bad: list[int]) -> None:
    config = {} if expected is None else {"expected_status": expected}
    for status in (*good, *bad):
        async with serving(answer(status=status)) as server:
            outcome = await calls.run({"url": server.url, **config})
            assert (outcome.output is not None) == (status in good), status


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_busy_server_is_asked_again_when_it_says(calls: Calls, status: int) -> None:
    async with serving(answer("busy", status=status, headers={"Retry-After": "17"})) as server:
        failure = await calls.failure({"url": f"{server.url}/?key=secret"})
        assert (failure.code, failure.retryable, failure.after_seconds) == ("retry", True, 17)
        assert f"answered {status}" in failure.message
        assert "secret" not in failure.message


async def test_half_a_secret_is_not_quoted(calls: Calls) -> None:
    """What the worker redacts are whole values."""
    async with serving(answer("no: " + "x " * 90 + "s3cr3t" * 10, status=400)) as server:
        message = (await calls.failure({"url": server.url})).message
        assert message.endswith("x …")
        assert "s3c" not in message


async def test_a_client_error_is_final(calls: Calls) -> None:
    async with serving(answer("no such thing", status=404)) as server:
        failure = await calls.failure({"url": server.url})
        assert (failure.code, failure.retryable) == ("fatal", False)
        assert failure.message == f"127.0.0.1:{server.port} answered 404 Not Found: no such thing"


async def test_redirects_are_followed_unless_they_are_expected(calls: Calls) -> None:
    async with serving() as target, serving(redirect(f"{target.url}/b")) as server:
        assert (await calls.output({"url": server.url}))["body"] == "hello"
        seen = await calls.output({"url": server.url, "expected_status": [200, 302]})
        assert (seen["status_code"], seen["headers"]["location"]) == (302, f"{target.url}/b")


# ---- requests


async def only_request(calls: Calls, config: dict[str, Any], script: Script | bytes = b"") -> Seen:
    async with serving(script) as server:
        await calls.output({"url": f"{server.url}/p", **config})
        [seen] = server.requests
        return seen


async def test_a_json_body(calls: Calls) -> None:
    seen = await only_request(calls, {"method": "POST", "json": {"a": [1, None, "ü"]}})
    assert json.loads(seen.body) == {"a": [1, None, "ü"]}
    assert seen.headers["content-type"] == "application/json"
    assert (await only_request(calls, {"method": "POST", "json": None})).body == b"null"


async def test_a_text_body(calls: Calls) -> None:
    seen = await only_request(calls, {"method": "PUT", "body": "ü=1", "headers": {"content-TYPE": "text/x"}})
    assert (seen.body, seen.headers["content-type"]) == ("ü=1".encode(), "text/x")
    assert (await only_request(calls, {"body": "a"})).headers["content-type"] == "text/plain; charset=utf-8"


async def test_no_body(calls: Calls) -> None:
    for method in ("GET", "DELETE", "OPTIONS"):
        seen = await only_request(calls, {"method": method})
        assert not {"content-type", "content-length"} & seen.headers.keys()
    assert (await only_request(calls, {"method": "POST"})).headers["content-length"] == "0"
    head = answer(headers={"Content-Length": "5"})
    assert (await only_request(calls, {"method": "HEAD"}, head)).method == "HEAD"


async def test_query_and_headers_take_numbers_and_booleans(calls: Calls) -> None:
    seen = await only_request(
        calls, {"query": {"n": 5, "yes": True, "no": None, "l": [1, "b"]}, "headers": {"X-N": 5, "X-Yes": True}}
    )
    assert seen.target == "/p?n=5&yes=true&l=1&l=b"
    assert (seen.headers["x-n"], seen.headers["x-yes"]) == ("5", "true")


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"bearer": "t0ken"}, "authorization", "Bearer t0ken"),
        (
            {"basic": {"username": "mé", "password": "a:b"}},
            "authorization",
            f"Basic {base64.b64encode('mé:a:b'.encode()).decode()}",
        ),
        ({"header": {"name": "X-Api-Key", "value": "k"}}, "x-api-key", "k"),
    ],
)
async def test_auth(calls: Calls, auth: dict[str, Any], name: str, value: str) -> None:
    assert (await only_request(calls, {"auth": auth})).headers[name] == value


async def test_the_idempotency_key_stays_the_same(calls: Calls) -> None:
    async with serving() as server:
        for attempt in (1, 2):
            await calls.run({"url": server.url}, attempt=attempt)
        await calls.run({"url": server.url, "headers": {"idempotency-KEY": "mine"}})
        assert [seen.headers["idempotency-key"] for seen in server.requests] == ["x1:1:n", "x1:1:n", "mine"]
        assert server.requests[0].headers["user-agent"].startswith("headrace/")
        assert server.connections == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "url"),
        ({"url": "x", "json": 1, "body": "a"}, "give json or body, not both"),
        ({"url": "x", "metod": "GET"}, "metod"),
        ({"url": "x", "method": "FETCH"}, "method"),
        ({"url": "x", "timeout_seconds": 0}, "timeout_seconds"),
        ({"url": "x", "timeout_seconds": -1}, "timeout_seconds"),
        ({"url": "x", "max_response_bytes": 0}, "max_response_bytes"),
        ({"url": "x", "max_response_bytes": 1 << 40}, "max_response_bytes"),
        ({"url": "x", "expected_status": "2yy"}, "expected_status"),
        ({"url": "x", "expected_status": 99}, "expected_status"),
        ({"url": "x", "expected_status": True}, "expected_status"),
        ({"url": "x", "auth": {}}, "give one of bearer, basic and header"),
        ({"url": "x", "auth": {"bearer": "s3cret", "header": {"name": "a", "value": "b"}}}, "give one of"),
        ({"url": "x", "auth": {"basic": {"username": "a:b", "password": "s3cret"}}}, "username"),
        ({"url": "x", "auth": {"bearer": "s3cret"}, "headers": {"authorization": "s3cret"}}, "the same header"),
        ({"url": "x", "headers": {"a": ["s3cret"]}}, "headers"),
    ],
)
async def test_configs_that_are_refused(calls: Calls, config: dict[str, Any], told: str) -> None:
    failure = await calls.failure(config)
    assert failure.code == "bad_config"
    assert told in failure.message
    assert "s3cret" not in failure.message


@pytest.mark.parametrize(
    "config",
    [
        {"url": "https://user:s3cret@a.test/"},
        {"url": "https://a.test:s3cret/"},
        {"url": "s3cret"},
        {"url": "https://s3cret%/"},
        {"url": "http://127.0.0.1:1/s3cret?s3cret=s3cret#s3cret"},
        {"url": "http://10.0.0.1/s3cret?s3cret=s3cret#s3cret"},
        {"url": "http://127.0.0.1:1/", "headers": {"X-A": "s3cret\n"}},
        {"url": "http://127.0.0.1:1/", "auth": {"bearer": "s3cret\r\nX: y"}},
        {"url": "http://127.0.0.1:1/", "auth": {"header": {"name": "X-A", "value": "s3cret\0"}}},
        {"url": "http://127.0.0.1:1/", "query": {"a": "s3cret\n"}, "body": "s3cret", "method": "POST"},
    ],
)
async def test_messages_do_not_quote_what_may_be_secret(calls: Calls, config: dict[str, Any]) -> None:
    failure = await calls.failure(config)
    assert failure.message
    assert "s3cret" not in failure.message


# ---- the worker


async def test_loopback_is_refused_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server:
        for settings, reached in (
            ({"http_allowed_hosts": ()}, False),
            ({"http_allowed_hosts": ("localhost",)}, False),
            ({"http_allowed_hosts": (f"127.0.0.1:{server.port}",)}, True),
            ({"http_allowed_hosts": (), "http_allow_private": True}, True),
        ):
            calls = Calls(**settings)
            outcome = await calls.run({"url": server.url})
            assert (outcome.output is not None) == reached
            await calls.registry.aclose()
        assert server.connections == 2
    monkeypatch.setenv("HTTP_ALLOWED_HOSTS", "http://no")
    with pytest.raises(HeadraceError, match="HTTP_ALLOWED_HOSTS"):
        Registry.load()


@pytest.mark.parametrize("how", ["cancelled", "timed out by the node", "timed out by the config"])
async def test_a_call_that_is_stopped_closes_its_connection(calls: Calls, how: str) -> None:
    script = endless(b"HTTP/1.1 200 OK\r\n\r\n", b".", pause_seconds=0.01)
    async with serving(script) as server:
        config = {"url": server.url, "timeout_seconds": 0.1 if how.endswith("config") else 30}
        node_timeout = 0.1 if how.endswith("node") else None
        call = asyncio.ensure_future(calls.run(config, timeout_seconds=node_timeout))
        await asyncio.wait_for(server.came.wait(), ENDS_SECONDS)
        if how == "cancelled":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            failure = (await call).failure
            assert failure is not None
            assert failure.retryable
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)


async def test_closing_the_registry_closes_idle_connections(calls: Calls) -> None:
    async with serving() as server:
        await calls.output({"url": server.url})
        assert not server.gone.is_set()
        await calls.registry.aclose()
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)
        await calls.output({"url": server.url})  # and it can be used again


def test_loading_handlers_does_not_import_the_http_library() -> None:
    code = (
        "import sys; from headrace.worker.registry import Registry; Registry.load()\n"
        "print(sorted({'httpx2', 'httpcore2', 'anyio', 'h11'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_every_field_is_described() -> None:
    schema = Registry.load().get(NAME).config_schema
    assert schema is not None
    assert set(schema["properties"]) == {
        *("method", "url", "headers", "query", "json", "body", "timeout_seconds", "expected_status", "auth"),
        "max_response_bytes",
    }
    assert all(field.get("description") for field in schema["properties"].values())
    assert schema["additionalProperties"] is False
