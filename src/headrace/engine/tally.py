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

from headrace.model.messages import Event
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


# By the state as events have it.
BEGUN: Final = NodeState.RUNNING.value
COUNTED: Final = {str(state): f"nodes:{outcome}" for state, outcome in OUTCOMES.items()}
RUNS: Final = ExecutionState.RUNNING.value
ENDED: Final = {state.value: f"executions:{state.name}" for state in TERMINAL_EXECUTIONS}


class Tally:
    """Of one partition: what was counted since it was last taken away."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._started_ms: dict[Hashable, int] = {}

    def take(self) -> Counter[str]:
        taken, self._counts = self._counts, Counter()
        return taken

    def add(self, events: Iterable[Event]) -> None:
        started_ms = self._started_ms
        happened: list[str] = []
        attempts_ms: list[int] = []
        executions_ms: list[int] = []
        for event in events:
            execution_id, run, at_ms, status = event.execution_id, event.run, event.at_ms, event.status
            for change in event.changes:
                state = change.state
                if state == BEGUN:  # reopened after a loss, it still began when it began
                    started_ms.setdefault((execution_id, run, change.node, change.attempt), at_ms)
                elif state in COUNTED:
                    happened.append(COUNTED[state])
                    began_ms = started_ms.pop((execution_id, run, change.node, change.attempt), None)
                    if began_ms is not None:
                        attempts_ms.append(at_ms - began_ms)
                    if change.detail.startswith(LOST):
                        happened.append("lost_leases")
            if status == RUNS:
                started_ms.setdefault((execution_id, run), at_ms)
            elif status in ENDED:
                happened.append(ENDED[status])
                began_ms = started_ms.pop((execution_id, run), None)
                if began_ms is not None:
                    executions_ms.append(at_ms - began_ms)
        self._counts.update(happened)
        self._time("attempt", attempts_ms)
        self._time("execution", executions_ms)
        while len(started_ms) > MOST_STARTED:
            del started_ms[next(iter(started_ms))]  # the oldest

    def _time(self, kind: str, took_ms: Iterable[int]) -> None:
        for ms, count in Counter(took_ms).items():
            self._counts[f"{kind}:bucket:{bisect_left(BOUNDS_SECONDS, ms / 1000)}"] += count
            self._counts[f"{kind}:ms"] += max(0, ms) * count
