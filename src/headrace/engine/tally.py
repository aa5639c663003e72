"""What happened to nodes and executions, counted by the archiver from the events that it has applied.

An orchestrator has no port of its own, so the counts are added up in the hot store, one hash per partition, and every
API shows the same sums (metrics.py). They are for rates and alarms, not a record: a process that dies may leave out
its last batch, and a wiped store begins again at zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from headrace.model.messages import Change, Event
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState, NodeState

BOUNDS_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
BEYOND: Final = len(BOUNDS_SECONDS)  # the number of the last bucket, without a bound
MOST_STARTED: Final = 50_000  # beginnings that are remembered at once; an end without one is counted, not timed

OUTCOMES: Final[Mapping[str, str]] = {
    NodeState.COMPLETED: "completed",
    NodeState.FAILED: "failed",
    NodeState.RETRYING: "retried",
    NodeState.SKIPPED: "skipped",
}
LOST: Final = '{"code":"worker_lost"'  # the beginning of a Failure


class Tally:
    """Of one partition: what was counted since it was last taken away."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._started_ms: dict[Hashable, int] = {}

    def take(self) -> Counter[str]:
        taken, self._counts = self._counts, Counter()
        return taken

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            for change in event.changes:
                self._add_change(event, change)
            if event.status == ExecutionState.RUNNING:
                self._begin((event.execution_id, event.run), event.at_ms)
            elif event.status in TERMINAL_EXECUTIONS:
                self._counts[f"executions:{ExecutionState(event.status).name}"] += 1
                self._end("execution", (event.execution_id, event.run), event.at_ms)

    def _add_change(self, event: Event, change: Change) -> None:
        attempt = (event.execution_id, event.run, change.node, change.attempt)
        if change.state == NodeState.RUNNING:
            self._begin(attempt, event.at_ms)
        elif outcome := OUTCOMES.get(change.state):
            self._counts[f"nodes:{outcome}"] += 1
            self._end("attempt", attempt, event.at_ms)
            if change.detail.startswith(LOST):
                self._counts["lost_leases"] += 1

    def _begin(self, what: Hashable, at_ms: int) -> None:
        self._started_ms.setdefault(what, at_ms)  # reopened after a loss, it still began when it began
        if len(self._started_ms) > MOST_STARTED:
            del self._started_ms[next(iter(self._started_ms))]  # the oldest

    def _end(self, kind: str, what: Hashable, at_ms: int) -> None:
        if (began_ms := self._started_ms.pop(what, None)) is None:
            return
        took_ms = max(0, at_ms - began_ms)
        self._counts[f"{kind}:bucket:{bisect_left(BOUNDS_SECONDS, took_ms / 1000)}"] += 1
        self._counts[f"{kind}:ms"] += took_ms
