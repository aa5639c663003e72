"""A node is tried as often as its policy says: not more, and, before it is given up, not less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.model.definition import RetryConfig
from headrace.model.retry import MAX_LOST_LEASES
from tests.chaos.evidence import Attempt, Evidence
from tests.chaos.violation import Violation

LEASE_SLACK_SECONDS = 5.0  # what a fault has disturbed takes its time to settle


def retries_are_within_the_policy(evidence: Evidence) -> Iterator[Violation]:
    """No more retries than the node's policy allows, and no more lost leases than any node may have."""
    for (execution, run, node), rows in _by_run(evidence).items():
        accepted = evidence.accepted.get(execution)
        if accepted is None:
            continue
        most = _most(evidence, accepted.nodes[node])
        again = [row for row in rows if row.state == "RETRYING"]
        lost = [row for row in again if row.code == "worker_lost"]
        if len(again) - len(lost) > most:
            says = f"run {run} has {len(again) - len(lost)} retries, and {most} are allowed"
            yield Violation("retries are within the policy", says, execution, node)
        if len(lost) >= MAX_LOST_LEASES:
            says = f"run {run} goes on after {len(lost)} lost leases"
            yield Violation("retries are within the policy", says, execution, node)


def nothing_is_given_up_early(evidence: Evidence) -> Iterator[Violation]:
    """A failure that may be retried is final only when the budget is used up, or when the execution had ended."""
    for (execution, run, node), rows in _by_run(evidence).items():
        accepted, stored = evidence.accepted.get(execution), evidence.stored.get(execution)
        failed = next((row for row in rows if row.state == "FAILED"), None)
        if accepted is None or stored is None or failed is None or not failed.retryable:
            continue
        continues = accepted.definition.get("on_failure") == "continue"
        if not continues and (stored.run, stored.error_node) != (run, node):
            continue  # something else had failed before, and nothing is tried again then
        lost = failed.code == "worker_lost"
        most = MAX_LOST_LEASES - 1 if lost else _most(evidence, accepted.nodes[node])
        used = sum(row.state == "RETRYING" and (row.code == "worker_lost") == lost for row in rows)
        if used < most:
            says = f"run {run} failed for good ({failed.code}) after {used} of {most} retries"
            yield Violation("nothing is given up early", says, execution, node)


def leases_are_lost_for_a_reason(evidence: Evidence) -> Iterator[Violation]:
    """Some fault was at work while the attempt ran."""
    faults = sorted((fault.at, fault.healed_at) for fault in evidence.faults)
    for row in evidence.attempts:
        if row.code != "worker_lost":
            continue
        start, end = row.started_ms / 1000 - LEASE_SLACK_SECONDS, row.finished_ms / 1000
        if not any(at <= end and healed_at >= start for at, healed_at in faults):
            says = f"attempt {row.attempt} of run {row.run} lost its worker, and nothing was wrong"
            yield Violation("leases are lost for a reason", says, row.execution, row.node)


def _by_run(evidence: Evidence) -> dict[tuple[str, int, str], list[Attempt]]:
    found: dict[tuple[str, int, str], list[Attempt]] = {}
    for row in evidence.attempts:
        found.setdefault((row.execution, row.run, row.node), []).append(row)
    return found


def _most(evidence: Evidence, node: Mapping[str, Any]) -> int:
    own = msgspec.convert(node.get("retry_config") or {}, RetryConfig)
    return own.over(evidence.settings.retry).max_retries or 0
