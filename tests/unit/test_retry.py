"""A failure and a policy give a decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.definition import RetryConfig
from headrace.model.messages import Failure
from headrace.model.retry import MAX_LOST_LEASES, Again, Final, backoff_seconds, decide

POLICY = RetryConfig(max_retries=3, initial_delay=1.0, max_delay=60.0, exponential_base=2.0, jitter=False)
AGAIN = Failure("error", "x", retryable=True)


def test_final_failures_are_not_repeated() -> None:
    assert decide(Failure("fatal", "x"), POLICY, retries=0, lost=0, chance=0) == Final()


def test_retries_run_out() -> None:
    delays = [decide(AGAIN, POLICY, retries=n, lost=0, chance=0) for n in range(4)]
    assert delays == [Again(1.0), Again(2.0), Again(4.0), Final()]


def test_an_explicit_delay_is_taken_as_it_is_and_uses_up_a_retry() -> None:
    failure = Failure("retry", "x", retryable=True, after_seconds=2.5)
    assert decide(failure, POLICY, retries=0, lost=0, chance=0.9) == Again(2.5)
    assert decide(failure, POLICY, retries=3, lost=0, chance=0.9) == Final()


def test_lost_workers_are_counted_apart() -> None:
    lost = Failure("worker_lost", "x", retryable=True)
    none = RetryConfig(max_retries=0)
    decisions = [decide(lost, none, retries=0, lost=n, chance=0) for n in range(MAX_LOST_LEASES)]
    assert decisions == [Again(0.0, lost=True), Again(0.0, lost=True), Final()]
    assert isinstance(decide(lost, POLICY, retries=3, lost=0, chance=0), Again)
    assert isinstance(decide(AGAIN, POLICY, retries=0, lost=2, chance=0), Again)


@given(
    retries=st.integers(0, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
    initial=st.floats(0, 1e6),
    longest=st.floats(0, 1e6),
    base=st.floats(1, 1e6),
    jitter=st.booleans(),
)
def test_delays_are_bounded(  # noqa: PLR0917
    retries: int, chance: float, initial: float, longest: float, base: float, jitter: bool
) -> None:
    policy = RetryConfig(10_000, initial, longest, base, jitter)
    delay = backoff_seconds(policy, retries, chance)
    whole = backoff_seconds(RetryConfig(10_000, initial, longest, base, False), retries, 0)
    assert 0 <= whole <= longest
    assert whole / 2 <= delay <= whole if jitter else delay == whole


def test_without_jitter_delays_never_shrink() -> None:
    delays = [backoff_seconds(POLICY, n, 0) for n in range(2000)]
    assert delays == sorted(delays)
    assert delays[-1] == pytest.approx(60.0)
