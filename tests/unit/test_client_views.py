"""What the client commands make of answers: tables that cut no id, JSON that a terminal does not obey, events."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headrace.cli.output import age, print_json, seconds_since, table
from headrace.cli.progress import Progress
from headrace.cli.replay import Replay
from headrace.client import ServerUnreachable
from headrace.model.state import ExecutionState, NodeState

IDS = st.text("0123456789abcdef-", min_size=1, max_size=70)
TEXTS = st.text(max_size=200)


@given(st.lists(st.tuples(IDS, IDS, IDS, TEXTS), max_size=5), st.integers(20, 120))
def test_a_table_cuts_no_id_and_is_as_wide_as_its_widest_one(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table(("FIRST", "SECOND", "THIRD", "TEXT"), rows, width, cuts_last=True)
    text = "\n".join(lines)
    at = 0
    for row in rows:
        for cell in row[:3]:
            at = text.index(cell, at) + len(cell)  # whole, and in order
    widest = max((len(cell) for row in rows for cell in row[:3]), default=0)
    assert max(map(cell_len, lines)) <= max(width, widest + 2)


def test_a_table_that_fits_is_one_line_per_row() -> None:
    id_ = "01a1e258-a5f5-7023-bfb3-55a2aaaa3d0a"
    assert table(("EXECUTION", "STATUS", "AGE", "WORKFLOW"), [(id_, "RUNNING", "3 min", "city-report v3")], 80) == [
        "EXECUTION                             STATUS   AGE    WORKFLOW",
        f"{id_}  RUNNING  3 min  city-report v3",
    ]


def test_columns_that_do_not_fit_go_on_below() -> None:
    id_, name = "01a1e258-a5f5-7023-bfb3-55a2aaaa3d0a", "w" * 64
    assert table(
        ("EXECUTION", "STATUS", "WORKFLOW", "ERROR"), [(id_, "FAILED", name, "x" * 99)], 80, cuts_last=True
    ) == [
        "EXECUTION                             STATUS",
        "  WORKFLOW",
        "  ERROR",
        f"{id_}  FAILED",
        f"  {name}",
        f"  {'x' * 77}…",
    ]


def test_text_from_outside_does_nothing_to_the_terminal() -> None:
    [_, line] = table(("A", "B"), [("\x1b[31mred\r\n\x07", "a\u202eb")], 80)
    assert line == "\\x1b[31mred \\x07  a\\u202eb"
    out = io.StringIO()
    print_json({"a": "\x1b[31m\x9b\u202e\x7f"}, out)
    assert out.getvalue().isascii() and "\x1b" not in out.getvalue() and "\x7f" not in out.getvalue()
    assert json.loads(out.getvalue()) == {"a": "\x1b[31m\x9b\u202e\x7f"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (-5, "0 s"), (7.9, "7 s"), (60, "1 min"), (7199, "1 h"), (3e6, "34 d")]
)
def test_ages(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-01-31", "9" * 99])
def test_a_time_that_is_none_has_no_age(text: str | None) -> None:
    assert seconds_since(text) is None
    assert seconds_since("2026-01-31T12:00:00.000Z") is not None


# From what the API tells to what the views of `headrace run` show

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def node(name: str, status: str = "PENDING", *parents: str, **more: Any) -> dict[str, Any]:
    told = {"id": name, "handler": "h", "status": status, "attempt": 0, "dependencies": parents, "reason": None}
    return {**told, "queued_at": None, "started_at": None, "finished_at": None, "error": None, **more}


def execution(*nodes: dict[str, Any], status: str = "RUNNING", **more: Any) -> dict[str, Any]:
    told = {"execution_id": "x", "workflow": "w", "version": 1, "status": status, "run": 1, "error": None}
    times = {"created_at": at(-1), "started_at": at(0), "finished_at": None}
    return {**told, **times, "output": None, "nodes": nodes, **more}


class Shown:
    """A progress that is told by the API alone."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.replay = Replay(documents[0])
        self.progress = Progress(self.replay.definition, clock=lambda: 0.0)
        self.count = 0
        for document in documents:
            self.tell(document)

    def tell(self, document: dict[str, Any]) -> None:
        for event in self.replay.events(document):
            self.progress.apply(event)
            self.count += 1

    @property
    def states(self) -> dict[str, str]:
        return {each.name: each.state.name for each in self.progress.nodes}


FAILURE = {"code": "error", "message": "no", "type": "ValueError"}
RAN = {"attempt": 1, "started_at": at(1), "finished_at": at(3)}


def test_a_snapshot_in_the_middle_tells_what_happened_so_far() -> None:
    shown = Shown(
        execution(
            node("a", "COMPLETED", **RAN),
            node("b", "RETRYING", "a", attempt=2, started_at=at(4), finished_at=at(5), error=FAILURE),
            node("c", "RUNNING", "a", attempt=1, started_at=at(4)),
            node("d", "QUEUED", "a", attempt=1),
            node("e", "PENDING", "b"),
        )
    )
    progress = shown.progress
    assert shown.states == {"a": "COMPLETED", "b": "RETRYING", "c": "RUNNING", "d": "QUEUED", "e": "PENDING"}
    assert [each.took_seconds for each in progress.nodes] == [2.0, 1.0, None, None, None]
    assert progress.nodes[1].failure is not None and progress.nodes[1].failure.message == "no"
    assert not progress.is_over


