"""What the command line knows and shows of a run: the counts, the words, and frames that fit their terminal."""

from __future__ import annotations

import io
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headrace.cli.frame import ERRORS_IN_FULL, Frames
from headrace.cli.progress import Progress
from headrace.cli.words import duration, one_line, printable
from headrace.model.messages import Change, Event, Failure
from headrace.model.state import ExecutionState, NodeState
from tests.roles import definition, node

NAMES = [f"{'x' * (i * 3)}_node_{i}" for i in range(12)]
HOSTILE = (
    "first\x1b[2J\x1b]0;title\x07[red]markup[/red]\nsecond \u202e turned \x9b31m 日本語" + " word" * 60 + "y" * 200
)

nodes = st.sampled_from(NAMES)
failures = st.sampled_from(["out of order", "", HOSTILE]).map(
    lambda message: msgspec.json.encode(Failure("error", message, retryable=True)).decode()
)
outputs = st.sampled_from(
    [
        "{}",
        '{"usage":{"total_tokens":7}}',
        '{"usage":"total_tokens","total_tokens":1}',
        '{"usage":{"total_tokens":"x"}}',
    ]
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    state = draw(st.sampled_from([state for state in NodeState if state != NodeState.PENDING]))
    detail = ""
    if state in (NodeState.FAILED, NodeState.RETRYING):
        detail = draw(failures)
    elif state == NodeState.COMPLETED:
        detail = draw(outputs)
    elif state == NodeState.SKIPPED:
        detail = draw(nodes)
    return Change(draw(nodes), state.value, draw(st.integers(1, 5)), detail, draw(st.integers(0, 10**6)))


def event(at_ms: int, some: list[Change], status: str = "", error: str = "") -> Event:
    return Event("x", "e", 1, 1, "", at_ms, status, error, some)


events = st.lists(
    st.builds(
        event,
        st.integers(1, 10**6),
        st.lists(changes(), max_size=5),
        st.sampled_from(["", "", "", *(state.value for state in ExecutionState if state != ExecutionState.OPENING)]),
    ),
    max_size=30,
)


def fed(some: list[Event], **fields: object) -> Progress:
    listed = [node(name, *NAMES[max(0, i - 2) : i]) for i, name in enumerate(NAMES)]
    progress = Progress(definition(*listed, **fields), clock=lambda: 1000.0)
    for each in some:
        progress.apply(each)
    return progress


def console() -> Console:
    return Console(file=io.StringIO(), width=80, height=24)


@given(events)
def test_counts_add_up(some: list[Event]) -> None:
    progress = fed(some)
    assert progress.count(*NodeState) == len(NAMES)
    for state, group in progress.within.items():
        assert all(member.state == state and member.name == name for name, member in group.items())
    told = [change for each in some for change in each.changes]
    assert progress.retries == sum(change.state == NodeState.RETRYING for change in told)
    assert progress.tokens == 7 * sum('"total_tokens":7' in change.detail for change in told)
    assert progress.elapsed_seconds >= 0
    assert all(each.took_seconds is None or each.took_seconds >= 0 for each in progress.nodes)


@given(events, st.integers(20, 200), st.integers(6, 60), st.booleans())
def test_a_live_frame_fits_its_terminal_and_has_nothing_that_a_terminal_obeys(
    some: list[Event], width: int, height: int, cancelling: bool
) -> None:
    frame = Frames(fed(some), console()).live(width, height, cancelling=cancelling).plain
    assert len(frame.split("\n")) < height
    assert all(cell_len(line) <= width for line in frame.split("\n"))
    assert is_harmless(frame)


@given(events, st.integers(20, 200))
def test_the_last_frame_says_how_it_ended(some: list[Event], width: int) -> None:
    progress = fed([*some, event(10**6, [], ExecutionState.FAILED.value)])
    frame = Frames(progress, console()).last(width, 40).plain
    assert all(cell_len(line) <= width for line in frame.split("\n"))
    assert is_harmless(frame)
    assert "✗ FAILED" in frame
    for each in list(progress.within[NodeState.FAILED].values())[:ERRORS_IN_FULL]:
        assert each.failure is not None
        assert "".join(printable(each.failure.message).split()) in "".join(frame.split()), "in full, if wrapped"


def is_harmless(text: str) -> bool:
    return all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp") for char in text)


def failed(name: str, **more: object) -> Change:
    failure = Failure("error", "out of order", **more)  # type: ignore[arg-type]
    return Change(name, NodeState.FAILED.value, 1, msgspec.json.encode(failure).decode())


def test_after_a_failure_each_node_that_did_not_run_says_why() -> None:
    listed = [
        node("bad"),
        node("other"),
        node("child", "bad"),
        node("grandchild", "child", "other"),
        node("last", "other"),
    ]
    progress = Progress(definition(*listed))
    progress.apply(event(1, [Change("bad", "R", 1), Change("other", "R", 1)], ExecutionState.RUNNING.value))
    changed = progress.apply(event(2, [failed("bad")], ExecutionState.FAILED.value))
    assert [(each.name, each.state.name, each.reason) for each in changed] == [
        ("bad", "FAILED", ""),
        ("child", "SKIPPED", "bad failed"),
        ("grandchild", "SKIPPED", "bad failed"),
        ("last", "SKIPPED", "the execution failed first"),
    ]
    assert progress.left_running == 1
    progress.apply(event(500, [Change("other", "C", 1, "{}")]))
    assert progress.left_running == 0
    assert progress.summary() == "1 of 5 nodes completed in 0.50 s, 1 failed, 3 skipped"
    assert "node bad (handler note)" in progress.next_step()


def test_an_execution_that_took_too_long() -> None:
    progress = Progress(definition(node("a"), node("b", "a")))
    progress.apply(event(1, [Change("a", "R", 1)]))
    late = '{"code":"timeout","message":"the execution took longer than its timeout_seconds"}'
    progress.apply(event(2, [], ExecutionState.FAILED.value, late))
    assert [each.reason for each in progress.nodes] == ["", "time was up"]
    assert "timeout_seconds" in progress.next_step()
    assert "longer than its timeout_seconds" in Frames(progress, console()).last(80, 24).plain


def test_time_goes_on_between_events() -> None:
    now = 50.0
    progress = Progress(definition(node("a")), clock=lambda: now)
    progress.apply(event(7_000_000, [Change("a", "R", 1)]))
    now = 51.5
    assert progress.elapsed_seconds == pytest.approx(1.5)
    assert "1.5 s" in Frames(progress, console()).live(80, 24).plain
    retried = Change("a", "T", 1, '{"code":"retry","message":"busy"}', 7_005_000)
    progress.apply(event(7_001_500, [retried]))
    assert "next attempt in 3.5 s" in Frames(progress, console()).live(80, 24).plain


def test_of_a_large_graph_what_is_interesting_is_shown_and_the_rest_counted() -> None:
    many = [f"n{i}" for i in range(1000)]
    progress = Progress(definition(*map(node, many)))
    progress.apply(event(1, [Change(name, "R", 1) for name in many[:100]]))
    progress.apply(event(2, [Change(name, "C", 1, "{}") for name in many[:50]]))
    progress.apply(event(3, [failed("n60"), Change("n70", "T", 1, '{"code":"error","message":"busy"}', 4)]))
    frame = Frames(progress, console()).live(80, 24).plain
    assert "✗ n60" in frame
    assert "↻ n70" in frame
    assert "50/1,000" in frame
    assert "48 running" in frame


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ntext", "plain\ntext"),
        ("a\r\nb\tc", "a\nb   c"),
        ("\x1b[31m\x07\x9b\x00\r", "\\x1b[31m\\x07\\x9b\\x00\\r"),
        ("10\u00a0000 \u202e", "10 000 \\u202e"),
        ("日本 é 🙂", "日本 é 🙂"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_small_words() -> None:
    assert one_line("a\n  b\x1b") == "a b\\x1b"
    assert [duration(seconds) for seconds in (0.04, 59.9, 60, 3725)] == ["0.0 s", "59.9 s", "1 min 00 s", "1 h 02 min"]
