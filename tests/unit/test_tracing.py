"""Trace context and what makes spans, without a collector or with one that does not answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import Request
from structlog.testing import capture_logs

from headrace import tracing
from headrace.api.parts import traceparent
from headrace.model import trace
from headrace.model.messages import Failure, Outcome, Task
from headrace.process import traced
from headrace.settings import Settings
from tests.hostile_server import endless, serving

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASK = Task("0197f2c0-0000-7000-8000-000000000001", "epoch", 1, "node", 1, "handler", "{}")

hex_digits = st.sampled_from("0123456789abcdef")
ids = st.text(hex_digits, min_size=32, max_size=32) | st.just("0" * 32)
spans = st.text(hex_digits, min_size=16, max_size=16) | st.just("0" * 16)
pairs = st.text(hex_digits, min_size=2, max_size=2) | st.sampled_from(["00", "01", "ff"])
proper = st.builds("-".join, st.tuples(pairs, ids, spans, pairs))
slips = st.sampled_from(["", "-", "-more", "A", "0", "é", "٣"])


def _cut(header: str, at: int, slip: str) -> str:
    return header[:at] + slip + header[at + (at % 2) :]


@given(proper | st.builds(_cut, proper, st.integers(0, 56), slips) | st.text("0123456789abcdef-A", max_size=80))
def test_reads_what_opentelemetry_reads(header: str) -> None:
    context = TraceContextTextMapPropagator().extract({"traceparent": header})
    found = otel.get_current_span(context).get_span_context()
    expected = (found.trace_id, found.span_id, found.trace_flags & trace.KNOWN_FLAGS) if found.is_valid else None
    read = trace.read(header)
    assert (read and (int(read.trace_id, 16), int(read.span_id, 16), read.flags)) == expected
    if read:
        assert trace.read(read.header) == read and len(read.header) == len(GIVEN)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([GIVEN], GIVEN),
        ([], None),
        ([GIVEN, GIVEN], None),  # as the standard says
        (["cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be"], GIVEN),
        ([GIVEN.upper()], None),
        ([f"{GIVEN}-more"], None),
        (["\xff" * 5000], None),
    ],
)
def test_what_a_request_brings(sent: list[str], expected: str | None) -> None:
    headers = [(b"traceparent", each.encode("latin-1")) for each in sent]
    assert traceparent(Request({"type": "http", "headers": headers})) == expected


def test_ids_differ_where_they_should() -> None:
    attempts = [TASK, Task(*_changed(attempt=2)), Task(*_changed(run=2)), Task(*_changed(epoch="later"))]
    assert len({trace.span_of_attempt(task) for task in attempts}) == 4
    assert trace.span_of_run("x", 1) != trace.span_of_run("x", 2)


def _changed(**fields: Any) -> list[Any]:
    return [fields.get(name, getattr(TASK, name)) for name in Task.__struct_fields__]


def test_a_ratio_of_all_traces_can_be_sampled() -> None:
    """With a UUID as the trace id a half would be none at all: two bits that samplers look at are always the same."""
    sampler = TraceIdRatioBased(0.5)
    made = [int(trace.trace_of(f"0197f2c0-0000-7000-8000-{number:012x}"), 16) for number in range(2000)]
    sampled = [sampler.should_sample(None, each, "run").decision is Decision.RECORD_AND_SAMPLE for each in made]
    assert 900 < sum(sampled) < 1100


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "maybe"}, True),
    ],
)
def test_traces_are_on_where_an_endpoint_is_set(environment: dict[str, str], expected: bool) -> None:
    assert Settings(**environment).sends_traces is expected  # type: ignore[arg-type]


def test_a_key_for_the_collector_is_confidential() -> None:
    settings = Settings(OTEL_EXPORTER_OTLP_HEADERS="x-tenant=acme,authorization=Bearer%20very-secret")
    assert {"acme", "Bearer very-secret"} <= set(settings.confidential)


async def test_without_the_extra_it_is_said_and_all_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.tracing", None)
    settings = Settings(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    with capture_logs() as logged:
        async with traced(settings, "worker") as tracer:
            assert tracer is None
    [line] = logged
    assert line["log_level"] == "warning" and "headrace[otel]" in line["event"]


async def test_variables_that_cannot_be_used_are_said_and_all_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    settings = Settings(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    with capture_logs() as logged:
        async with traced(settings, "worker") as tracer:
            assert tracer is None
    assert [line["log_level"] for line in logged] == ["warning"]


def test_nothing_of_it_is_imported_where_it_is_off() -> None:
    code = (
        "import asyncio, sys, headrace.process, headrace.cli.roles\n"
        "from headrace.settings import Settings\n"
        "async def main():\n"
        "    async with headrace.process.traced(Settings(), 'worker') as tracer: assert tracer is None\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_a_collector_that_does_not_answer_keeps_nobody_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.1)
    async with serving(endless(b"", b"", pause_seconds=60)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        async with traced(Settings(), "worker") as tracer:
            assert tracer is not None
            tracer.run_ended(tracing.EndedRun("x", 1, "workflow", "COMPLETED", 1, 2))
    assert server.requests  # it was asked, and nobody waited for what it would say
    for thread in threading.enumerate():
        if thread.name == "headrace-traces":  # it must not disturb the tests that follow
            await asyncio.to_thread(thread.join)


async def test_spans_of_a_handler_are_children_of_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")  # nothing has to be sent
    theirs, made = TracerProvider(sampler=ALWAYS_ON), InMemorySpanExporter()
    theirs.add_span_processor(SimpleSpanProcessor(made))
    seen: list[str] = []

    async def run(task: Task, header: str) -> Outcome:
        seen.append(header)
        with theirs.get_tracer("handler").start_as_current_span("inside"):
            return Outcome(failure=Failure("error", "no"))

    async with traced(Settings(), "worker") as tracer:
        assert tracer is not None
        outcome = await tracer.attempt(TASK, "worker", GIVEN, run)
    assert outcome == Outcome(failure=Failure("error", "no"))
    [header] = seen
    assert header == f"00-{GIVEN[3:35]}-{trace.span_of_attempt(TASK)}-00"
    [inside] = made.get_finished_spans()
    assert inside.parent is not None
    assert (inside.context.trace_id, inside.parent.span_id) == (int(GIVEN[3:35], 16), int(header[36:52], 16))
    assert not otel.get_current_span().get_span_context().is_valid
