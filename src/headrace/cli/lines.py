"""Progress as plain lines on stderr, for logs and simple terminals.

A small graph gets a line per change of a node; a large one a line per tenth of the way and the first failures.
"""

from __future__ import annotations

import sys
from types import TracebackType

from headrace.cli.progress import NodeProgress, Progress
from headrace.cli.words import counted, duration, failure_text, printable
from headrace.model.messages import Event
from headrace.model.state import NodeState

MOST_NODES_WITH_LINES = 50
MOST_FAILURES_WITH_LINES = 50  # of a large graph, retries included


class Lines:
    def __init__(self, progress: Progress, *, quiet: bool = False) -> None:
        self._progress = progress
        self._quiet = quiet
        self._is_small = len(progress.nodes) <= MOST_NODES_WITH_LINES
        self._width = min(24, max(len(node.name) for node in progress.nodes))
        self._failures = 0
        self._tenth = 0

    async def __aenter__(self) -> Lines:
        self._line(f"{self._progress.definition.name}: {counted(len(self._progress.nodes), 'node')}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._progress.is_over:
            return
        self._line(f"{self._progress.status.name}: {self._progress.summary()}")
        if step := self._progress.next_step():
            self._line(step)

    def show(self, event: Event) -> None:
        was_over = self._progress.is_over
        changed = self._progress.apply(event)
        if self._quiet:
            return
        for node in changed:
            self._tell(node)
        self._tell_tenth()
        if self._progress.is_over and not was_over:
            self._tell_end()

    def interrupted(self) -> None:
        self._line("Ctrl-C: cancelling; Ctrl-C again ends at once")

    def _tell(self, node: NodeProgress) -> None:
        is_failure = node.state in (NodeState.RETRYING, NodeState.FAILED)
        self._failures += is_failure
        if self._is_small or (is_failure and self._failures <= MOST_FAILURES_WITH_LINES):
            if text := _said(node):
                self._line(f"{node.name:<{self._width}}  {text}", self._progress.told_seconds)
            if not self._is_small and self._failures == MOST_FAILURES_WITH_LINES:
                self._line("further failures are only counted")

    def _tell_tenth(self) -> None:
        progress = self._progress
        completed = progress.count(NodeState.COMPLETED)
        tenth = 10 * completed // len(progress.nodes)
        if not self._is_small and tenth > self._tenth:
            self._tenth = tenth
            failed = f", {progress.count(NodeState.FAILED):,} failed" if progress.count(NodeState.FAILED) else ""
            retries = f", {counted(progress.retries, 'retry', 'retries')}" if progress.retries else ""
            self._line(f"{completed:,} of {len(progress.nodes):,} nodes completed{failed}{retries}")

    def _tell_end(self) -> None:
        if failure := self._progress.failure:
            self._line(printable(failure.message))
        if left := self._progress.left_running:
            self._line(f"failed; waiting for {counted(left, 'running node')} (Ctrl-C: do not wait)")

    def _line(self, text: str, at_seconds: float | None = None) -> None:
        """Further lines of a text stand below its first one, indented: a log can still be read line by line."""
        if not self._quiet:
            text = text.replace("\n", "\n" + " " * 16)
            seconds = self._progress.elapsed_seconds if at_seconds is None else at_seconds
            print(f"{seconds:8.2f} s  {text}", file=sys.stderr, flush=True)


def _said(node: NodeProgress) -> str:
    attempts = f" after {node.attempt} attempts" if node.attempt > 1 else ""
    error = f": {failure_text(node.failure)}" if node.failure else ""
    match node.state:
        case NodeState.RUNNING:
            return f"running (attempt {node.attempt})" if node.attempt > 1 else "running"
        case NodeState.COMPLETED:
            return f"completed in {duration(node.took_seconds or 0, 2)}"
        case NodeState.RETRYING:
            return f"failed, next attempt in {duration(max(0, node.due_ms - node.ended_ms) / 1000)}{error}"
        case NodeState.FAILED:
            return f"FAILED{attempts}{error}"
        case NodeState.SKIPPED:
            return f"skipped: {node.reason}"
        case NodeState.CANCELLED:
            return "cancelled" if node.attempt else "cancelled before it started"
        case _:
            return ""
