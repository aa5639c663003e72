"""How executions ended: all of them, as the oracle says, and only as somebody asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from headrace.model.retry import MAX_LOST_LEASES
from tests.chaos.evidence import Accepted, Attempt, Evidence, Stored
from tests.chaos.oracle import Expected, expect
from tests.chaos.violation import Violation

ENDS_WITHIN_SECONDS = 60.0
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")


def accepted_are_recorded(evidence: Evidence) -> Iterator[Violation]:
    """What was answered with a success is in SQL."""
    for execution in evidence.accepted.keys() - evidence.stored.keys():
        yield Violation("accepted are recorded", "a client was promised it, and SQL does not know it", execution)


def all_have_ended(evidence: Evidence) -> Iterator[Violation]:
    """Everything that was triggered, whether the client heard of it or not, within a minute after the last fault."""
    latest = evidence.healed_at + ENDS_WITHIN_SECONDS
    for stored in evidence.stored.values():
        if stored.status == "RUNNING":
            yield Violation("all have ended", "it is still RUNNING", stored.execution)
        elif stored.status == "PENDING" and stored.execution in evidence.accepted:
            yield Violation("all have ended", "it was triggered and is still PENDING", stored.execution)
        elif stored.finished_ms / 1000 > latest:
            late = stored.finished_ms / 1000 - evidence.healed_at
            yield Violation("all have ended", f"it ended {late:.0f} s after the last fault", stored.execution)


def ended_as_expected(evidence: Evidence) -> Iterator[Violation]:
    """As the oracle says; or FAILED for good reason, where workers were lost or attempts took too long."""
    for accepted, stored in _pairs(evidence):
        expected = expect(accepted.definition, stored.run)
        if stored.status not in TERMINAL or stored.status == expected.status:
            continue
        if stored.status == "CANCELLED" and stored.cancelled_run == stored.run:
            continue
        rows = evidence.by_execution.get(stored.execution, [])
        if stored.status == "FAILED" and any(_is_excused(row, rows, accepted, stored.run) for row in rows):
            continue
        if stored.error == "timeout" and not stored.error_node and accepted.definition.get("timeout_seconds"):
            continue
        says = f"it is {stored.status} ({stored.error or 'no error'} of {stored.error_node or 'none'})"
        yield Violation("ended as expected", f"{says}, and the oracle says {expected.status}", stored.execution)


def _is_excused(row: Attempt, rows: list[Attempt], accepted: Accepted, run: int) -> bool:
    """A node that took as many workers with it as the policy allows, or whose every attempt was too slow."""
    if (row.state, row.run) != ("FAILED", run):
        return False
    if row.code == "worker_lost":
        lost = [one for one in rows if (one.run, one.node, one.code) == (run, row.node, "worker_lost")]
        return len(lost) >= MAX_LOST_LEASES
    return row.code == "timeout" and accepted.nodes[row.node].get("timeout_seconds") is not None


def outputs_equal_oracle(evidence: Evidence) -> Iterator[Violation]:
    """Of every node that completed, in whatever run, attempt and order."""
    expected: dict[tuple[str, int], Expected] = {}
    for row in evidence.completed.values():
        accepted = evidence.accepted.get(row.execution)
        if accepted is None:
            continue
        key = (row.execution, row.run)
        if key not in expected:
            expected[key] = expect(accepted.definition, row.run)
        wanted = expected[key].outputs.get(row.node)
        if wanted is None:
            yield Violation(
                "outputs equal oracle", f"it completed in run {row.run}, and cannot", row.execution, row.node
            )
        elif json.loads(row.output or "null") != wanted:
            says = f"its output is {(row.output or '')[:80]}, and should be {json.dumps(wanted)[:80]}"
            yield Violation("outputs equal oracle", says, row.execution, row.node)


def every_node_is_accounted_for(evidence: Evidence) -> Iterator[Violation]:
    """COMPLETED: all nodes are. FAILED with on_failure continue: all but those below a failed one."""
    for accepted, stored in _pairs(evidence):
        open_nodes = [name for name in accepted.nodes if (stored.execution, name) not in evidence.completed]
        if stored.status == "COMPLETED":
            for name in open_nodes:
                yield Violation("every node is accounted for", "COMPLETED without it", stored.execution, name)
        elif stored.status == "FAILED" and accepted.definition.get("on_failure") == "continue":
            yield from _left_out(evidence, accepted, stored, open_nodes)


def _left_out(evidence: Evidence, accepted: Accepted, stored: Stored, open_nodes: list[str]) -> Iterator[Violation]:
    rows = evidence.by_execution.get(stored.execution, ())
    failed = {row.node for row in rows if (row.run, row.state) == (stored.run, "FAILED")}
    if stored.error == "timeout" and not stored.error_node:
        return  # the execution's own time was up
    for name in open_nodes:
        if name not in failed and failed.isdisjoint(_ancestors(accepted.parents, name)):
            yield Violation("every node is accounted for", "nothing above it failed", stored.execution, name)


def _ancestors(parents: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(parents[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def same_key_same_execution(evidence: Evidence) -> Iterator[Violation]:
    """A client that repeats a request gets what it got before."""
    for key, executions in evidence.submitted_twice.items():
        if len(executions) > 1:
            says = f"the Idempotency-Key {key} gave {', '.join(sorted(executions))}"
            yield Violation("same key, same execution", says)


def nothing_runs_unasked(evidence: Evidence) -> Iterator[Violation]:
    """Clients repeat what was not answered, under the same Idempotency-Key: that starts nothing of its own."""
    for stored in evidence.stored.values():
        if stored.status != "PENDING" and stored.execution not in evidence.accepted:
            yield Violation("nothing runs unasked", "no client was ever told of it", stored.execution)


def runs_were_asked_for(evidence: Evidence) -> Iterator[Violation]:
    """A next run needs a retry, and an end as CANCELLED a cancel; each took effect once."""
    for stored in evidence.stored.values():
        retries = evidence.actions.get((stored.execution, "retry"), 0)
        if stored.status != "PENDING" and stored.run != 1 + retries:
            says = f"it is in run {stored.run} after {retries} retries"
            yield Violation("runs were asked for", says, stored.execution)
        if stored.status == "CANCELLED" and stored.cancelled_run != stored.run:
            yield Violation("runs were asked for", "nobody cancelled this run", stored.execution)
        if stored.cancelled_run and not evidence.actions.get((stored.execution, "cancel")):
            yield Violation("runs were asked for", "a cancel that is not in the trail", stored.execution)


def _pairs(evidence: Evidence) -> Iterator[tuple[Accepted, Stored]]:
    for execution, accepted in evidence.accepted.items():
        stored = evidence.stored.get(execution)
        if stored is not None:
            yield accepted, stored
