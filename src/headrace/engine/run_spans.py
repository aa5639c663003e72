"""A span for each run that has ended, told by the archiver: it commits each end once, so there is one span of each.

Nothing depends on a span: where SQL does not answer, or this process dies after the commit, there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import structlog

from headrace.model.messages import Event, Failure
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState
from headrace.record.readings import Begun, Readings

if TYPE_CHECKING:  # an optional dependency
    from headrace.tracing import EndedRun, Tracer

_decode_failure = msgspec.json.Decoder(Failure).decode

log = structlog.get_logger(__name__)


class RunSpans:
    def __init__(self, tracer: Tracer, readings: Readings) -> None:
        self._tracer = tracer
        self._readings = readings

    async def add(self, events: Iterable[Event]) -> None:
        """Of these, which SQL has now, those that end a run."""
        ends = {event.execution_id: event for event in events if event.status in TERMINAL_EXECUTIONS}
        if not ends:
            return
        try:
            for begun in await self._readings.begun(list(ends)):
                self._tracer.run_ended(_ended(begun, ends[begun.execution_id]))
        except Exception as error:  # it must not stop the archive
            log.warning("spans were dropped", count=len(ends), error=str(error))


def _ended(begun: Begun, end: Event) -> EndedRun:
    from headrace.tracing import EndedRun

    return EndedRun(
        execution_id=end.execution_id,
        run=end.run,
        workflow=begun.workflow,
        status=ExecutionState(end.status).name,
        begun_ms=begun.begun_ms or end.at_ms,
        ended_ms=end.at_ms,
        failure=_decode_failure(begun.error) if begun.error else None,
        traceparent=begun.traceparent,
    )
