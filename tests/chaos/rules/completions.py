"""Every node completes once, and what SQL knows to be complete never runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.chains import changes
from tests.chaos.evidence import Attempt, Evidence, digest_of
from tests.chaos.losses import Losses
from tests.chaos.violation import Violation

CLOCK_SECONDS = 0.01  # the store's times are whole milliseconds


def one_completion_per_node(evidence: Evidence) -> Iterator[Violation]:
    """In SQL. A completion stands over all later runs, so it is one per node and not only per run."""
    count = Counter((row.execution, row.node) for row in evidence.attempts if row.state == "COMPLETED")
    for (execution, node), times in count.items():
        if times > 1:
            yield Violation("one completion per node", f"it has {times} completions", execution, node)


def nothing_follows_a_completion(evidence: Evidence) -> Iterator[Violation]:
    """In SQL: the attempt that completed a node is its last one."""
    for row in evidence.attempts:
        done = evidence.completed.get((row.execution, row.node))
        if done and (row.run, row.attempt) > (done.run, done.attempt):
            says = f"attempt {row.attempt} of run {row.run} is {row.state} after a completion"
            yield Violation("nothing follows a completion", says, row.execution, row.node)


def completions_stand(evidence: Evidence) -> Iterator[Violation]:
    """Every completion that the hot store told of is in SQL, unless the store forgot before it was archived."""
    losses = Losses(evidence)
    for event, change in changes(evidence.events, "C"):
        row = evidence.completed.get((event.execution, change.node))
        stands = row and (row.run, row.attempt, digest_of(row)) == (event.run, change.attempt, change.detail)
        if not stands and not losses.before_archived(event.at):
            says = f"it completed in attempt {change.attempt} of run {event.run}, and SQL does not know"
            yield Violation("completions stand", says, event.execution, change.node)


def what_is_complete_does_not_run_again(evidence: Evidence) -> Iterator[Violation]:
    """A claim after the completion that SQL has. Only a store that came back with older data, while the completion was
    on its way to SQL, may give one out, in an epoch that was there before."""
    losses = Losses(evidence)
    last_epoch_at = _openings(evidence)
    for event, change in changes(evidence.events, "R"):
        row = evidence.completed.get((event.execution, change.node))
        if row is None or event.at_ms <= row.finished_ms:
            continue
        done_at = row.finished_ms / 1000
        is_old_epoch = last_epoch_at[event.execution, event.epoch] <= done_at
        if not (is_old_epoch and losses.went_back_before_archived(done_at)):
            says = f"attempt {change.attempt} of run {event.run} was claimed after it had completed"
            yield Violation("what is complete does not run again", says, event.execution, change.node)


def attempts_are_not_reused(evidence: Evidence) -> Iterator[Violation]:
    """A claimed attempt's number is not claimed again in another epoch, unless SQL could not know of the first."""
    losses = Losses(evidence)
    first: dict[tuple[str, int, str, int], tuple[str, float]] = {}
    for event, change in changes(evidence.events, "R"):
        attempt = (event.execution, event.run, change.node, change.attempt)
        epoch, at = first.setdefault(attempt, (event.epoch, event.at))
        if epoch != event.epoch and not losses.before_archived(at):
            says = f"attempt {change.attempt} of run {event.run} was claimed in two epochs"
            yield Violation("attempts are not reused", says, event.execution, change.node)


def completions_were_worked_for(evidence: Evidence) -> Iterator[Violation]:
    """A node completes by the call of exactly that attempt, in that epoch: no other result is taken for it."""
    ended = {call.token: call.at for call in reversed(evidence.calls) if call.phase == "end"}  # the first of each
    for event, change in changes(evidence.events, "C"):
        token = f"{event.execution}|{event.epoch}|{event.run}|{change.node}|{change.attempt}"
        if ended.get(token, float("inf")) > event.at + CLOCK_SECONDS:
            says = f"attempt {change.attempt} of run {event.run} completed, and its handler had not ended"
            yield Violation("completions were worked for", says, event.execution, change.node)


def attempts_come_to_an_end(evidence: Evidence) -> Iterator[Violation]:
    """A claimed attempt ends, or another follows it in its run; a cancel, or a store that forgot, leaves it open."""
    losses = Losses(evidence)
    last: dict[tuple[str, int, str], Attempt] = {}
    for row in evidence.attempts:
        key = (row.execution, row.run, row.node)
        last[key] = max(last.get(key, row), row, key=lambda each: each.attempt)
    for row in last.values():
        stored = evidence.stored.get(row.execution)
        was_cancelled = (row.execution, "cancel") in evidence.actions
        if row.state != "RUNNING" or stored is None or was_cancelled:
            continue
        if not losses.forgot(row.started_ms / 1000, evidence.healed_at):
            says = f"attempt {row.attempt} of run {row.run} was never heard of again"
            yield Violation("attempts come to an end", says, row.execution, row.node)


def _openings(evidence: Evidence) -> dict[tuple[str, str], float]:
    """(execution, epoch) -> when its first event was."""
    found: dict[tuple[str, str], float] = {}
    for event in evidence.events:
        found.setdefault((event.execution, event.epoch), event.at)
    return found
