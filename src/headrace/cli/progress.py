"""Plain progress lines on stderr. A small graph gets a line per node; a large one a line per tenth of the way."""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

from headrace.model.definition import Definition
from headrace.model.messages import Event
from headrace.model.state import ExecutionState, NodeState

MOST_NODES_WITH_LINES = 50


class Progress:
    def __init__(self, definition: Definition, execution_id: str, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._count = len(definition.nodes)
        self._width = min(24, max(len(node.id) for node in definition.nodes))
        self._started = time.monotonic()
        self._since: dict[str, int] = {}
        self._completed = 0
        self._retries = 0
        self._tenth = 0
        self.line(f"{definition.name}: {self._count} nodes, execution {execution_id}")

    def line(self, text: str) -> None:
        if not self._quiet:
            print(f"{time.monotonic() - self._started:8.2f} s  {text}", file=sys.stderr, flush=True)

    def show(self, event: Event) -> None:
        for change in event.changes:
            node, attempt = change.node, change.attempt
            match NodeState(change.state):
                case NodeState.RUNNING:
                    self._since[node] = event.at_ms
                    again = f" (attempt {attempt})" if attempt > 1 else ""
                    self._node_line(node, f"running{again}")
                case NodeState.COMPLETED:
                    self._completed += 1
                    took = (event.at_ms - self._since.pop(node, event.at_ms)) / 1000
                    self._node_line(node, f"completed in {took:.2f} s")
                case NodeState.RETRYING:
                    self._retries += 1
                    wait = (change.due_ms - event.at_ms) / 1000
                    self._say(node, f"failed, next attempt in {wait:.1f} s: {_message(change.detail)}")
                case NodeState.FAILED:
                    self._say(node, f"FAILED: {_message(change.detail)}")
                case NodeState.SKIPPED:
                    self._node_line(node, "skipped: upstream failed")
                case _:
                    pass
        self._tenths()
        if event.status and event.status != ExecutionState.RUNNING and event.error and not event.changes:
            self.line(_message(event.error))

    def finished(self, view: dict[str, Any]) -> None:
        retries = f", {self._retries} retries" if self._retries else ""
        self.line(f"{view['status']}: {self._completed} of {self._count} nodes completed{retries}")

    def _say(self, node: str, text: str) -> None:
        self.line(f"{node:<{self._width}}  {text}")

    def _node_line(self, node: str, text: str) -> None:
        if self._count <= MOST_NODES_WITH_LINES:
            self._say(node, text)

    def _tenths(self) -> None:
        tenth = 10 * self._completed // self._count
        if self._count > MOST_NODES_WITH_LINES and tenth > self._tenth:
            self._tenth = tenth
            self.line(f"{self._completed} of {self._count} nodes completed")


def _message(failure: str) -> str:
    told = msgspec.json.decode(failure)
    kind = told.get("type") or told.get("code", "error")
    return f"{kind}: {told.get('message', '')}"
