"""The client against a server on a real socket that answers what a test says: shapes, faults, streams, keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.client import Client, ProblemError, ServerUnreachable
from headrace.errors import BadValue
from headrace.rest import wire
from tests.hostile_server import Script, Seen, answer, redirect, saying, serving

ID = "01a1e258-a5f5-7023-bfb3-55a2aaaa3d0a"
DEFINITION = {"name": "w", "nodes": [{"id": "a", "handler": "output"}]}
TIMES = {"created_at": "2026-01-31T12:00:00.000Z", "started_at": None, "finished_at": None}
SUMMARY = {"execution_id": ID, "workflow": "w", "version": 1, "status": "RUNNING", "run": 1, "error": None, **TIMES}
NODE = {"id": "a", "handler": "output", "status": "RUNNING", "attempt": 1, "dependencies": [], "error": None}
EXECUTION = {**SUMMARY, "input_params": {}, "output": None, "nodes": [NODE]}
DETAIL = {**NODE, "config": {}, "output": None, "attempts": [{"attempt": 1, "status": "RUNNING"}]}
SUBMITTED = {"workflow_definition_id": ID, "execution_id": ID, "name": "w", "version": 1, "status": "RUNNING", "run": 1}
TRIGGERED = {"execution_id": ID, "status": "RUNNING", "run": 2}
LETTER = {
    "id": ID, "execution_id": ID, "workflow": "w", "run": 1, "node": "a", "attempt": 4, "cause": "error",
    "error": {"code": "error", "message": "no"}, "status": "OPEN", "created_at": TIMES["created_at"],
}  # fmt: skip
RETRIED = {"retried": [TRIGGERED], "refused": [], "more": False}
WORKFLOW = {"name": "w", "version": 2, "workflow_definition_id": ID, "created_at": TIMES["created_at"]}
VERSION = {"name": "w", "version": 2, "definition": DEFINITION}
WORKER = {"name": "n", "alive": True, "heartbeat_age_seconds": 0.1, "handlers": ["a"], "slots": 64, "running": 0}

Call = Callable[[Client], Awaitable[Any]]


def as_json(document: object, status: int = 200) -> bytes:
    return answer(json.dumps(document), status=status, headers={"Content-Type": "application/json"})


def page(*items: object, cursor: str | None = None) -> dict[str, object]:
    return {"items": [*items], "next_cursor": cursor}


def one_by_one(*scripts: Script | bytes) -> Script:
    """Each request gets the next one; the last one stays."""
    left = [saying(each) if isinstance(each, bytes) else each for each in scripts]

    async def perform(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(seen, writer)

    return perform


async def hangs_up(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """The request was read; there is no answer."""
    writer.close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REPEAT_AFTER_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(wire, "RECONNECT_AFTER_SECONDS", (0.0, 0.0, 0.0))


CALLS: list[tuple[Call, str, str, object, object]] = [
    (lambda c: c.submit(DEFINITION), "POST", "workflow", DEFINITION, SUBMITTED),
    (lambda c: c.trigger(ID), "POST", f"workflow/trigger/{ID}", {}, TRIGGERED),
    (lambda c: c.trigger(ID, {"x": 1}), "POST", f"workflow/trigger/{ID}", {"input_params": {"x": 1}}, TRIGGERED),
    (lambda c: c.start(workflow="w", version=2), "POST", "executions", {"workflow": "w", "version": 2}, SUBMITTED),
    (lambda c: c.start(definition=DEFINITION, input_params={"x": None}), "POST", "executions",
     {"definition": DEFINITION, "input_params": {"x": None}}, SUBMITTED),
    (lambda c: c.page(status="FAILED", q="a&b=c d", limit=5), "GET", "executions?status=FAILED&q=a%26b%3Dc+d&limit=5",
     None, page(SUMMARY)),
    (lambda c: c.get(ID), "GET", f"executions/{ID}", None, EXECUTION),
    (lambda c: c.node(ID, "a"), "GET", f"executions/{ID}/nodes/a", None, DETAIL),
    (lambda c: c.attempts(ID, limit=2), "GET", f"executions/{ID}/attempts?limit=2", None,
     page({"node": "a", "run": 1, "attempt": 1, "status": "COMPLETED"}, cursor="7-1-1-a")),
    (lambda c: c.why(ID), "GET", f"executions/{ID}/why", None,
     {"execution_id": ID, "nodes": [{"node": None, "status": "PENDING", "why": "no"}]}),
    (lambda c: c.cancel(ID), "POST", f"executions/{ID}/cancel", None, {"execution_id": ID, "cancel_requested": True}),
    (lambda c: c.retry(ID), "POST", f"executions/{ID}/retry", None, TRIGGERED),
    (lambda c: c.retry(ID, from_nodes=("a", "b")), "POST", f"executions/{ID}/retry", {"from": ["a", "b"]}, TRIGGERED),
    (lambda c: c.dead_letters(workflow="w"), "GET", "dlq?workflow=w", None, page(LETTER)),
    (lambda c: c.dead_letter(ID), "GET", f"dlq/{ID}", None, {**LETTER, "task": DETAIL}),
    (lambda c: c.retry_dead_letter(ID), "POST", f"dlq/{ID}/retry", None, TRIGGERED),
    (lambda c: c.retry_dead_letters([ID]), "POST", "dlq/retry", {"ids": [ID]}, RETRIED),
    (lambda c: c.retry_dead_letters([]), "POST", "dlq/retry", {"ids": []}, RETRIED),
    (lambda c: c.retry_dead_letters(workflow="w"), "POST", "dlq/retry", {"workflow": "w"}, RETRIED),
    (lambda c: c.retry_dead_letters(), "POST", "dlq/retry", {}, RETRIED),
    (lambda c: c.validate(DEFINITION), "POST", "validate", DEFINITION, {"valid": True, "name": "w", "nodes": 1}),
    (lambda c: c.workflows(limit=1), "GET", "workflows?limit=1", None, page(WORKFLOW, cursor="w")),
    (lambda c: c.workflow("w"), "GET", "workflows/w", None, {**VERSION, "versions": [WORKFLOW]}),
    (lambda c: c.version("w", 2), "GET", "workflows/w/versions/2", None, VERSION),
    (lambda c: c.audit(execution_id=ID), "GET", f"audit?execution_id={ID}", None, {**page(), "stuck": []}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "method", "target", "body", "document"), CALLS, ids=[each[2] for each in CALLS])
async def test_every_call_asks_for_the_right_thing_and_gives_the_answer_as_it_came(
    call: Call, method: str, target: str, body: object, document: dict[str, object]
) -> None:
    told = {**document, "of_a_newer_server": {"x": [1]}}
    async with serving(as_json(told)) as server, Client(server.url, "a key") as client:
        assert await call(client) == told
        [seen] = server.requests
    assert (seen.method, seen.target) == (method, f"/v1/{target}")
    assert (json.loads(seen.body) if seen.body else None) == body
    assert seen.headers.get("content-type") == ("application/json" if body is not None else None)
    assert seen.headers["authorization"] == "Bearer a key"


async def test_lists_without_pages_come_as_their_items() -> None:
    async with serving(as_json({"items": [WORKER]})) as server, Client(server.url) as client:
        assert await client.workers() == [WORKER]
        assert "authorization" not in server.requests[0].headers
    queue = {"handler": "a", "depth": 1, "oldest_age_seconds": None}
    async with serving(as_json({"items": [queue]})) as server, Client(server.url) as client:
        assert await client.queues() == [queue]
    handler = {"name": "a", "config_schema": None}
    async with serving(as_json({"items": [handler]})) as server, Client(server.url) as client:
        assert await client.handlers() == [handler]


async def test_dropping_a_dead_letter_needs_no_body_in_the_answer() -> None:
    async with serving(answer(status=204)) as server, Client(server.url) as client:
        await client.drop_dead_letter(ID)
        assert [(seen.method, seen.target) for seen in server.requests] == [("DELETE", f"/v1/dlq/{ID}")]


async def test_a_list_goes_through_all_pages_with_the_same_filter() -> None:
    others = [{**SUMMARY, "execution_id": str(number)} for number in range(5)]
    script = one_by_one(
        as_json(page(*others[:2], cursor="c 1")), as_json(page(cursor="c 2")), as_json(page(*others[2:]))
    )
    async with serving(script) as server, Client(server.url) as client:
        assert [each async for each in client.list(workflow="w")] == others
        assert [seen.target for seen in server.requests] == [
            "/v1/executions?workflow=w",
            "/v1/executions?workflow=w&cursor=c+1",
            "/v1/executions?workflow=w&cursor=c+2",
        ]


# Refusals and answers that are none


async def test_a_problem_has_its_fields() -> None:
    problem = {
        "type": "/docs#invalid_definition", "title": "The definition has problems", "status": 422, "detail": "a cycle",
        "code": "invalid_definition", "errors": [{"loc": ["nodes", 0], "msg": "m", "code": "cycle"}, "nonsense"],
    }  # fmt: skip
    async with serving(as_json(problem, 422)) as server, Client(server.url) as client:
        with pytest.raises(ProblemError, match="a cycle") as caught:
            await client.submit(DEFINITION)
    error = caught.value
    assert (error.status, error.code, error.title) == (422, "invalid_definition", "The definition has problems")
    assert error.errors == ({"loc": ["nodes", 0], "msg": "m", "code": "cycle"},)
    assert error.retry_after_seconds is None


@pytest.mark.parametrize("body", ["", "<html>", "[1]", '{"detail": 7, "code": null, "errors": {}}', "\udcff"])
async def test_a_refusal_that_is_no_problem_document_is_one_all_the_same(body: str) -> None:
    answered = answer(body.encode(errors="surrogateescape"), status=503, headers={"Retry-After": "7"})
    async with serving(answered) as server, Client(server.url) as client:
        with pytest.raises(ProblemError) as caught:
            await client.get(ID)
    assert (caught.value.status, caught.value.code, caught.value.errors) == (503, "http_503", ())
    assert caught.value.retry_after_seconds == 7
    assert caught.value.detail


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", "null", '{"execution_id": 7}', '{"nodes": []}', "\udcff", "{" * 999]
)
async def test_what_is_not_of_this_api_is_no_answer(body: str) -> None:
    async with serving(answer(body.encode(errors="surrogateescape"))) as server, Client(server.url) as client:
        with pytest.raises(ServerUnreachable, match="does not answer like a Headrace API"):
            await client.get(ID)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_key_goes_to_no_other_origin(status: int) -> None:
    async with serving(as_json(EXECUTION)) as other:
        leading = serving(redirect(f"{other.url}/v1/executions/{ID}", status))
        async with leading as server, Client(server.url, "the key") as client:
            for call in (client.get(ID), client.cancel(ID), anext(client.events(ID))):
                with pytest.raises(ServerUnreachable, match=f"leads to {other.url}"):
                    await call
        assert other.connections == 0


async def test_a_loopback_server_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(as_json(EXECUTION)) as server, serving(as_json({"of": "the proxy"})) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with Client(server.url) as client:
            assert await client.get(ID) == EXECUTION
        assert proxy.connections == 0


@pytest.mark.parametrize(
    "server", ["", "localhost:8080", "ftp://h", "http://", "http://u:p@h", "http://h?q=1", "http://h/#f", "http://h:x"]
)
def test_an_address_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Client(server)


async def test_a_server_may_be_below_a_path() -> None:
    async with serving(as_json(EXECUTION)) as server, Client(f"{server.url}/team/") as client:
        await client.get(ID)
        assert server.requests[0].target == f"/team/v1/executions/{ID}"


@given(st.text(min_size=1).filter(lambda text: text.isprintable() or "\0" in text))
@example("../../v1/workers")
@example("..")
@example(".")
@example("a/b?c=d#e%2f")
@example("//elsewhere.example/x")
@example("\\..\\")
def test_an_id_stays_one_segment_whatever_is_in_it(name: str) -> None:
    part = wire.segment(name)
    assert unquote(part) == name
    assert part.isascii() and not set(part) & set("/?#.\\ ")


async def test_strange_ids_stay_where_they_belong() -> None:
    async with serving(as_json(EXECUTION)) as server, Client(server.url) as client:
        for name in ("..", "../workers", "a/b?c#d", "//elsewhere.example/x"):
            await client.get(name)
        paths = [seen.target.removeprefix("/v1/executions/") for seen in server.requests]
    assert paths == ["%2E%2E", "%2E%2E%2Fworkers", "a%2Fb%3Fc%23d", "%2F%2Felsewhere%2Eexample%2Fx"]
    with pytest.raises(ValueError, match="must not be empty"):
        await client.get("")


# Faults


async def test_a_safe_call_is_repeated_after_a_broken_connection() -> None:
    async with serving(one_by_one(hangs_up, hangs_up, as_json(EXECUTION))) as server, Client(server.url) as client:
        assert await client.get(ID) == EXECUTION
        assert len(server.requests) == 3


async def test_a_start_is_repeated_with_the_same_key() -> None:
    async with serving(one_by_one(hangs_up, as_json(SUBMITTED, 202))) as server, Client(server.url) as client:
        await client.start(workflow="w")
        await client.start(workflow="w")
        await client.start(workflow="w", idempotency_key="mine")
        first, again, second, own = (seen.headers["idempotency-key"] for seen in server.requests)
    assert first == again != second
    assert own == "mine"


@pytest.mark.parametrize("name", ["cancel", "retry", "trigger", "retry_dead_letter", "drop_dead_letter"])
async def test_what_must_not_happen_twice_is_not_repeated(name: str) -> None:
    async with serving(hangs_up) as server, Client(server.url) as client:
        with pytest.raises(ServerUnreachable):
            await getattr(client, name)(ID)
        assert len(server.requests) == 1


async def test_a_call_that_cannot_have_arrived_is_repeated() -> None:
    async with serving() as gone:
        pass
    async with Client(gone.url) as client:
        with pytest.raises(ServerUnreachable, match=f"cannot reach {gone.url}"):
            await client.cancel(ID)


async def test_a_server_that_is_silent_is_given_up() -> None:
    async def silent(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(silent) as server, Client(server.url, timeout_seconds=0.05) as client:
        with pytest.raises(ServerUnreachable, match="ReadTimeout"):
            await client.cancel(ID)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", 2**63, object(), {1: 2}])
async def test_what_json_cannot_hold_is_refused_before_it_is_sent(value: object) -> None:
    async with serving() as server, Client(server.url) as client:
        with pytest.raises(BadValue):
            await client.start(workflow="w", input_params={"x": value})
        assert server.connections == 0


async def test_start_takes_one_of_two() -> None:
    async with Client() as client:
        with pytest.raises(TypeError, match="either"):
            await client.start()
        with pytest.raises(TypeError, match="either"):
            await client.start(workflow="w", definition=DEFINITION)


# Events

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def frame(event_id: str, kind: str, data: object) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def stream(*parts: bytes) -> Script:
    async def write(seen: Seen, writer: asyncio.StreamWriter) -> None:
        for part in (HEAD, *parts):
            writer.write(part)
            await writer.drain()
        writer.close()

    return write


SNAPSHOT = frame("e.1", "snapshot", EXECUTION)
CHANGE = frame("e.2", "change", {"execution_id": ID, "run": 1, "nodes": [{"id": "a", "status": "COMPLETED"}]})
END = frame("e.3", "end", {**EXECUTION, "status": "COMPLETED"})


async def seen_events(client: Client) -> list[tuple[str, str]]:
    async with asyncio.timeout(30):
        return [(event.id, event.kind) async for event in client.events(ID)]


async def test_events_come_up_to_the_end() -> None:
    cut = SNAPSHOT + b": still here\n\n" + CHANGE.replace(b'"run"', '"naïve ☃": 1, "run"'.encode()) + END
    pieces = [cut[i : i + 7] for i in range(0, len(cut), 7)]  # also within a character
    async with serving(stream(*pieces, frame("e.4", "change", {}))) as server, Client(server.url, "k") as client:
        assert await seen_events(client) == [("e.1", "snapshot"), ("e.2", "change"), ("e.3", "end")]
        [seen] = server.requests
    assert seen.target == f"/v1/executions/{ID}/events"
    assert seen.headers["accept"] == "text/event-stream"
    assert seen.headers["authorization"] == "Bearer k"
    assert "last-event-id" not in seen.headers


async def test_a_broken_stream_goes_on_where_it_ended() -> None:
    problem = b'event: problem\ndata: {"status": 503, "code": "store_unavailable"}\n\n'
    script = one_by_one(stream(SNAPSHOT, CHANGE[:20]), hangs_up, as_json({}, 503), stream(CHANGE, problem), stream(END))
    async with serving(script) as server, Client(server.url) as client:
        assert await seen_events(client) == [("e.1", "snapshot"), ("e.2", "change"), ("e.3", "end")]
        came_with = [seen.headers.get("last-event-id") for seen in server.requests]
    assert came_with == [None, "e.1", "e.1", "e.1", "e.2"]


@pytest.mark.parametrize(
    ("script", "error", "asked"),
    [
        (as_json({"code": "execution_not_found"}, 404), ProblemError, 1),
        (as_json({"code": "forbidden"}, 403), ProblemError, 1),
        (stream(b'event: problem\ndata: {"status": 404, "code": "gone"}\n\n'), ProblemError, 1),
        (as_json({}, 503), ProblemError, 4),
        (as_json(EXECUTION), ServerUnreachable, 4),
        (stream(b"data: no json\n\n"), ServerUnreachable, 4),
        (stream(b"data: [1]\n\n"), ServerUnreachable, 4),
        (stream(), ServerUnreachable, 4),
        (hangs_up, ServerUnreachable, 4),
    ],
)  # fmt: skip
async def test_a_stream_that_never_comes_is_given_up(
    script: Script | bytes, error: type[Exception], asked: int
) -> None:
    async with serving(script) as server, Client(server.url) as client:
        with pytest.raises(error):
            await seen_events(client)
        assert len(server.requests) == asked


async def test_a_stream_that_goes_on_may_break_any_number_of_times() -> None:
    changes = [stream(frame(f"e.{number}", "change", {"nodes": []})) for number in range(2, 12)]
    async with serving(one_by_one(stream(SNAPSHOT), *changes, stream(END))) as server, Client(server.url) as client:
        assert len(await seen_events(client)) == 12


async def test_whoever_stops_listening_leaves() -> None:
    async def goes_on(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + SNAPSHOT)
        await asyncio.Event().wait()

    async with serving(goes_on) as server:
        async with Client(server.url) as client:
            assert (await anext(client.events(ID))).kind == "snapshot"
        async with asyncio.timeout(30):
            await server.gone.wait()
