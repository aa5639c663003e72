"""What is counted of any history: each outcome once, each time in its bucket, and in bounded memory."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import tally
from headrace.engine.tally import BEYOND, BOUNDS_SECONDS, OUTCOMES, Tally
from headrace.model.messages import Change, Event, Failure


def event(at_ms: int, *changes: Change, status: str = "", execution_id: str = "x") -> Event:
    return Event(execution_id, "e", 1, 1, "", at_ms, status, "", changes)


def failure(code: str) -> str:
    return msgspec.json.encode(Failure(code, 'says {"code":"worker_lost"} ', retryable=True)).decode()


@given(st.lists(st.tuples(st.sampled_from(sorted(OUTCOMES)), st.integers(0, 10**8))))
def test_every_attempt_is_counted_and_timed_once(attempts: list[tuple[str, int]]) -> None:
    counted, clock = Tally(), count(1_700_000_000_000, 7)
    for number, (state, took_ms) in enumerate(attempts):
        began = next(clock)
        counted.add([event(began, Change("n", "R", number, "worker"))])
        counted.add([event(began + took_ms, Change("n", state, number))])
    found: dict[str, Any] = counted.take()
    for state, outcome in OUTCOMES.items():
        assert found.get(f"nodes:{outcome}", 0) == sum(each == state for each, _ in attempts)
    for number in range(BEYOND + 1):
        low = BOUNDS_SECONDS[number - 1] if number else -1
        high = BOUNDS_SECONDS[number] if number < BEYOND else float("inf")
        inside = sum(low < took_ms / 1000 <= high for _, took_ms in attempts)
        assert found.get(f"attempt:bucket:{number}", 0) == inside
    assert found.get("attempt:ms", 0) == sum(took_ms for _, took_ms in attempts)
    assert not counted.take()


def test_only_the_code_makes_a_lost_lease() -> None:
    counted = Tally()
    codes = ("worker_lost", "timeout", "worker_lost", "error")
    counted.add(event(1, Change("n", "T", number, failure(code))) for number, code in enumerate(codes))
    counted.add([event(2, Change("n", "C", 9, '{"code":"of an output"}'))])
    assert counted.take() == {"nodes:retried": 4, "lost_leases": 2, "nodes:completed": 1}


def test_an_execution_is_timed_from_its_first_start() -> None:
    counted = Tally()
    counted.add([event(1000, status="R"), event(3000, status="R"), event(4000, status="C")])
    assert counted.take() == {"executions:COMPLETED": 1, "execution:bucket:7": 1, "execution:ms": 3000}
    assert BOUNDS_SECONDS[6] < 3 <= BOUNDS_SECONDS[7]


def test_an_event_that_makes_no_sense_is_passed_over() -> None:
    counted = Tally()
    counted.add([event(1, Change("n", "?", 1), status="?")])
    assert not counted.take()


def test_what_never_ends_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_STARTED", 10)
    counted = Tally()
    for number in range(100):
        counted.add([event(number, status="R", execution_id=f"x{number}")])
        assert len(counted._started_ms) <= 10
    counted.add([event(1000, status="C", execution_id="x99"), event(1000, status="C", execution_id="x0")])
    found = counted.take()
    assert found["executions:COMPLETED"] == 2
    assert sum(value for name, value in found.items() if ":bucket:" in name) == 1
