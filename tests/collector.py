"""An OTLP collector on loopback: what spans were sent to it, decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.model.trace import SAMPLED, TraceContext
from tests.hostile_server import HostileServer, Seen, answer, serving


@dataclass(frozen=True)
class Sent:
    """A span; ids are hexadecimal, `parent` is empty for a root."""

    context: TraceContext
    parent: str
    name: str
    kind: int
    begun_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    service: str
    is_error: bool
    error: str


class Collector:
    def __init__(self, server: HostileServer) -> None:
        self._server = server
        self.url = server.url

    @property
    def requests(self) -> list[Seen]:
        return self._server.requests

    @property
    def spans(self) -> list[Sent]:
        return [span for seen in self.requests if seen.target == "/v1/traces" for span in _spans(seen.body)]


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    async with serving(answer(headers={"Content-Type": "application/x-protobuf"})) as server:
        yield Collector(server)


def _spans(body: bytes) -> list[Sent]:
    found: list[Sent] = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            context = TraceContext(span.trace_id.hex(), span.span_id.hex(), SAMPLED)  # or it would not be here
            found.append(
                Sent(
                    context,
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    service,
                    span.status.code == span.status.STATUS_CODE_ERROR,
                    span.status.message,
                )
            )
    return found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
