"""Whatever comes in, no answer is a 5xx, every refusal is a problem document, and the server goes on."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.api.bodies import MAX_VALUES
from tests.acceptance.api.client import Api, greeting, problem
from tests.acceptance.api.conftest import Served
from tests.roles import node

MIB = 1 << 20
NOBODY = "0198c0de-0000-7000-8000-000000000001"
WITH_BODY = ("/v1/workflow", "/v1/validate", "/v1/executions", "/v1/dlq/retry")


@pytest.fixture
async def quiet(served: Served) -> AsyncIterator[Api]:
    """An API without roles: nothing that comes in here may run."""
    async with served(works=False) as opened:
        yield opened


def in_a_config(value: bytes) -> bytes:
    return b'{"name": "x", "nodes": [{"id": "a", "handler": "input", "config": {"value": ' + value + b"}}]}"


def in_input(value: bytes) -> bytes:
    return b'{"workflow": "greeting", "input_params": {"value": ' + value + b"}}"


MALFORMED = {
    "nothing": b"",
    "space": b" \r\n\t",
    "half an object": b'{"name": ',
    "two values": b"{} {}",
    "a comment": b"{/* */}",
    "single quotes": b"{'name': 'x'}",
    "a trailing comma": b'{"name": "x",}',
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "UTF-32": '{"name": "x"}'.encode("utf-32"),
    "Latin-1": b'{"name": "\xe4"}',
    "an overlong form": b'{"name": "\xc0\xae"}',
    "an encoded surrogate": b'{"name": "\xed\xa0\x80"}',
    "a raw NUL": b'{"name": "\x00"}',
    "a raw line break": b'{"name": "a\nb"}',
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "closed nested lists": b"[" * 100_000 + b"]" * 100_000,
    "a key twice": b'{"name": "x", "name": "y"}',
    "a key twice inside": in_a_config(b'{"a": 1, "a": 2}'),
    "a key twice, once in disguise": b'{"name": "x", "na\\u006de": "y"}',
    "a number with a zero before it": in_a_config(b"01"),
    "a number with a plus": in_a_config(b"+1"),
    "a number in hex": in_a_config(b"0x1"),
    "half a number": in_a_config(b"1."),
    "Python": in_a_config(b"None"),
    "a number of many digits": in_a_config(b"9" * 10_000),
    "an escape that is none": b'{"name": "\\x41"}',
    "half an escape": b'{"name": "\\u12"}',
    "a gzip header": b"\x1f\x8b\x08\x00\x00\x00",
    "a form": b"name=x&nodes=y",
}
INVALID = {
    "null": b"null",
    "a number": b"1",
    "a text": b'"definition"',
    "a list": b"[]",
    "nothing in it": b"{}",
    "a byte order mark, which is read over": b'\xef\xbb\xbf{"name": "x"}',
    "other fields": b'{"__proto__": {}, "constructor": 1, "\\u0000": 2, "\\ud800": 3}',
    "a name with NUL": b'{"name": "a\\u0000b", "nodes": []}',
    "a name of half a pair": b'{"name": "\\ud800", "nodes": []}',
    "a name that reads from the right": b'{"name": "a\\u202eb", "nodes": []}',
    "a name with nothing in it": b'{"name": "a\\u200bb", "nodes": []}',
    "a name in full width": '{"name": "ａ１", "nodes": []}'.encode(),
    "a name that ends a line": b'{"name": "a\\n", "nodes": []}',
    "a pair the wrong way round": in_a_config(b'"\\ude00\\ud83d"'),
    "NaN": in_a_config(b"NaN"),
    "infinity": in_a_config(b"-Infinity"),
    "a float beyond all": in_a_config(b"1e999"),
    "an integer beyond 64 bits": in_a_config(b"18446744073709551616"),
    "half a pair": in_a_config(b'"\\udfff"'),
    "NUL": in_a_config(b'"\\u0000"'),
    "a key with NUL": in_a_config(b'{"\\u0000": 1}'),
    "deep": in_a_config(b"[" * 90 + b"]" * 90),
    "nodes of all kinds": b'{"name": "x", "nodes": [null, 1, "a", [], {}, {"id": 1}, {"id": "a", "handler": []}]}',
    "numbers as limits": b'{"name": "x", "timeout_seconds": 1e400, "nodes": [{"id": "a", "handler": "input"}]}',
    "a template bomb": in_a_config(b'"{{ [0] * 99999999999 }}"'),
    "an unclosed template": in_a_config(b'"{{ "'),
    "a schema with a slow pattern": b'{"name": "x", "inputs": {"a": {"pattern": "(((a+)+)+)+$", "$ref": "file:///etc"}}}',
    "NaN as input": in_input(b"NaN"),
    "a long number as input": in_input(b"99999999999999999999"),
    "NUL as input": in_input(b'"\\u0000"'),
    "half a pair as input": in_input(b'"\\ud800"'),
    "a key with NUL as input": in_input(b'{"\\u0000": 1}'),
    "a float beyond all as input": in_input(b"-1e999"),
    "deep input": in_input(b"[" * 90 + b"]" * 90),
}


@pytest.mark.parametrize("path", WITH_BODY)
async def test_the_corpus(quiet: Api, path: str) -> None:
    await quiet.service.submit(_greeting(), actor="test")
    for name, body in MALFORMED.items():
        if path.endswith("retry") and not body.strip():
            continue  # this body may be left out
        answer = await quiet.http.post(path, content=body)
        assert answer.status_code == 400, (name, answer.text)
        problem(answer, 400, "malformed_body")
    for name, body in INVALID.items():
        answer = await quiet.http.post(path, content=body)
        harmless = path.endswith("retry") and name == "nothing in it"
        assert answer.status_code == (202 if harmless else 422), (name, answer.text)
        if not harmless:
            assert problem(answer, 422, answer.json()["code"])["errors"], name
    assert [each["status"] for each in (await quiet.get("/v1/executions"))["items"]] == ["PENDING"]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_the_corpus_as_yaml(quiet: Api) -> None:
    bombs = [
        b"a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\n" + b"d: [*c, *c]\n" * 2,
        b"&a [*a]", b"!!python/object/apply:os.system [id]", b"? {a: b}\n: c", b"{" * 5000, b"- " * 5000, b"\x00",
        b"a: 2026-13-45", b"%TAG ! tag:x:\n--- !y z", b"<<: {a: b}", b"---\n---\n", b"a: .nan\nb: .inf", b"~",
        b"a: b: c",
    ]  # fmt: skip
    grown = "x: &x0 [a]\n" + "".join(f"y{n}: &x{n + 1} [*x{n}, *x{n}, *x{n}, *x{n}]\n" for n in range(20))
    for body in (*bombs, *MALFORMED.values(), *INVALID.values(), grown.encode()):
        answer = await quiet.http.post("/v1/validate", content=body, headers={"Content-Type": "application/yaml"})
        assert answer.status_code in (400, 413, 422), (body[:100], answer.text)
        problem(answer, answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_bodies_that_are_too_large(served: Served) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 64 * MIB:  # far more than is allowed; the server must not wait for all of it
            sent += 65536
            yield b" " * 65536

    async with served(works=False, API_MAX_DEFINITION_BYTES=MIB, API_MAX_BODY_BYTES=4096) as api:
        for path in ("/v1/workflow", "/v1/executions"):
            problem(await api.http.post(path, content=b" " * (MIB + 1)), 413, "too_large")
        problem(await api.http.post("/v1/validate", content=endless()), 413, "too_large")
        for path in ("/v1/dlq/retry", f"/v1/workflow/trigger/{'0' * 8}-0000-0000-0000-{'0' * 12}"):
            problem(await api.http.post(path, content=b" " * 4097), 413, "too_large")
        named = {"workflow": "x", "input_params": {"a": "b" * 4096}}
        problem(await api.http.post("/v1/executions", json=named), 413, "too_large")
        head = b"POST /v1/workflow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999\r\n\r\n"
        answer = await asyncio.to_thread(_answer, api.http.base_url.port, head, goes_on=True)
        assert answer.startswith(b"HTTP/1.1 413")
        assert (await api.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_many_small_values_are_too_large(quiet: Api) -> None:
    bomb = b'{"name": "x", "nodes": [' + b"{}," * (MAX_VALUES // 2) + b"{}]}"
    problem(await quiet.http.post("/v1/validate", content=bomb), 413, "too_large")


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_large_definition_is_checked_beside_the_loop(served: Served) -> None:
    nodes = [{"id": f"n{number}", "handler": "input"} for number in range(20_000)]
    async with served() as api:
        made = await api.post("/v1/validate", {"name": "wide", "nodes": nodes}, status=200)
        assert made["nodes"] == 20_000
        nodes[7]["handler"] = "nope"
        refused = await api.http.post("/v1/validate", json={"name": "wide", "nodes": nodes})
        [error] = problem(refused, 422, "invalid_definition")["errors"]
        assert error["node"] == "n7"
        assert error["loc"] == ["nodes", 7, "handler"]


QUERIES: dict[str, tuple[str, ...]] = {
    "/v1/executions": (
        "limit=0", "limit=1001", "limit=x", "limit=1e3", "limit=%00", "limit=99999999999999999999999", "cursor=x",
        "cursor=%00", "status=running", "status=", "workflow=A", "workflow=%00", "since=x", "since=%00", "until=99999",
        "since=0001-01-01T00:00:00%2B14:00", "until=9999-12-31T23:59:59-14:00", "since=1e400", "since=-1", "since=NaN",
        "q=%00", "q=%FF", "q=" + "x" * 201, "q=%25_\\", "q=%F0%9F%98%80", "stauts=FAILED", "limit=1&limit=2", "%00=%00",
        "cursor=' OR 1=1 --", "cursor=%ff", "cursor=" + "0" * 5000, "cursor=0198C0DE-0000-7000-8000-000000000001",
        "cursor=0198c0de-0000-7000-8000-000000000001%0a", "since=0", "until=1e12", "until=-2026-01-01T00:00:00Z",
        "since=2026-01-31", "since=2026-02-30T00:00:00Z", "since=2026-01-31T12:00:00%2B99:00", "&&&===", "%",
        "q=%ED%A0%80",
    ),
    "/v1/dlq": ("status=open", "status=NONE", "workflow=..", "cursor=%00", "limit=-1"),
    "/v1/audit": ("execution_id=x", "execution_id=%00", "cursor=0", "limit=0"),
    "/v1/workflows": ("cursor=%00", "cursor=A", "cursor=" + "a" * 65, "limit=0"),
    "/v1/workflows/greeting": ("cursor=x", "cursor=0", "cursor=99999999999999999999", "limit=0"),
    "/v1/executions/events": ("limit=0", "status=x", "nothing=1"),
}  # fmt: skip


async def test_queries(quiet: Api) -> None:
    await quiet.service.submit(_greeting(), actor="test")
    for path, queries in QUERIES.items():
        for query in queries:
            answer = await quiet.http.get(f"{path}?{query}")
            assert answer.status_code in (200, 422), (path, query, answer.text)
            if answer.status_code == 422:
                assert problem(answer, 422, "invalid_request")["errors"]


ODD_SEGMENTS = (
    "..%2f..%2fetc%2fpasswd", "%2e%2e", "%252e%252e%252f", "%c0%ae%c0%ae", "%00", "a%00b", "%0d%0aX:%20y", "%0a",
    "%ED%A0%80", "%E2%80%AE", "%F0%9F%92%A5", "%5c..%5c", ";a=b", "%3Fq=1", "%23", "%25", "%20", "*", "0", "-1",
    "1" * 400, "x" * 5000, "%ff" * 500,
)  # fmt: skip


async def test_paths_and_methods(quiet: Api) -> None:
    plain = (
        "/v1", "/v1/", "/v1//executions", "/v1/executions/", "/v1/%2e%2e/metrics", "/V1/executions",
        "/v1/executions%00", "/v1/executions/%ff", "/v1/workflows/%0a", "/v1/workflows/..", "/v1/workflows/A",
        "/v1/workflows/x/versions/0", "/v1/workflows/x/versions/-1", "/v1/workflows/x/versions/99999999999",
        "/v1/workflows/x/versions/1.0", "/v1/dlq/%00", "/v1/dlq/x", "/docs/", "/static/../../etc/passwd", "/%",
        "/" + "a" * 9000, "/" + "a" * 300 + ".js", "/assets/" + "a" * 300 + ".js",
    )  # fmt: skip
    with_names = (
        "executions/{}", "executions/{}/nodes/{}", "executions/{}/attempts", "executions/{}/events",
        "executions/{}/cancel", "executions/{}/retry", "workflows/{}", "workflows/x/versions/{}", "dlq/{}",
        "dlq/{}/retry", "workflow/trigger/{}",
    )  # fmt: skip
    asked = [
        *itertools.product(("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"), plain),
        *(("GET", f"/v1/{path.format(odd, odd)}") for path in with_names for odd in ODD_SEGMENTS),
        *(("POST", f"/v1/{path.format(odd, odd)}") for path in with_names for odd in ODD_SEGMENTS),
    ]
    for method, path in asked:
        answer = await quiet.http.request(method, path)
        assert answer.status_code in (307, 400, 404, 405), (method, path, answer.text)
        if answer.status_code != 307:
            problem(answer, answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_every_method_that_a_path_takes_is_told(quiet: Api) -> None:
    for path, allowed in {
        "/v1/executions": "GET, POST",
        "/v1/executions/events": "GET",
        f"/v1/executions/{NOBODY}": "GET",
        f"/v1/dlq/{NOBODY}": "DELETE, GET",
        "/v1/dlq/retry": "POST",
        f"/v1/dlq/{NOBODY}/retry": "POST",
        "/docs": "GET, HEAD",
    }.items():
        answer = await quiet.http.put(path)
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allowed, path


HEADERS = {
    "Host": (b"", b"[", b"127.0.0.1:x", b"\xff", b"evil.example"),
    "Origin": (b"null", b"http://[", b"\xff", b"http://evil.example"),
    "Authorization": (b"", b"Bearer", b"Bearer \xff", b"Basic eA==", b"Bearer " + b"x" * 10_000),
    "X-API-Key": (b"", b"\xff"),
    "Idempotency-Key": (b"", b"\xff", b"x" * 256, b"a\tb"),
    "Content-Type": (
        b"", b";;;", b"text/plain", b"\xff/yaml", b"multipart/form-data", b"application/json; charset=utf-16",
        b"application/x-www-form-urlencoded",
    ),
    "Content-Encoding": (b"gzip", b"\xff"),
    "Accept": (b"\xff", b"image/png"),
    "Accept-Encoding": (b"nonsense",),
    "Cookie": (b"a=\xff; ;=;",),
    "Range": (b"bytes=0-0",),
    "Expect": (b"nonsense",),
    "Upgrade": (b"websocket",),
    "X-Forwarded-For": (b"\xff",),
    "X-HTTP-Method-Override": (b"DELETE",),
    "traceparent": (b"00-\xff-0-0", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),
    "X-Long": (b"x" * 30_000,),
}  # fmt: skip


async def test_headers(quiet: Api) -> None:
    await quiet.service.submit(_greeting(), actor="test")
    for name, value in [(name, value) for name, values in HEADERS.items() for value in values]:
        for method, path, body in (
            ("GET", "/v1/executions", b""),
            ("GET", "/healthz", b""),
            ("POST", "/v1/executions", b'{"workflow": "greeting"}'),
            ("POST", "/v1/executions", gzip.compress(b'{"workflow": "greeting"}')),
        ):
            answer = await quiet.http.request(method, path, content=body, headers={name: value})
            assert answer.status_code < 500, (name, value, answer.text)
            if answer.status_code >= 400:
                problem(answer, answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_what_nobody_expected_is_told_by_the_log_alone(quiet: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    for name in ("start_named", "read", "workers"):
        monkeypatch.setattr(quiet.service, name, fails)
    for method, path in (("POST", "/v1/executions"), ("GET", f"/v1/executions/{NOBODY}"), ("GET", "/v1/workers")):
        answer = await quiet.http.request(method, path, content=b'{"workflow": "greeting"}')
        problem(answer, 500, "internal_error")
        assert "secret" not in answer.text
        assert (answer.headers["x-frame-options"], answer.headers.get("connection")) == ("DENY", None)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_ids_of_events_that_never_were(api: Api) -> None:
    ended = await api.start(greeting())
    await api.ended(ended)
    waiting = (await api.post("/v1/workflow", greeting(), status=201))["execution_id"]
    for last in ("", ".", ".0", "x", "-1", "9" * 1000, "a.b.c", "a.-1", "ä", "a\tb", "%00", "\u00ad"):
        header = {"Last-Event-ID": last.encode("latin-1")}
        assert [kind async for _, kind, _ in api.events(f"/v1/executions/{ended}/events", **header)] == ["end"]
        following = api.events(f"/v1/executions/{waiting}/events", **header)
        assert (await anext(following))[1] == "snapshot"
        await following.aclose()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_the_id_of_an_end_does_not_hide_what_came_after(served: Served, ledger: Path) -> None:
    async with served(ORCHESTRATOR_RECONCILE_INTERVAL=3600) as api:
        execution_id = await api.start(
            {"name": "breaks", "nodes": [node("a", handler="break", config={"ledger": str(ledger)})]}
        )
        await api.ended(execution_id)
        path = f"/v1/executions/{execution_id}/events"
        [(last, _, _)] = [each async for each in api.events(path)]
        await api.service._acceptance.retry(execution_id, "test")  # accepted, and the hot store has not heard of it
        following = api.events(path, **{"Last-Event-ID": last})
        async with asyncio.timeout(20):
            _, kind, data = await anext(following)
        await following.aclose()
        assert (kind, data["status"], data["run"]) == ("snapshot", "RUNNING", 2)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_requests_that_are_not_http(quiet: Api) -> None:
    lines = (
        b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 200_000,
        b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    )  # fmt: skip
    for line in lines:
        answer = await asyncio.to_thread(_answer, quiet.http.base_url.port, line)
        assert not answer or answer.startswith(b"HTTP/1.1 4"), (line[:100], answer)
        assert not answer or b"content-type: application/problem+json" in answer, (line[:100], answer)
    assert (await quiet.http.get("/healthz")).status_code == 200


def _answer(port: int | None, request: bytes, *, goes_on: bool = False) -> bytes:
    """All that the server says; or the first of it, to a client that could go on sending."""
    with socket.create_connection(("127.0.0.1", port or 0), timeout=20) as connection:
        connection.sendall(request)
        if goes_on:
            return connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(_received(connection))


def _received(connection: socket.socket) -> Iterator[bytes]:
    try:
        while data := connection.recv(65536):
            yield data
    except ConnectionResetError:
        return


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
mutations = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("workflow", "version", "definition", "input_params", "ids", "name", "nodes"), json_values
        ),
    ),
    st.builds(lambda value, name: {**greeting(), name: value}, json_values, st.sampled_from(sorted(greeting()))),
    st.builds(lambda value: {"definition": greeting(), "input_params": value}, json_values),
)


def _greeting() -> Any:
    from headrace.model.validation import validate

    return validate(greeting(), handlers=None)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_anything_at_all(quiet: Api) -> None:
    def ask_all() -> None:
        with httpx2.Client(base_url=quiet.http.base_url, timeout=30) as http:

            @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
            @given(path=st.sampled_from(WITH_BODY), value=mutations)
            def ask(path: str, value: Any) -> None:
                answer = http.post(path, content=json.dumps(value).encode())
                assert answer.status_code < 500, answer.text
                assert answer.json() is not None

            ask()

    await asyncio.to_thread(ask_all)