def test_changes_and_snapshots_again_make_each_step_once() -> None:
    before = execution(node("a"), node("b", "PENDING", "a"))
    running = {"execution_id": "x", "run": 1, "at": at(1), "nodes": [{"id": "a", "status": "RUNNING", "attempt": 1}]}
    done = {**running, "at": at(3), "nodes": [{"id": "a", "status": "COMPLETED", "attempt": 1}]}
    shown = Shown(before, running)
    steps = shown.count
    shown.tell(running)
    shown.tell(execution(node("a", "RUNNING", attempt=1, started_at=at(1)), node("b", "PENDING", "a")))
    assert shown.count == steps
    shown.tell(done)
    assert shown.progress.nodes[0].took_seconds == 2.0
    shown.tell(
        execution(node("a", "COMPLETED", **RAN), node("b", "COMPLETED", "a", **RAN), status="COMPLETED",
                  finished_at=at(3), output={"x": 1})
    )  # fmt: skip
    assert shown.states == {"a": "COMPLETED", "b": "COMPLETED"}
    assert shown.progress.status == ExecutionState.COMPLETED
    assert shown.progress.elapsed_seconds == 3.0


def test_the_end_of_a_failed_one_gives_the_reasons() -> None:
    failed = node("a", "FAILED", attempt=4, started_at=at(1), finished_at=at(2), error=FAILURE)
    shown = Shown(
        execution(failed, node("b", "SKIPPED", "a", reason="upstream_failed"),
                  node("c", "SKIPPED", reason="execution_failed"), node("d", "RUNNING", attempt=1, started_at=at(1)),
                  status="FAILED", finished_at=at(2), error={"node": "a", **FAILURE})
    )  # fmt: skip
    assert shown.states == {"a": "FAILED", "b": "SKIPPED", "c": "SKIPPED", "d": "RUNNING"}
    assert [each.reason for each in shown.progress.nodes] == ["", "a failed", "the execution failed first", ""]
    assert shown.progress.left_running == 1
    assert shown.progress.failure is None
    assert "1 failed" in shown.progress.summary()


def test_what_is_skipped_on_the_way_names_the_culprit() -> None:
    failed = node("a", "FAILED", attempt=1, started_at=at(1), finished_at=at(2), error=FAILURE)
    skipped = [node("b", "SKIPPED", "a"), node("c", "SKIPPED", "b"), node("d", "RUNNING", attempt=1, started_at=at(1))]
    shown = Shown(execution(failed, *skipped))
    assert [each.reason for each in shown.progress.nodes] == ["", "a failed", "a failed", ""]


def test_a_deadline_is_the_failure_of_the_execution() -> None:
    error = {"code": "timeout", "message": "took longer than 5 s"}
    shown = Shown(execution(node("a"), status="FAILED", finished_at=at(5), error=error))
    assert shown.progress.failure is not None and shown.progress.failure.message == "took longer than 5 s"


def test_a_cancelled_one_is_over() -> None:
    shown = Shown(execution(node("a", "CANCELLED"), node("b", "COMPLETED", **RAN), status="CANCELLED"))
    assert shown.states == {"a": "CANCELLED", "b": "COMPLETED"}
    assert shown.progress.is_over


STATUSES = st.sampled_from(["PENDING", "QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED"])


@given(st.lists(st.lists(st.tuples(STATUSES, st.integers(1, 3)), min_size=3, max_size=3), min_size=1, max_size=6))
def test_however_it_gets_there_the_view_stands_where_the_last_snapshot_stands(
    history: list[list[tuple[str, int]]],
) -> None:
    documents = [
        execution(*(node(name, status, attempt=attempt, started_at=at(1), finished_at=at(2))
                    for name, (status, attempt) in zip("abc", moment, strict=True)))
        for moment in history
    ]  # fmt: skip
    shown = Shown(*documents)
    assert list(shown.states.values()) == [status for status, _ in history[-1]]
    assert sum(shown.progress.count(state) for state in NodeState) == 3


@pytest.mark.parametrize(
    "document",
    [{}, {"nodes": []}, {"nodes": 7}, {"nodes": [{"id": 7}]}, execution(node("a"), started_at="yesterday"),
     execution(node("a", error={"code": 7}))],
)  # fmt: skip
def test_what_is_not_of_this_api_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ServerUnreachable):
        Shown(document)


def test_what_a_newer_server_tells_is_passed_over() -> None:
    known = execution(node("a", "ON_HOLD"), of_a_newer_server=1)
    later = {"nodes": [{"id": "b", "status": "RUNNING", "attempt": 1}, {"id": "a", "status": "RUNNING", "attempt": 1}]}
    assert Shown(known, later).states == {"a": "RUNNING"}
