"""The states of nodes and executions, and every transition that the hot store may make, in one table.

The tables in Lua are generated from this one (hot/library.py), so a transition that is not listed here cannot happen:
the functions refuse it. One verb per transition; the verb is also the name of the Lua file and of the store's method.
"""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """The value is the letter under which a state is stored. REPORTED is shown to users as RUNNING."""

    PENDING = "P"
    QUEUED = "Q"
    RUNNING = "R"
    REPORTED = "D"
    RETRYING = "T"
    COMPLETED = "C"
    FAILED = "F"
    SKIPPED = "S"
    CANCELLED = "X"


class ExecutionState(StrEnum):
    """OPENING is a reservation: nothing of the execution can be read or run yet."""

    OPENING = "O"
    RUNNING = "R"
    COMPLETED = "C"
    FAILED = "F"
    CANCELLED = "X"


N, X = NodeState, ExecutionState

NODE_TRANSITIONS: tuple[tuple[str, NodeState, NodeState], ...] = (
    ("open", N.PENDING, N.QUEUED),  # roots whose tasks come with the opening
    ("push", N.PENDING, N.QUEUED),  # children whose tasks come with their last parent's result
    ("dispatch", N.PENDING, N.QUEUED),
    ("dispatch", N.RETRYING, N.QUEUED),
    ("dispatch", N.PENDING, N.REPORTED),  # the config cannot be rendered: a final failure goes to results
    ("dispatch", N.RETRYING, N.REPORTED),
    ("claim", N.QUEUED, N.RUNNING),
    ("reject", N.QUEUED, N.REPORTED),  # no live worker offers the handler
    ("release", N.RUNNING, N.QUEUED),
    ("report", N.RUNNING, N.REPORTED),
    ("complete", N.RUNNING, N.REPORTED),  # a worker that knows the plan goes on in the same step
    ("complete", N.REPORTED, N.COMPLETED),
    ("complete", N.PENDING, N.QUEUED),
    ("due", N.RUNNING, N.REPORTED),  # the lease ran out
    ("advance", N.REPORTED, N.COMPLETED),
    ("advance", N.REPORTED, N.RETRYING),
    ("advance", N.REPORTED, N.FAILED),
    ("advance", N.PENDING, N.SKIPPED),  # on_failure: continue
)

EXECUTION_TRANSITIONS: tuple[tuple[str, ExecutionState, ExecutionState], ...] = (
    ("open", X.OPENING, X.RUNNING),
    ("open", X.OPENING, X.COMPLETED),  # nothing is left to do
    ("open", X.OPENING, X.FAILED),
    ("open", X.OPENING, X.CANCELLED),
    ("advance", X.RUNNING, X.COMPLETED),
    ("advance", X.RUNNING, X.FAILED),
    ("complete", X.RUNNING, X.COMPLETED),
    ("complete", X.RUNNING, X.FAILED),  # the last of a run in which others failed
    ("due", X.RUNNING, X.FAILED),  # the execution's deadline
    ("cancel", X.RUNNING, X.CANCELLED),
)

TERMINAL_NODES = frozenset({N.COMPLETED, N.FAILED, N.SKIPPED, N.CANCELLED})
TERMINAL_EXECUTIONS = frozenset({X.COMPLETED, X.FAILED, X.CANCELLED})


def shown(node: NodeState, execution: ExecutionState) -> NodeState:
    """What users see: in an ended execution what never started reads as SKIPPED, or CANCELLED, without a write."""
    if execution == X.CANCELLED and node not in TERMINAL_NODES:
        return N.CANCELLED
    if execution in TERMINAL_EXECUTIONS and node in (N.PENDING, N.QUEUED, N.RETRYING):
        return N.SKIPPED
    return N.RUNNING if node == N.REPORTED else node
