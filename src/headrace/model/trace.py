"""Where a run stands in a distributed trace: W3C Trace Context, and ids that are computed instead of stored.

A run belongs to the trace of the request that asked for it, if that brought a `traceparent`, and else to a trace of its
execution. The ids of its spans are made from what names a run or an attempt, so that every process knows them without
being told.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from headrace.model.messages import Task

SAMPLED = 1
KNOWN_FLAGS = 3  # sampled, and random trace id
_TRACEPARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceContext(NamedTuple):
    """A span as others refer to it. Both ids are hexadecimal."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def read(header: str) -> TraceContext | None:
    """What a `traceparent` says. One that is malformed means nothing; of a later version only what is known counts."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16) & KNOWN_FLAGS)


def trace_of(execution_id: str) -> str:
    """Not the id itself: samplers want all bits of a trace id to be random, and some of a UUID's are not."""
    return blake2b(execution_id.encode(), digest_size=16).hexdigest()


def span_of_run(execution_id: str, run: int) -> str:
    """The same before and after a rebuild."""
    return _span(f"{execution_id}|{run}")


def span_of_attempt(task: Task) -> str:
    """The epoch counts: an attempt that was lost with the store may have had the same number."""
    return _span(f"{task.execution_id}|{task.epoch}|{task.run}|{task.node}|{task.attempt}")


def _span(name: str) -> str:
    return blake2b(name.encode(), digest_size=8).hexdigest()
