"""What must hold in every history, said without the reference: from what the server really did, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.model.messages import Event, Record, Task, Token
from headrace.model.state import EXECUTION_TRANSITIONS, NODE_TRANSITIONS, TERMINAL_EXECUTIONS, TERMINAL_NODES
from tests.conformance.snapshot import ABSENT, Seen

UNTOUCHED = Record()


def _reachable(transitions: Iterable[tuple[str, str, str]]) -> dict[str, set[tuple[str, str]]]:
    """Verb -> every (from, to) that one call may make, in one transition or several."""
    moves: dict[str, set[tuple[str, str]]] = {}
    for verb, source, to in transitions:
        moves.setdefault(verb, set()).add((str(source), str(to)))
    for pairs in moves.values():
        while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
            pairs.update(more)
    return moves


NODE_MOVES = _reachable(NODE_TRANSITIONS)
NODE_MOVES["advance"] |= NODE_MOVES["push"]  # with tasks, the store's method `advance` is `push`
NODE_MOVES["report"] |= NODE_MOVES["complete"]  # with children, `report` is `complete`
EXECUTION_MOVES = _reachable(EXECUTION_TRANSITIONS)
EXECUTION_MOVES["report"] = EXECUTION_MOVES["complete"]


@dataclass
class Invariants:
    parents: Mapping[str, Mapping[str, tuple[str, ...]]]  # execution -> node -> parents
    completed: set[tuple[str, int, str]] = field(default_factory=set)
    claimed: set[Token] = field(default_factory=set)
    chain: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)  # (execution, epoch) -> last seq and id

    def claims(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            assert task.token not in self.claimed, f"{task.token} was claimed twice"
            self.claimed.add(task.token)

    def events(self, new: Iterable[tuple[str, Event]]) -> None:
        for entry_id, event in new:
            seq, last = self.chain.get((event.execution_id, event.epoch), (0, ""))
            assert (event.seq, event.previous) == (seq + 1, last), f"the chain is broken at {entry_id} {event}"
            self.chain[event.execution_id, event.epoch] = (event.seq, entry_id)
            for change in event.changes:
                if change.state == "C":
                    completion = (event.execution_id, event.run, change.node)
                    assert completion not in self.completed, f"{completion} was completed twice"
                    self.completed.add(completion)

    def moved(self, verb: str, execution_id: str, before: Seen, after: Seen) -> None:
        if before is ABSENT or before.epoch != after.epoch:
            assert after.status != "R" or verb == "open" or before.epoch == after.epoch
            return
        assert before.run == after.run, "a run changed within an epoch"
        if before.status != after.status:
            assert before.status not in TERMINAL_EXECUTIONS, f"{execution_id} had ended as {before.status}"
            assert (before.status, after.status) in EXECUTION_MOVES[verb], f"{verb}: {before.status} to {after.status}"
        parents = self.parents[execution_id]
        for name in after.records:
            self._node_moved(verb, name, before.records.get(name, UNTOUCHED), after.records[name])
            if after.records[name].state in "QR" and before.records.get(name) != after.records[name]:
                waits = [one for one in parents[name] if after.records.get(one, UNTOUCHED).state != "C"]
                assert not waits, f"{name} was queued before {waits}"

    def _node_moved(self, verb: str, name: str, before: Record, after: Record) -> None:
        if before.state != after.state:
            assert before.state not in TERMINAL_NODES, f"{name} had ended as {before.state}"
            assert (before.state, after.state) in NODE_MOVES.get(verb, ()), f"{verb}: {before.state} to {after.state}"
        assert before.attempt <= after.attempt, f"the attempts of {name} went down"
        assert before.cursor <= after.cursor, f"the cursor of {name} went back"
