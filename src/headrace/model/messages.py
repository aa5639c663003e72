"""What travels between the roles, as msgspec structs.

hot/codec.py knows how each of them is written for the hot store's functions. What Lua never looks into
(`Task.payload`, `Hint.outcome`, outputs, failures) is JSON text inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Token(msgspec.Struct, frozen=True):
    """One attempt, everywhere. The epoch is new each time the execution is opened, so a token never fits twice."""

    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt did not succeed. `code` says which part of the engine or handler saw it:

    error, fatal, retry        the handler raised
    timeout                    the attempt took longer than the node's timeout_seconds
    worker_lost                its lease ran out
    bad_config, bad_output     the handler's model refused its config; its answer is not JSON or too large
    template                   the config cannot be rendered
    secret_missing             the config names a secret that the worker does not have
    no_handler                 no live worker offers the handler
    crashed                    an isolated handler's process died
    """

    code: str
    message: str
    type: str = ""
    retryable: bool = False
    after_seconds: float | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker reports of an attempt: the output as JSON text, or the failure. `complete`, in a hint: that is
    applied already, and children are ready."""

    output: str | None = None
    failure: Failure | None = None
    complete: bool = False


class Secret(msgspec.Struct, frozen=True):
    """The name of a secret, where only a worker can put its value."""

    secret: str


class SecretText(msgspec.Struct, frozen=True):
    """A text of a config that has secrets in it: where it is, and the pieces that it is made of."""

    path: tuple[str | int, ...]
    pieces: tuple[str | Secret, ...]


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker needs to run a node, besides its token: Task.payload, written by the orchestrator.

    Where a text has secrets in it, `config` shows them as references and `secrets` says how to make the real text.
    """

    config: dict[str, Any]
    timeout_seconds: float | None = None
    secrets: tuple[SecretText, ...] = ()


class Task(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that `claim` gave to a worker. The orchestrator writes it, Lua hands it on as it is."""

    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int
    handler: str
    payload: str
    definition: str = ""

    @property
    def token(self) -> Token:
        return Token(self.execution_id, self.epoch, self.run, self.node, self.attempt)

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of a node within a run; the next run gets a new one."""
        return f"{self.execution_id}:{self.run}:{self.node}"


class Hint(msgspec.Struct, frozen=True):
    """Of the results stream: an attempt's outcome (JSON of an Outcome), or with no node the start of a run."""

    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int
    definition: str
    retries: int
    lost: int
    outcome: str

    @property
    def is_start(self) -> bool:
        return not self.node


class Verdict(msgspec.Struct, frozen=True):
    """What `advance` is asked to do with one hint, or with one slice of it; advance.lua says what each field means.

    `names` are nodes with their numbers of parents; `tasks`, if any, has for each of them what to dispatch, or None."""

    entry_id: str
    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int
    verdict: str
    body: str = ""
    delay_ms: int = 0
    flag: bool = False
    offset: int = 0
    total: int = 0
    quiet: bool = True
    names: Sequence[tuple[str, int]] = ()
    tasks: Sequence[Dispatch | None] = ()


class Advanced(msgspec.Struct, frozen=True):
    """`finished`: nothing is left to do with the hint. `answer` is pairs: a position in the slice (from 0) and the
    attempt that the node had so far."""

    finished: bool
    answer: Sequence[tuple[int, int]] = ()


class Dispatch(msgspec.Struct, frozen=True):
    """One node to be queued; with `failed`, one whose config cannot be rendered and whose payload is the outcome."""

    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int
    parents: int
    handler: str
    payload: str
    failed: bool = False
    definition: str = ""


class Report(msgspec.Struct, frozen=True):
    """`outcome` is JSON of an Outcome; or of a success that brings its `children` along (with their numbers of parents,
    and if any, for each of them what to dispatch, or None) it is the output itself."""

    token: Token
    outcome: str
    children: Sequence[tuple[str, int]] | None = None
    tasks: Sequence[Dispatch | None] = ()


class Due(msgspec.Struct, frozen=True, array_like=True):
    """A node whose retry is due, with the attempt that failed."""

    execution_id: str
    epoch: str
    run: int
    node: str
    attempt: int
    definition: str


class Change(msgspec.Struct, frozen=True, gc=False):
    """A node's new state. `detail` is of RUNNING the worker, of COMPLETED the output, of a failure the Failure."""

    node: str
    state: str
    attempt: int
    detail: str = ""
    due_ms: int = 0


class Event(msgspec.Struct, frozen=True, gc=False):
    """An entry of the events stream: all that one call changed in one execution.

    `previous` is the id of the execution's event before this one: a reader that applies an event only after its
    predecessor applies each once and in order. `status` is the execution's new state, or empty.
    """

    execution_id: str
    epoch: str
    run: int
    seq: int
    previous: str
    at_ms: int
    status: str
    error: str
    changes: Sequence[Change]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A node in the hot store, as records.lua packs it."""

    state: str = "P"
    attempt: int = 0
    retries: int = 0
    lost: int = 0
    cursor: int = 0
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    worker: str = ""
    error: str = ""


class Execution(msgspec.Struct, frozen=True):
    """An execution in the hot store; of an OPENING one the epoch is its token, and little else is there."""

    status: str
    mode: str
    run: int
    left: int
    busy: int
    failed: int
    seq: int
    epoch: str
    last: str
    definition: str
    created_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    error: str = ""
    error_node: str = ""


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """The last slice of `open`: what the execution is, besides its nodes. See open.lua."""

    run: int
    definition: str
    mode: str
    left: int
    failed: int
    created_ms: int
    timeout_ms: int
    cancelled: bool
    start: str


class Reservation(msgspec.Struct, frozen=True, array_like=True):
    """Of one execution; the epoch and the last event are those that the caller knows, empty for a fresh one.

    `again`: another reservation, perhaps one whose maker died, may be replaced. `behind`: what is open there, with this
    epoch and last event, is known to be older than the record, so it may be replaced within its run."""

    execution_id: str
    token: str
    old_epoch: str = ""
    last_event: str = ""
    run: int = 1
    again: bool = True
    behind: bool = False


class OpenSlice(msgspec.Struct, frozen=True, array_like=True):
    """A part of what a reserved execution is opened with; the one with the header opens it.

    `roots`: of a fresh run either all nodes without parents, ready to be dispatched, or none."""

    execution_id: str
    token: str
    rows: Sequence[tuple[str | int, ...]] = ()
    counts: Sequence[tuple[str, int]] = ()
    outputs: Sequence[tuple[str, str]] = ()
    opening: Opening | None = None
    roots: Sequence[Dispatch] = ()


def event_order(event_id: str) -> tuple[int, int]:
    """To compare ids of events by; no event comes before any."""
    ms, _, number = event_id.partition("-")
    return int(ms or 0), int(number or 0)
