"""What is known of a run: each node's state and times, counts, retries, tokens. Events feed it; the views read it.

lines.py and live.py show it. A change costs the same however large the graph is, and every node is in exactly one of
the groups of `within`, so that counts add up. Durations are between times of events, all of the store's clock; what
still runs is measured by our own clock, set by the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headrace.cli.words import advice, counted, duration
from headrace.model.definition import Definition
from headrace.model.graph import Graph
from headrace.model.messages import Change, Event, Failure
from headrace.model.state import TERMINAL_EXECUTIONS, TERMINAL_NODES, ExecutionState, NodeState, shown


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Output(msgspec.Struct):
    usage: _Usage | None = None


_decode_failure = msgspec.json.Decoder(Failure).decode
_decode_output = msgspec.json.Decoder(_Output).decode


@dataclass(slots=True, eq=False)
class NodeProgress:
    """`reason`: why it was skipped. `failure`: of the last attempt that failed."""

    index: int
    name: str
    state: NodeState = NodeState.PENDING
    attempt: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    due_ms: int = 0
    failure: Failure | None = None
    reason: str = ""

    @property
    def took_seconds(self) -> float | None:
        """Of the last attempt; None if it never ran, or still does."""
        return max(0, self.ended_ms - self.started_ms) / 1000 if self.started_ms and self.ended_ms else None


class Progress:
    def __init__(self, definition: Definition, clock: Callable[[], float] = time.monotonic) -> None:
        self.definition = definition
        self.nodes = [NodeProgress(index, node.id) for index, node in enumerate(definition.nodes)]
        self._named = {node.name: node for node in self.nodes}
        self.within: dict[NodeState, dict[str, NodeProgress]] = {state: {} for state in NodeState}
        self.within[NodeState.PENDING] = dict(self._named)
        self.status = ExecutionState.RUNNING
        self.failure: Failure | None = None  # of the execution itself: it took too long
        self.retries = 0
        self.tokens = 0
        self._clock = clock
        self._ahead_ms: float | None = None  # of the store's clock before ours
        self._first_ms = self._last_ms = 0

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL_EXECUTIONS

    @property
    def left_running(self) -> int:
        """How many nodes an execution that has ended still waits for."""
        return self.count(NodeState.RUNNING) if self.is_over else 0

    @property
    def now_ms(self) -> float:
        """The store's time."""
        return self._clock() * 1000 + (self._ahead_ms or 0)

    @property
    def elapsed_seconds(self) -> float:
        if not self._first_ms:
            return 0.0
        until_ms = self._last_ms if self.is_over and not self.left_running else self.now_ms
        return max(0.0, until_ms - self._first_ms) / 1000

    @property
    def told_seconds(self) -> float:
        """When the last change was, which may be told late."""
        return (self._last_ms - self._first_ms) / 1000

    def count(self, *states: NodeState) -> int:
        return sum(len(self.within[state]) for state in states)

    def apply(self, event: Event) -> list[NodeProgress]:
        """The nodes that it changed."""
        ahead_ms = event.at_ms - self._clock() * 1000
        self._ahead_ms = ahead_ms if self._ahead_ms is None else max(ahead_ms, self._ahead_ms)  # least delayed
        self._first_ms = self._first_ms or event.at_ms
        self._last_ms = max(event.at_ms, self._last_ms)
        changed = [self._change(change, event.at_ms) for change in event.changes]
        if event.status:
            self.status = ExecutionState(event.status)
            if event.error and not event.changes:
                self.failure = _decode_failure(event.error)
            if self.is_over:
                changed += self._end()
        return changed

    def summary(self) -> str:
        """Nodes, time, retries, tokens: `3 of 7 nodes completed in 1.24 s, 1 failed, 3 skipped, 2 retries`"""
        completed, all_of_them = self.count(NodeState.COMPLETED), len(self.nodes)
        parts = [
            f"{completed:,} of {counted(all_of_them, 'node')} completed in {duration(self.elapsed_seconds, 2)}",
            *(
                f"{self.count(state):,} {state.name.lower()}"
                for state in (NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED)
                if self.within[state]
            ),
        ]
        if self.left_running:
            parts.append(f"{self.left_running:,} not waited for")
        if self.retries:
            parts.append(counted(self.retries, "retry", "retries"))
        if self.tokens:
            parts.append(counted(self.tokens, "token"))
        return ", ".join(parts)

    def next_step(self) -> str:
        """What a user can do after a failure; else nothing."""
        if self.status != ExecutionState.FAILED:
            return ""
        first = next(iter(self.within[NodeState.FAILED].values()), None)
        if self.failure:
            what = advice(self.failure, "", "")
        elif first and first.failure:
            what = advice(first.failure, first.name, self.definition.nodes[first.index].handler)
        else:
            return ""
        return f"{what}, then run it again. With --json it shows every node."

    def _change(self, change: Change, at_ms: int) -> NodeProgress:
        node = self._named[change.node]
        node.attempt = change.attempt
        state = shown(NodeState(change.state), ExecutionState.RUNNING)
        match state:
            case NodeState.RUNNING:
                node.started_ms, node.ended_ms = at_ms, 0
            case NodeState.QUEUED:
                node.started_ms = node.ended_ms = 0
            case NodeState.COMPLETED:
                node.ended_ms, node.failure = at_ms, None
                self.tokens += _tokens(change.detail)
            case NodeState.RETRYING:
                node.ended_ms, node.due_ms, node.failure = at_ms, change.due_ms, _decode_failure(change.detail)
                self.retries += 1
            case NodeState.FAILED:
                node.ended_ms, node.failure = at_ms, _decode_failure(change.detail)
            case NodeState.SKIPPED:
                node.reason = f"{change.detail} failed"
        self._move(node, state)
        return node

    def _move(self, node: NodeProgress, state: NodeState) -> None:
        del self.within[node.state][node.name]
        node.state = state
        self.within[state][node.name] = node

    def _end(self) -> list[NodeProgress]:
        """What never started has no event of its own."""
        unfinished = [
            node for state in NodeState if state not in TERMINAL_NODES for node in self.within[state].values()
        ]
        reasons = self._reasons() if self.status == ExecutionState.FAILED and unfinished else {}
        ended_first = "time was up" if self.failure else "the execution failed first"
        stopped = []
        for node in unfinished:
            state = shown(node.state, self.status)
            if state != node.state:
                if node.state == NodeState.RUNNING:
                    node.ended_ms = self._last_ms
                node.reason = reasons.get(node.index, ended_first) if state == NodeState.SKIPPED else ""
                self._move(node, state)
                stopped.append(node)
        return sorted(stopped, key=lambda node: node.index)

    def _reasons(self) -> dict[int, str]:
        graph = Graph(self.definition)
        return {
            below: f"{failed.name} failed"
            for failed in self.within[NodeState.FAILED].values()
            for below in graph.descendants(failed.index)
        }


def _tokens(output: str) -> int:
    if '"total_tokens"' not in output:
        return 0
    try:
        usage = _decode_output(output).usage
    except msgspec.ValidationError:
        return 0  # not what llm_service gives
    return max(0, usage.total_tokens) if usage else 0
