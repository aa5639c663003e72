"""The record is what happened: SQL equals the history that its last event ends, and nothing was left out."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.state import ExecutionState, NodeState
from tests.chaos.chains import Chain, chains
from tests.chaos.evidence import Attempt, Evidence, Seen, Stored, digest_of
from tests.chaos.losses import Losses
from tests.chaos.violation import Violation

RULE = "the archive equals the history"


def the_archive_equals_the_history(evidence: Evidence) -> Iterator[Violation]:
    """Of each execution: from the opening of SQL's epoch to SQL's last event, every state and output, and the end."""
    losses = Losses(evidence)
    found = chains(evidence)
    for stored in evidence.stored.values():
        if stored.status == "PENDING":
            continue
        chain = found.get((stored.execution, stored.epoch))
        path = chain.path(stored.last_event) if chain else None
        if chain is None or path is None:
            if not losses.forgot(stored.created_ms / 1000, stored.finished_ms / 1000):
                yield Violation(RULE, f"nobody saw how it came to {stored.last_event}", stored.execution)
            continue
        yield from _compare(evidence, stored, path)
        if chain.goes_on_behind(stored.last_event) and not _is_forgotten(chain, stored, losses):
            yield Violation(RULE, f"there are events behind SQL's last one, {stored.last_event}", stored.execution)


def _compare(evidence: Evidence, stored: Stored, path: list[Seen]) -> Iterator[Violation]:
    status = next((event.status for event in reversed(path) if event.status), "")
    if not status or ExecutionState(status).name != stored.status:
        yield Violation(RULE, f"it ended as {status or 'nothing'}, and SQL says {stored.status}", stored.execution)
    rows = {
        (row.node, row.attempt): row for row in evidence.by_execution.get(stored.execution, ()) if row.run == stored.run
    }
    last = {(change.node, change.attempt): change for event in path for change in event.changes}
    for (node, attempt), change in last.items():
        row = rows.get((node, attempt))
        if row is None or not _is_equal(row, change.state, change.detail):
            says = f"attempt {attempt} is {change.state}, and SQL says {row.state if row else 'nothing'}"
            yield Violation(RULE, says, stored.execution, node)


def _is_equal(row: Attempt, state: str, detail: str) -> bool:
    if row.state != NodeState(state).name:
        return False
    return state != NodeState.COMPLETED or digest_of(row) == detail


def _is_forgotten(chain: Chain, stored: Stored, losses: Losses) -> bool:
    """What follows was said by a store that then forgot it."""
    return all(losses.before_archived(event.at) for event in chain.events if event.previous == stored.last_event)


def all_events_are_archived(evidence: Evidence) -> Iterator[Violation]:
    """SQL has read every partition's events to the end."""
    for partition, last in evidence.hot.last_events.items():
        if _parts(evidence.cursors.get(partition, "0-0")) < _parts(last):
            says = f"SQL is at {evidence.cursors.get(partition)} of partition {partition}, whose last event is {last}"
            yield Violation("all events are archived", says)


def nothing_was_set_aside(evidence: Evidence) -> Iterator[Violation]:
    """SQL has refused no event."""
    if evidence.set_aside:
        yield Violation("nothing was set aside", f"{evidence.set_aside} events could not be written")


def dead_letters_equal_failures(evidence: Evidence) -> Iterator[Violation]:
    """One for each node that failed for good in a run, and no other."""
    failed = {(row.execution, row.run, row.node) for row in evidence.attempts if row.state == "FAILED"}
    for execution, run, node in failed - evidence.letters:
        yield Violation("dead letters equal failures", f"it failed in run {run} without one", execution, node)
    for execution, run, node in evidence.letters - failed:
        yield Violation("dead letters equal failures", f"it has one of run {run} and did not fail", execution, node)


def late_results_are_counted(evidence: Evidence) -> Iterator[Violation]:
    """Every report that a worker was told to be stale, since the store last forgot its counts. What a worker whose
    clock is ahead has noted cannot be placed."""
    losses = Losses(evidence)
    now = evidence.hot.now_ms / 1000
    told = sum(count for at, count in evidence.refused if at <= now and not losses.forgot(at, now))
    if evidence.hot.late_results < told:
        says = f"{told} reports were refused, and the counter says {evidence.hot.late_results}"
        yield Violation("late results are counted", says)


def _parts(event_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in event_id.split("-"))
