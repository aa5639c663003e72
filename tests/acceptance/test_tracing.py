"""Traces as a collector gets them, from roles that are processes of their own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace import Context, Fatal, handler
from headrace.hot.store import HotStore
from headrace.model import trace
from tests import ledger as book
from tests.collector import Collector, Sent, collecting
from tests.hostile_server import HostileServer, Seen, answer, serving
from tests.roles import Processes, node, processes, until

SECRET = "a-secret-of-the-traced"
CALLER = "00-11111111111111111111111111111111-aaaaaaaaaaaaaaaa-01"
RETRIER = "00-22222222222222222222222222222222-bbbbbbbbbbbbbbbb-01"
PATIENT = "00-33333333333333333333333333333333-cccccccccccccccc-01"
UNSAMPLED = "00-44444444444444444444444444444444-dddddddddddddddd-00"
SERVER = 2  # kinds of spans
INTERNAL = 1


@handler("tell")
def tell(config: dict[str, Any], ctx: Context) -> dict[str, Any]:
    return {"traceparent": ctx.traceparent}


@handler("tell_from_afar", isolation="process")
def tell_from_afar(config: dict[str, Any], ctx: Context) -> dict[str, Any]:
    return {"traceparent": ctx.traceparent}


@handler("leak")
async def leak(config: dict[str, Any]) -> None:
    raise Fatal(f"no luck with {config['token']}")


@pytest.fixture
def partitions() -> int:
    return 1


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as opened:
        yield opened


@pytest.fixture
async def flaky() -> AsyncIterator[HostileServer]:
    """Has no time for the first request."""
    answers = iter([answer(status=503)])

    async def say(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers, answer("hello")))
        await writer.drain()

    async with serving(say) as opened:
        yield opened


@pytest.fixture
def house(valkey_url: str, tmp_path: Path, store: HotStore, collector: Collector) -> Iterator[Processes]:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that all depends on what is sent at the end
        "ORCHESTRATOR_RECONCILE_INTERVAL": "0.3",
        "ORCHESTRATOR_ARCHIVE_INTERVAL": "0.02",
        "HTTP_ALLOW_PRIVATE": "true",
        "HEADRACE_SECRET_TOKEN": SECRET,
        "API_PORT": "0",
    }
    with processes(valkey_url, tmp_path, 1, **settings) as started:
        started.command_line = True  # roles import what they need for tracing when they start
        started.role("api")
        started.orchestrator()
        started.orchestrator()
        started.worker("tests.ledger", "tests.acceptance.test_tracing")
        yield started


class Client:
    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str) -> Any:
        return (await self._http.get(path)).json()

    async def post(self, path: str, traceparent: str | None, body: Any = None) -> str:
        headers = {"traceparent": traceparent} if traceparent else {}
        answered = await self._http.post(path, json=body, headers=headers)
        assert answered.status_code in (201, 202), answered.text
        return str(answered.json()["execution_id"])

    async def start(self, traceparent: str | None, name: str, *nodes: dict[str, Any]) -> str:
        return await self.post("/v1/executions", traceparent, {"definition": {"name": name, "nodes": list(nodes)}})

    async def ended(self, execution_id: str, status: str, run: int = 1) -> Any:
        async def over() -> Any:
            found = await self.get(f"/v1/executions/{execution_id}")
            return found if (found["status"], found["run"]) == (status, run) else None

        return await until(over, f"the end of {execution_id}")


@pytest.fixture
async def client(house: Processes) -> AsyncIterator[Client]:
    address = (await house.all[0].said("listening"))["address"]
    async with httpx2.AsyncClient(base_url=address, timeout=30) as http:
        made = Client(http)

        async def known() -> bool:
            return "leak" in {each["name"] for each in (await made.get("/v1/handlers"))["items"]}

        await until(known, "the worker's handlers")
        yield made


async def stop(house: Processes) -> None:
    for process in house.all:
        process.send(signal.SIGTERM)
    await until(lambda: all(process.process.poll() is not None for process in house.all), "the roles to stop")


def of(collector: Collector, execution_id: str) -> tuple[list[Sent], dict[tuple[str, int], Sent]]:
    """The spans of its runs, in order, and those of attempts by node and number."""
    mine = [span for span in collector.spans if span.attributes["headrace.execution_id"] == execution_id]
    runs = [span for span in mine if "headrace.node" not in span.attributes]
    attempts = [span for span in mine if "headrace.node" in span.attributes]
    assert len({span.context.span_id for span in mine}) == len(mine)
    assert all(span.begun_ns <= span.ended_ns and span.service == "headrace" for span in mine)
    named = {(span.attributes["headrace.node"], span.attributes["headrace.attempt"]): span for span in attempts}
    return sorted(runs, key=lambda span: span.attributes["headrace.run"]), named


async def test_what_a_collector_gets(
    house: Processes, client: Client, collector: Collector, flaky: HostileServer, store: HotStore
) -> None:
    """Starting the roles is what costs, so all of it is one test: first everything happens, then the spans are read."""
    ended = [await _call_and_tell(client, flaky.url), await _be_alone(client), await _be_unsampled(client)]
    broken, lost = await _break_and_retry(client), await _lose_the_store(client, store, house.folder)
    await stop(house)

    assert not any(SECRET.encode() in seen.body for seen in collector.requests)
    _check_called(collector, ended[0], flaky.requests)
    _check_alone(collector, ended[1])
    _check_unsampled(collector, ended[2])
    _check_retried(collector, broken)
    _check_lost(collector, lost)


async def _call_and_tell(client: Client, url: str) -> Any:
    config = {"url": url, "headers": {"X-Token": "{{ secret.TOKEN }}"}}
    call = node("call", handler="call_external_service", config=config)
    tellers = (node("near", "call", handler="tell"), node("far", "call", handler="tell_from_afar"))
    return await client.ended(await client.start(CALLER, "called", call, *tellers), "COMPLETED")


def _check_called(collector: Collector, ended: Any, requests: list[Seen]) -> None:
    [run], attempts = of(collector, ended["execution_id"])
    assert (run.context.trace_id, run.parent) == (CALLER[3:35], CALLER[36:52])
    assert (run.name, run.kind, run.is_error) == ("called", SERVER, False)
    assert run.attributes["headrace.status"] == "COMPLETED"
    assert attempts.keys() == {("call", 1), ("call", 2), ("near", 1), ("far", 1)}
    _check_inside(run, attempts)
    outcomes = {key: (span.attributes["headrace.outcome"], span.is_error) for key, span in attempts.items()}
    assert outcomes.pop(("call", 1)) == ("retry", True) and set(outcomes.values()) == {("completed", False)}
    sent = [attempts["call", number].context.header for number in (1, 2)]
    assert [seen.headers["traceparent"] for seen in requests] == sent
    assert ended["output"] == {name: {"traceparent": attempts[name, 1].context.header} for name in ("near", "far")}


async def _be_alone(client: Client) -> Any:
    malformed = "00-nonsense-aaaaaaaaaaaaaaaa-01"
    return await client.ended(await client.start(malformed, "alone", node("near", handler="tell")), "COMPLETED")


def _check_alone(collector: Collector, ended: Any) -> None:
    [run], attempts = of(collector, ended["execution_id"])
    assert (run.context.trace_id, run.parent, run.kind) == (trace.trace_of(ended["execution_id"]), "", INTERNAL)
    _check_inside(run, attempts)
    assert ended["output"] == {"near": {"traceparent": attempts["near", 1].context.header}}


async def _be_unsampled(client: Client) -> Any:
    return await client.ended(await client.start(UNSAMPLED, "unsampled", node("near", handler="tell")), "COMPLETED")


def _check_unsampled(collector: Collector, ended: Any) -> None:
    """Nothing is sent of it, and whoever is called is told so."""
    assert of(collector, ended["execution_id"]) == ([], {})
    told = trace.read(ended["output"]["near"]["traceparent"])
    assert told and (told.trace_id, told.flags) == (UNSAMPLED[3:35], 0)


async def _break_and_retry(client: Client) -> str:
    leaking = {"name": "leaking", "nodes": [node("leak", handler="leak", config={"token": "{{ secret.TOKEN }}"})]}
    execution_id = await client.post("/v1/workflow", None, leaking)
    await client.post(f"/v1/workflow/trigger/{execution_id}", CALLER)
    await client.ended(execution_id, "FAILED")
    await client.post(f"/v1/executions/{execution_id}/retry", None)
    await client.ended(execution_id, "FAILED", run=2)
    await client.post(f"/v1/workflow/trigger/{execution_id}", RETRIER)
    await client.ended(execution_id, "FAILED", run=3)
    return execution_id


def _check_retried(collector: Collector, execution_id: str) -> None:
    """The first retry goes on in the trace that there was, the second one brought its own."""
    runs, _ = of(collector, execution_id)
    parents = [CALLER, CALLER, RETRIER]
    assert [(run.context.trace_id, run.parent) for run in runs] == [(each[3:35], each[36:52]) for each in parents]
    spans = [span for span in collector.spans if span.attributes["headrace.execution_id"] == execution_id]
    assert Counter((span.is_error, span.error) for span in spans) == {(True, "no luck with ***"): 6}
    attempts = [span for span in spans if span not in runs]
    assert {(span.context.trace_id, span.parent) for span in attempts} == {
        (run.context.trace_id, run.context.span_id) for run in runs
    }


async def _lose_the_store(client: Client, store: HotStore, folder: Path) -> str:
    ledger, gate = folder / "ledger", folder / "gate"
    waiting = node("wait", config={"ledger": str(ledger), "gate": str(gate)})
    execution_id = await client.start(PATIENT, "lost", waiting)

    async def archived() -> bool:
        found = await client.get(f"/v1/executions/{execution_id}/nodes/wait")
        return any(each["started_at"] for each in found["attempts"])

    await until(archived, "the first attempt in SQL")
    await store._link.call("FLUSHALL")
    await until(lambda: len(book.read(ledger)) == 2, "another attempt")
    gate.touch()
    await client.ended(execution_id, "COMPLETED")
    return execution_id


def _check_lost(collector: Collector, execution_id: str) -> None:
    [run], attempts = of(collector, execution_id)
    assert (run.context.trace_id, run.parent) == (PATIENT[3:35], PATIENT[36:52])
    _check_inside(run, attempts)
    assert attempts.keys() == {("wait", 1), ("wait", 2)}
    assert attempts["wait", 2].attributes["headrace.outcome"] == "completed"


def _check_inside(run: Sent, attempts: dict[tuple[str, int], Sent]) -> None:
    expected = (run.context.trace_id, run.context.span_id)
    assert {(span.context.trace_id, span.parent) for span in attempts.values()} == {expected}
    assert all(run.begun_ns <= span.begun_ns for span in attempts.values())


async def test_headrace_run_sends_its_trace(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text(
        json.dumps({"name": "two", "nodes": [node("A", handler="output"), node("B", "A", handler="output")]})
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "run", str(file), "--json"),
        env={"HEADRACE_HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"},
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await process.communicate()
    assert process.returncode == 0
    execution_id = json.loads(shown)["execution_id"]
    [run], attempts = of(collector, execution_id)
    assert (run.name, run.context.trace_id, run.parent) == ("two", trace.trace_of(execution_id), "")
    assert attempts.keys() == {("A", 1), ("B", 1)}
    assert {span.parent for span in attempts.values()} == {run.context.span_id}
