"""Spans for OpenTelemetry: one per run of an execution, one per attempt, sent by OTLP in the background.

The only module that knows OpenTelemetry, an optional dependency: it is imported where an endpoint is set, and nowhere
else (process.py). A span is made when what it stands for has ended, with ids that were known before (model/trace.py).
The provider is our own, not the global one, so nothing that others set up changes what is sent here, or the reverse.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from headrace.model import trace
from headrace.model.messages import Failure, Outcome, Task
from headrace.model.trace import SAMPLED, TraceContext

FLUSH_SECONDS = 5.0
UNNAMED = "unknown_service"  # what the SDK calls us if OTEL_SERVICE_NAME does not say otherwise

Run = Callable[[Task, str], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of an execution; `traceparent` is what the request for it brought."""

    execution_id: str
    run: int
    workflow: str
    status: str
    begun_ms: int
    ended_ms: int
    failure: Failure | None = None
    traceparent: str | None = None


class Tracer:
    """Belongs to one process, `name`. Only its event loop may use it."""

    def __init__(self, name: str) -> None:
        """The SDK and the exporter read their OTEL_* variables themselves."""
        self._ids = _Known()
        self._provider = TracerProvider(resource=_resource(name), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("headrace")

    def close(self) -> None:
        """Sends what is left, unless that takes too long: a collector that is away keeps nobody from stopping."""
        flushing = threading.Thread(target=self._provider.shutdown, name="headrace-traces", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)

    def run_ended(self, ended: EndedRun) -> None:
        """To be told once of each run."""
        given = trace.read(ended.traceparent) if ended.traceparent else None
        failure = ended.failure or (Failure("error", "") if ended.status == "FAILED" else None)
        attributes: dict[str, str | int] = {
            "headrace.execution_id": ended.execution_id,
            "headrace.workflow": ended.workflow,
            "headrace.run": ended.run,
            "headrace.status": ended.status,
        }
        own = self._of_run(ended.execution_id, ended.run, given)
        kind = SpanKind.SERVER if given else SpanKind.INTERNAL
        times_ns = (ended.begun_ms * 1_000_000, ended.ended_ms * 1_000_000)
        self._add(own, given, ended.workflow, times_ns, attributes=attributes, failure=failure, kind=kind)

    async def attempt(self, task: Task, worker: str, traceparent: str | None, run: Run) -> Outcome:
        """Runs an attempt within its span; `traceparent` is what the request brought. Spans that the handler makes with
        OpenTelemetry, in whatever provider, are children of it."""
        parent = self._of_run(task.execution_id, task.run, trace.read(traceparent) if traceparent else None)
        own = TraceContext(parent.trace_id, trace.span_of_attempt(task), parent.flags)
        attributes: dict[str, str | int] = {
            "headrace.execution_id": task.execution_id,
            "headrace.run": task.run,
            "headrace.node": task.node,
            "headrace.attempt": task.attempt,
            "headrace.handler": task.handler,
            "headrace.worker": worker,
            "headrace.outcome": "stopped",  # cancelled, lost or given back, unless it comes to an end
        }
        failure = None
        begun_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
        token = otel_context.attach(_inside(own))
        try:
            outcome = await run(task, own.header)
            failure = outcome.failure
            attributes["headrace.outcome"] = failure.code if failure else "completed"
            return outcome
        finally:
            otel_context.detach(token)
            times_ns = (begun_ns, begun_ns + time.perf_counter_ns() - clock_ns)
            self._add(own, parent, task.node, times_ns, attributes=attributes, failure=failure)

    def _of_run(self, execution_id: str, run: int, given: TraceContext | None) -> TraceContext:
        """The run's span. Whether it is sampled is the same in all processes that have the same sampler."""
        trace_id = given.trace_id if given else trace.trace_of(execution_id)
        sampling = self._provider.sampler.should_sample(_inside(given), int(trace_id, 16), "run")
        is_sampled = sampling.decision is Decision.RECORD_AND_SAMPLE
        others = given.flags & ~SAMPLED if given else 0
        return TraceContext(trace_id, trace.span_of_run(execution_id, run), others | is_sampled)

    def _add(
        self,
        own: TraceContext,
        parent: TraceContext | None,
        name: str,
        times_ns: tuple[int, int],
        *,
        attributes: Mapping[str, str | int],
        failure: Failure | None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self._ids.known = own
        span = self._tracer.start_span(name, _inside(parent), kind, attributes, start_time=times_ns[0])
        if failure is not None:
            span.set_attribute("error.type", failure.type or failure.code)
            span.set_status(Status(StatusCode.ERROR, failure.message))
        span.end(max(times_ns))


class _Known(IdGenerator):
    """Gives the next span the ids that it has already."""

    known: TraceContext

    def generate_trace_id(self) -> int:
        return int(self.known.trace_id, 16)

    def generate_span_id(self) -> int:
        return int(self.known.span_id, 16)


def _inside(span: TraceContext | None) -> Context:
    """The context in which this span is the current one, and nothing else is known."""
    if span is None:
        return Context()
    trace_id, span_id = int(span.trace_id, 16), int(span.span_id, 16)
    known = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(span.flags))
    return set_span_in_context(NonRecordingSpan(known), Context())


def _resource(name: str) -> Resource:
    resource = Resource.create({SERVICE_INSTANCE_ID: name})
    if str(resource.attributes[SERVICE_NAME]).startswith(UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: "headrace"}))
    return resource
