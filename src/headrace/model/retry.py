"""A failure and a policy give a decision. Pure: the caller brings the random number.

The user's retries and lost leases are counted apart: a worker that dies does not use up the node's retries, but a node
that takes three workers with it is a poison pill and fails for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.definition import RetryConfig
from headrace.model.messages import Failure

MAX_LOST_LEASES = 3
MAX_EXPLICIT_DELAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Again:
    delay_seconds: float
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Final:
    pass


def decide(failure: Failure, policy: RetryConfig, *, retries: int, lost: int, chance: float) -> Again | Final:
    """`retries` and `lost` are the counts before this failure; `chance` is uniform in [0, 1)."""
    if failure.code == "worker_lost":
        return Again(0.0, lost=True) if lost + 1 < MAX_LOST_LEASES else Final()
    if not failure.retryable or retries >= (policy.max_retries or 0):
        return Final()
    if failure.after_seconds is not None:
        return Again(min(failure.after_seconds, MAX_EXPLICIT_DELAY_SECONDS))
    return Again(backoff_seconds(policy, retries, chance))


def backoff_seconds(policy: RetryConfig, retries: int, chance: float) -> float:
    """Exponential, bounded, and with jitter somewhere between half of that and all of it."""
    initial, longest = policy.initial_delay or 0.0, policy.max_delay or 0.0
    try:
        delay = min(initial * (policy.exponential_base or 1.0) ** retries, longest)
    except OverflowError:
        delay = longest
    return delay * (0.5 + chance / 2) if policy.jitter else delay
