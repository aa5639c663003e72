"""One frame of the live view: a pure function of the progress, the size of the terminal and the time.

A frame while the run goes on is never higher or wider than the terminal: of a graph that does not fit, it has what
failed, waits for a retry, runs, or ended last, and the rest as counts. The last frame stays on the screen and has the
errors in full. All text from outside is shown as text: spelled out where it is not printable, never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from headrace.cli.progress import NodeProgress, Progress
from headrace.cli.words import counted, duration, failure_text, one_line, printable
from headrace.model.state import ExecutionState, NodeState

MOST_ROWS_OF_LARGE_GRAPH = 16
ERROR_LINES_WHILE_LIVE = 3
ERRORS_IN_FULL = 10
MOST_PARENTS_LOOKED_AT = 50
PARENTS_NAMED = 3
NARROW = 60
BAR_WIDTH = 30
TIME_WIDTH = 8

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MARKS = {
    NodeState.PENDING: ("·", "dim"),
    NodeState.QUEUED: ("◦", "dim"),
    NodeState.RETRYING: ("↻", "yellow"),
    NodeState.COMPLETED: ("✓", "green"),
    NodeState.FAILED: ("✗", "bold red"),
    NodeState.SKIPPED: ("–", "dim"),
    NodeState.CANCELLED: ("⊘", "yellow"),
}
STATUS_MARKS = {
    ExecutionState.COMPLETED: ("✓", "bold green"),
    ExecutionState.FAILED: ("✗", "bold red"),
    ExecutionState.CANCELLED: ("⊘", "bold yellow"),
}


class Frames:
    """Composes frames of one run; the layout that does not change is computed once."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._spinner = SPINNER[0]
        self._longest_name = max(len(node.name) for node in progress.nodes)

    def live(self, width: int, height: int, *, cancelling: bool = False) -> Text:
        """Ends with an empty line: there stands the cursor, and what the terminal echoes."""
        self._spinner = SPINNER[int(self._progress.elapsed_seconds * 10) % len(SPINNER)]
        lines = [self._title(width), *self._rows(width, max(1, height - 5)), self._bar(width)]
        if note := self._note(cancelling=cancelling):
            lines.append(_cut(Text(note, style="yellow"), width))
        return _joined([*lines[: max(1, height - 2)], Text()])

    def last(self, width: int, height: int) -> Text:
        progress = self._progress
        lines = [self._title(width), *self._last_rows(width, max(1, height - 5))]
        mark, style = STATUS_MARKS[progress.status]
        summary = Text.assemble((f"{mark} {progress.status.name}", style), f"  {progress.summary()}")
        lines += self._wrapped(summary, width)
        if step := progress.next_step():
            lines += self._wrapped(Text(step), width)
        return _joined(lines)

    def _title(self, width: int) -> Text:
        definition = self._progress.definition
        return _cut(Text.assemble((definition.name, "bold"), "  ", (one_line(definition.description), "dim")), width)

    def _rows(self, width: int, room: int) -> list[Text]:
        """The most interesting nodes that fit, in the order of the definition."""
        error_lines = ERROR_LINES_WHILE_LIVE
        if len(self._progress.nodes) > room:
            room, error_lines = min(room, MOST_ROWS_OF_LARGE_GRAPH), 1
        chosen: list[tuple[int, list[Text]]] = []
        for node in self._by_interest(room):
            rows = [self._row(node, width), *self._error(node, width)[:error_lines]]
            chosen.append((node.index, rows[:room]))
            room -= len(rows)
            if room <= 0:
                break
        return [row for _, rows in sorted(chosen, key=lambda one: one[0]) for row in rows]

    def _by_interest(self, room: int) -> Iterator[NodeProgress]:
        """Each node once. Neither failures nor retries, with their errors, take the room of what runs."""
        within = self._progress.within
        failed, retrying = reversed(within[NodeState.FAILED].values()), iter(within[NodeState.RETRYING].values())
        some = max(1, room // 6)
        return chain(
            islice(failed, some),
            islice(retrying, some),
            within[NodeState.RUNNING].values(),
            retrying,
            failed,
            reversed(within[NodeState.COMPLETED].values()),
            within[NodeState.QUEUED].values(),
            within[NodeState.PENDING].values(),
            within[NodeState.SKIPPED].values(),
            within[NodeState.CANCELLED].values(),
        )

    def _last_rows(self, width: int, room: int) -> Iterator[Text]:
        """All nodes if they fit, else those that failed; the first errors in full."""
        progress = self._progress
        failed = list(progress.within[NodeState.FAILED].values())
        in_full = {node.name for node in failed[:ERRORS_IN_FULL]}
        nodes: Iterable[NodeProgress] = progress.nodes if len(progress.nodes) <= room else failed[:ERRORS_IN_FULL]
        for node in nodes:
            yield self._row(node, width)
            if node.name in in_full:
                yield from self._error(node, width)
        if nodes is not progress.nodes and len(failed) > ERRORS_IN_FULL:
            yield Text(f"  … and {counted(len(failed) - ERRORS_IN_FULL, 'more failed node')}", style="dim")
        if progress.failure:
            yield from self._wrapped(Text(f"✗ {printable(progress.failure.message)}", style="red"), width)

    def _row(self, node: NodeProgress, width: int) -> Text:
        mark, style = MARKS.get(node.state) or (self._spinner, "cyan")
        name = Text(node.name, style="dim" if style == "dim" else "")
        name.truncate(min(self._longest_name, max(8, width // 3)), overflow="ellipsis", pad=True)
        seconds = self._seconds(node)
        took = "" if seconds is None else duration(seconds, 1 if node.state == NodeState.RUNNING else 2)
        took = f"{took:>{TIME_WIDTH}}  " if took or width >= NARROW else ""
        row = Text.assemble((mark, style), " ", name, "  ", (took, "dim"), self._remark(node))
        return _cut(row, width)

    def _seconds(self, node: NodeProgress) -> float | None:
        if node.state == NodeState.RUNNING:
            return max(0.0, self._progress.now_ms - node.started_ms) / 1000
        return None if node.state == NodeState.RETRYING else node.took_seconds

    def _remark(self, node: NodeProgress) -> Text:
        match node.state:
            case NodeState.PENDING:
                return Text(self._waits_for(node), style="dim")
            case NodeState.QUEUED:
                return Text("queued", style="dim")
            case NodeState.RUNNING:
                return Text(f"attempt {node.attempt}" if node.attempt > 1 else "", style="yellow")
            case NodeState.RETRYING:
                due_seconds = max(0.0, node.due_ms - self._progress.now_ms) / 1000
                when = f"in {duration(due_seconds)}" if due_seconds else "now"
                return Text(f"next attempt {when}", style="yellow")
            case NodeState.COMPLETED:
                return Text(f"after {node.attempt} attempts" if node.attempt > 1 else "", style="dim")
            case NodeState.FAILED:
                return Text(f"failed after {node.attempt} attempts" if node.attempt > 1 else "failed", style="red")
            case NodeState.SKIPPED:
                return Text(f"skipped: {node.reason}", style="dim")
            case _:
                return Text("cancelled" if node.attempt else "cancelled before it started", style="dim")

    def _waits_for(self, node: NodeProgress) -> str:
        parents = self._progress.definition.nodes[node.index].dependencies
        if len(parents) > MOST_PARENTS_LOOKED_AT:
            return f"waits for {len(parents):,} nodes"
        done = self._progress.within[NodeState.COMPLETED]
        waiting = [parent for parent in parents if parent not in done]
        more = f" and {len(waiting) - PARENTS_NAMED} more" if len(waiting) > PARENTS_NAMED else ""
        return f"waits for {', '.join(waiting[:PARENTS_NAMED])}{more}" if waiting else ""

    def _error(self, node: NodeProgress, width: int) -> list[Text]:
        """Below its node, indented; of one that will be tried again, a line of it."""
        if node.failure is None:
            return []
        if node.state == NodeState.RETRYING:
            return [_cut(Text(f"  {one_line(failure_text(node.failure))}", style="dim"), width)]
        if node.state == NodeState.FAILED:
            return self._wrapped(Text(failure_text(node.failure), style="red"), width, indent=2)
        return []

    def _bar(self, width: int) -> Text:
        progress = self._progress
        size = min(BAR_WIDTH, width // 4)
        all_of_them, done = len(progress.nodes), progress.count(NodeState.COMPLETED)
        bad = progress.count(NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED)
        green = size * done // all_of_them
        red = size * (done + bad) // all_of_them - green
        counts = [
            f"{progress.count(state):,} {state.name.lower()}"
            for state in (NodeState.FAILED, NodeState.RETRYING, NodeState.RUNNING, NodeState.QUEUED, NodeState.SKIPPED)
            if progress.within[state]
        ]
        return _cut(
            Text.assemble(
                ("━" * green, "green"), ("━" * red, "red"), ("─" * (size - green - red), "dim"),
                f" {done:,}/{all_of_them:,}", (f"  {duration(progress.elapsed_seconds)}", "dim"),
                "".join(f"  {count}" for count in counts),
            ),
            width,
        )  # fmt: skip

    def _note(self, *, cancelling: bool) -> str:
        if cancelling:
            return "Ctrl-C: cancelling; Ctrl-C again ends at once"
        left = self._progress.left_running
        return f"failed; waiting for {counted(left, 'running node')} (Ctrl-C: do not wait)" if left else ""

    def _wrapped(self, text: Text, width: int, indent: int = 0) -> list[Text]:
        lines = text.wrap(self._console, max(10, width - indent), overflow="fold")
        return [Text.assemble(" " * indent, line) for line in lines]


def _cut(line: Text, width: int) -> Text:
    if cell_len(line.plain) > width:
        line.truncate(width, overflow="ellipsis")
    return line


def _joined(lines: list[Text]) -> Text:
    joined = Text("\n").join(lines)
    joined.no_wrap, joined.overflow = True, "crop"
    return joined
