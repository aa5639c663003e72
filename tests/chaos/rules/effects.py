"""What handlers did to the world, as the effect server saw it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.chains import changes
from tests.chaos.evidence import Call, Evidence
from tests.chaos.losses import Losses
from tests.chaos.violation import Violation


def one_call_per_token(evidence: Evidence) -> Iterator[Violation]:
    """An attempt's handler is called once. Only a store that came back with older data, of which SQL did not know yet
    that it was claimed, may hand it out again."""
    losses = Losses(evidence)
    last: dict[str, Call] = {}
    for call in evidence.starts:
        earlier = last.get(call.token)
        last[call.token] = call
        if earlier and not losses.went_back_before_archived(earlier.at):
            yield _violation("one call per token", call, f"attempt {call.attempt} was called twice: {call.token}")


def calls_were_claimed(evidence: Evidence) -> Iterator[Violation]:
    """No handler is called without a claim: so there are at most as many calls as tokens claimed."""
    losses = Losses(evidence)
    claimed = {
        (event.execution, event.epoch, event.run, change.node, change.attempt)
        for event, change in changes(evidence.events, "R")
    }
    for call in evidence.starts:
        token = (call.execution, call.epoch, call.run, call.node, call.attempt)
        if token not in claimed and not losses.forgot(_began(evidence, call.execution), call.at):
            yield _violation("calls were claimed", call, f"attempt {call.attempt} was called and never claimed")


def keys_are_constant(evidence: Evidence) -> Iterator[Violation]:
    """One idempotency key for all attempts of a node in a run, and another one for everything else."""
    by_run: dict[tuple[str, int, str], str] = {}
    by_key: dict[str, tuple[str, int, str]] = {}
    for call in evidence.calls:
        run = (call.execution, call.run, call.node)
        if by_run.setdefault(run, call.key) != call.key:
            yield _violation("keys are constant", call, f"run {call.run} has the keys {by_run[run]} and {call.key}")
        if by_key.setdefault(call.key, run) != run:
            yield _violation("keys are constant", call, f"the key {call.key} is also that of {by_key[call.key]}")


def parents_were_done(evidence: Evidence) -> Iterator[Violation]:
    """No handler is called before the handlers of all its parents have ended with success."""
    losses = Losses(evidence)
    done = _first_completions(evidence)
    for call in evidence.starts:
        accepted = evidence.accepted.get(call.execution)
        for parent in accepted.parents.get(call.node, ()) if accepted else ():
            at = done.get((call.execution, parent))
            if (at is None or at > call.at) and not losses.forgot(_began(evidence, call.execution), call.at):
                yield _violation("parents were done", call, f"it was called before {parent} was complete")


def parents_had_ended(evidence: Evidence) -> Iterator[Violation]:
    """The same from the ledger alone, where nothing is ever lost: some call of each parent had ended."""
    ended: dict[tuple[str, str], float] = {}
    for call in evidence.calls:
        if call.phase == "end":
            at = ended.setdefault((call.execution, call.node), call.at)
            ended[call.execution, call.node] = min(at, call.at)
    for call in evidence.starts:
        accepted = evidence.accepted.get(call.execution)
        for parent in accepted.parents.get(call.node, ()) if accepted else ():
            if ended.get((call.execution, parent), float("inf")) > call.at:
                yield _violation("parents had ended", call, f"no call of {parent} had ended before")


def _first_completions(evidence: Evidence) -> dict[tuple[str, str], float]:
    """(execution, node) -> when it was first complete, in the hot store or in SQL."""
    done = {key: row.finished_ms / 1000 for key, row in evidence.completed.items()}
    for event, change in changes(evidence.events, "C"):
        key = (event.execution, change.node)
        done[key] = min(done.get(key, event.at), event.at)
    return done


def _began(evidence: Evidence, execution: str) -> float:
    stored = evidence.stored.get(execution)
    return stored.created_ms / 1000 if stored else 0.0


def _violation(rule: str, call: Call, says: str) -> Violation:
    return Violation(rule, says, call.execution, call.node)
