"""How states moved, as the watcher saw it and as SQL has it: only along the table of model/state.py.

The table has a state that no event tells of (REPORTED), so a move that is seen may be two of the table's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.model.state import EXECUTION_TRANSITIONS, NODE_TRANSITIONS, ExecutionState, NodeState
from tests.chaos.chains import Chain, chains
from tests.chaos.evidence import Change, Evidence, Seen
from tests.chaos.losses import Losses
from tests.chaos.violation import Violation

RULE = "states move along the table"
ENDED = {ExecutionState.COMPLETED, ExecutionState.FAILED, ExecutionState.CANCELLED}


def _visible_moves() -> set[tuple[str, str]]:
    moves = {(str(source), str(to)) for _, source, to in NODE_TRANSITIONS}
    hidden = str(NodeState.REPORTED)
    through = {(a, d) for a, b in moves if b == hidden for c, d in moves if c == hidden}
    return {move for move in moves | through if hidden not in move}


NODE_MOVES = _visible_moves()
EXECUTION_MOVES = {(str(source), str(to)) for _, source, to in EXECUTION_TRANSITIONS}
LATE = {("R", "C"), ("R", "F"), ("R", "Q")}  # what may still happen in a FAILED execution: attempts under way end
PENDING = ("P", 0)


@dataclass
class History:
    """An execution at some point of a chain. `certain`: all before it was seen, so absent nodes are as they were."""

    status: str = str(ExecutionState.OPENING)
    nodes: dict[str, tuple[str, int]] | None = None
    certain: bool = True

    def state(self, node: str) -> tuple[str, int]:
        return (self.nodes or {}).get(node, PENDING)

    def apply(self, event: Seen) -> None:
        self.nodes = self.nodes or {}
        self.nodes.update((change.node, (change.state, change.attempt)) for change in event.changes)
        self.status = event.status or self.status


def states_move_along_the_table(evidence: Evidence) -> Iterator[Violation]:
    """Nodes and executions, attempt by attempt; and nothing begins in an execution that has ended."""
    for chain in chains(evidence).values():
        history, tip = History(), None
        for event in chain.events:
            if chain.before(event) is not tip:
                history = _at(chain, event)
            yield from _check(evidence, event, history)
            history.apply(event)
            tip = event


def _at(chain: Chain, event: Seen) -> History:
    """How it stood before this event, which does not follow on the one that was seen before it."""
    before = chain.before(event)
    path = chain.path(before.id) if before else []
    if path is None or chain.has_hole(event):
        return History(status=str(ExecutionState.RUNNING), certain=False)
    history = History()
    for each in path:
        history.apply(each)
    return history


def _check(evidence: Evidence, event: Seen, history: History) -> Iterator[Violation]:
    if history.certain and event.status and (history.status, event.status) not in EXECUTION_MOVES:
        says = f"the execution went from {history.status} to {event.status} at {event.id}"
        yield Violation(RULE, says, event.execution)
    nodes: dict[str, tuple[str, int]] = {}
    for change in event.changes:
        before = nodes.get(change.node, history.state(change.node))
        known = history.certain or before != PENDING
        if known and (wrong := _wrong(before, change, history)):
            yield Violation(RULE, f"{wrong} at {event.id}", event.execution, change.node)
        nodes[change.node] = (change.state, change.attempt)


def _wrong(before: tuple[str, int], change: Change, history: History) -> str:
    state, attempt = before
    move = (state, change.state)
    if move not in NODE_MOVES:
        return f"{state} became {change.state}"
    if history.status in ENDED and not (history.status == ExecutionState.FAILED and move in LATE):
        return f"{state} became {change.state} in an execution that had ended as {history.status}"
    if before == PENDING:
        return ""  # it may have been tried in an earlier epoch
    expected = attempt + 1 if state == "T" or move == ("R", "Q") else attempt
    return "" if change.attempt == expected else f"attempt {attempt} was followed by {change.attempt}"


def parents_are_complete_when_queued(evidence: Evidence) -> Iterator[Violation]:
    """In the same epoch, or in SQL before it began."""
    losses = Losses(evidence)
    for chain in chains(evidence).values():
        accepted = evidence.accepted.get(chain.execution)
        parents = accepted.parents if accepted else {}
        done: set[str] = set()
        for event in chain.events:
            done |= {change.node for change in event.changes if change.state == "C"}
            for change in event.changes:
                if change.state != "Q":
                    continue
                for parent in parents.get(change.node, ()):
                    row = evidence.completed.get((chain.execution, parent))
                    is_done = parent in done or (row and row.finished_ms <= event.at_ms)
                    if not is_done and not losses.forgot(chain.events[0].at, event.at):  # it may have gone unseen
                        says = f"it was queued before {parent} was"
                        yield Violation("parents are complete", says, event.execution, change.node)


def chains_have_no_holes(evidence: Evidence) -> Iterator[Violation]:
    """Every event follows one that was seen, unless the store forgot."""
    losses = Losses(evidence)
    for chain in chains(evidence).values():
        for event in chain.events:
            if chain.has_hole(event) and not losses.forgot(chain.events[0].at, event.at):
                says = f"event {event.id} follows {event.previous}, which nobody saw"
                yield Violation("chains have no holes", says, event.execution)


def chains_do_not_branch(evidence: Evidence) -> Iterator[Violation]:
    """Two events after the same one: only where the store came back with older data in between."""
    losses = Losses(evidence)
    for chain in chains(evidence).values():
        after: dict[str, Seen] = {}
        for event in chain.events:
            first = after.setdefault(event.previous, event)
            if first is not event and not losses.went_back(first.at, event.at):
                says = f"{first.id} and {event.id} both follow {event.previous or 'nothing'} in epoch {chain.epoch}"
                yield Violation("chains do not branch", says, event.execution)


def retries_wait_their_time(evidence: Evidence) -> Iterator[Violation]:
    """A node that is RETRYING is not queued before its retry is due."""
    for chain in chains(evidence).values():
        due: dict[str, int] = {}
        for event in chain.events:
            for change in event.changes:
                if change.state == "T":
                    due[change.node] = change.due_ms
                elif change.state == "Q" and event.at_ms < due.pop(change.node, 0):
                    says = f"attempt {change.attempt} was queued before its time"
                    yield Violation("retries wait their time", says, event.execution, change.node)
