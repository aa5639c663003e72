"""How messages are written for the Lua functions, and how their answers and records are read.

The counterpart of what the Lua functions share: flat MessagePack lists in, `struct` records and texts separated by `|`
out. No part of a token can contain a `|`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

import msgspec

from headrace.model.messages import (
    Advanced,
    Change,
    Dispatch,
    Due,
    Event,
    Execution,
    Hint,
    OpenSlice,
    Record,
    Report,
    Task,
    Token,
    Verdict,
)
from headrace.model.state import NodeState

_execution_numbers = struct.Struct("<5I").unpack_from
_node_numbers = struct.Struct("<cIIIIddd")
_RETRYING = NodeState.RETRYING.value
BETWEEN_SECTIONS, BETWEEN_PARTS = "\x1d", "\x1e"  # of an entry of a stream
_FINISHED, _NOT_FINISHED = Advanced(True, []), Advanced(False, [])

encode = msgspec.msgpack.Encoder().encode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_tasks = msgspec.msgpack.Decoder(list[Task]).decode
decode_due = msgspec.msgpack.Decoder(tuple[list[Due], bool]).decode
_decode_numbers = msgspec.msgpack.Decoder(list[int]).decode


def token_fields(token: Token) -> tuple[str, str, int, str, int]:
    return (token.execution_id, token.epoch, token.run, token.node, token.attempt)


def open_arguments(ttl_ms: int, slices: Iterable[OpenSlice]) -> list[bytes]:
    arguments = [b""]
    parts: list[object] = []
    for part in slices:
        roots: list[object] = []
        for item in part.roots:
            arguments.append(_task_message(item))
            roots += (item.node, item.handler, len(arguments))
        parts.append((part.execution_id, part.token, part.rows, part.counts, part.outputs, part.opening, roots))
    arguments[0] = encode((ttl_ms, parts))
    return arguments


def dispatch_arguments(items: Sequence[Dispatch], hints: Sequence[str]) -> list[bytes | str]:
    fields: list[object] = []
    messages: list[bytes | str] = []
    for item in items:
        fields += (
            item.execution_id, item.epoch, item.run, item.node, item.attempt, item.parents, item.handler, item.failed
        )  # fmt: skip
        messages.append(item.payload if item.failed else _task_message(item))
    return [encode(fields), encode(hints), *messages]


def _task_message(item: Dispatch) -> bytes:
    """A Task: one object less is made."""
    return encode(
        (item.execution_id, item.epoch, item.run, item.node, item.attempt, item.handler, item.payload, item.definition)
    )


def release_arguments(tasks: Iterable[Task]) -> list[bytes | str]:
    fields: list[object] = []
    messages: list[bytes | str] = []
    for task in tasks:
        fields += (*token_fields(task.token), task.handler)
        messages.append(encode(msgspec.structs.replace(task, attempt=task.attempt + 1)))
    return [encode(fields), *messages]


def renew_argument(worker: str, about: str, lease_ms: int, tokens: Iterable[Token]) -> bytes:
    return encode([worker, about, lease_ms, *(field for token in tokens for field in token_fields(token))])


def report_arguments(reports: Iterable[Report]) -> list[bytes]:
    """For `complete`, if one of them has children with it."""
    fields: list[object] = []
    arguments = [b""]
    for one in reports:
        token, children = one.token, one.children
        fields += (
            token.execution_id, token.epoch, token.run, token.node, token.attempt, one.outcome, children is not None,
            len(children or ()),
        )  # fmt: skip
        if children:
            fields += _with_tasks(children, one.tasks, arguments)
    arguments[0] = encode(fields)
    return arguments


def _with_tasks(
    names: Iterable[tuple[str, int]], tasks: Sequence[Dispatch | None], arguments: list[bytes]
) -> list[object]:
    """Of each node: name, number of parents, handler, and which of the arguments, to which it is added, is its task."""
    fields: list[object] = []
    for (name, parents), task in zip(names, tasks or repeat(None)):  # noqa: B905 (without end)
        if task is None:
            fields += (name, parents, "", 0)
        else:
            arguments.append(_task_message(task))
            fields += (name, parents, task.handler, len(arguments))
    return fields


def advance_arguments(verdicts: Iterable[Verdict]) -> list[bytes]:
    """With more than one of them, some nodes have their tasks with them: for `push`."""
    fields: list[object] = []
    arguments = [b""]
    for v in verdicts:
        fields += (
            v.entry_id, v.execution_id, v.epoch, v.run, v.node, v.attempt, v.verdict, v.body, v.delay_ms, v.flag,
            v.offset, v.total, v.quiet, len(v.names),
        )  # fmt: skip
        if v.names:
            fields += _with_tasks(v.names, v.tasks, arguments)
    arguments[0] = encode(fields)
    return arguments


def read_advanced(raw: bytes) -> list[Advanced]:
    numbers = _decode_numbers(raw)
    found: list[Advanced] = []
    at, end = 0, len(numbers)
    while at < end:
        finished, count = numbers[at], numbers[at + 1]
        at += 2
        if count:
            pairs = [(numbers[i] - 1, numbers[i + 1]) for i in range(at, at + 2 * count, 2)]
            at += 2 * count
            found.append(Advanced(bool(finished), pairs))
        else:
            found.append(_FINISHED if finished else _NOT_FINISHED)
    return found


def read_hints(fields: Sequence[bytes] | None) -> list[Hint]:
    """One entry of the results has the hints of a call; one that was deleted meanwhile has no fields."""
    if not fields:
        return []
    _, text = fields
    parts = text.decode().split(BETWEEN_PARTS)
    return [_read_hint(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]


def _read_hint(whose: str, outcome: str) -> Hint:
    execution_id, epoch, run, node, attempt, definition, retries, lost = whose.split("|")
    return Hint(execution_id, epoch, int(run), node, int(attempt), definition, int(retries), int(lost), outcome)


def read_events(fields: Sequence[bytes]) -> list[Event]:
    """One entry of the outbox has an event of each execution that a call changed."""
    _, text = fields
    return [_read_event(section.split(BETWEEN_PARTS)) for section in text.decode().split(BETWEEN_SECTIONS)]


def _read_event(parts: Sequence[str]) -> Event:
    execution_id, epoch, run, seq, previous, at_ms, status, error = parts[0].split("|", 7)
    changes = list(map(_read_change, parts[1::2], parts[2::2]))
    return Event(execution_id, epoch, int(run), int(seq), previous, int(at_ms), status, error, changes)


def _read_change(node: str, text: str) -> Change:
    what, _, detail = text.partition(" ")
    state, attempt = _state_and_attempt(what)
    if state == _RETRYING:
        due_ms, _, detail = detail.partition(" ")
        return Change(node, state, attempt, detail, int(due_ms))
    return Change(node, state, attempt, detail)


@lru_cache(1000)
def _state_and_attempt(what: str) -> tuple[str, int]:
    """Nearly always one of a few."""
    return what[0], int(what[1:])


def read_record(raw: bytes | None) -> Record:
    if raw is None:
        return Record()
    state, attempt, retries, lost, cursor, *times = _node_numbers.unpack_from(raw)
    worker, _, error = raw[_node_numbers.size :].partition(b"\0")
    queued, started, finished = map(int, times)
    return Record(
        state.decode(), attempt, retries, lost, cursor, queued, started, finished, worker.decode(), error.decode()
    )


EXECUTION_FIELDS = ("@m", "@created", "@started", "@finished", "@error", "@error_node")


def read_execution(values: Sequence[bytes | None]) -> Execution | None:
    """From the values of EXECUTION_FIELDS."""
    packed, *times = values[:4]
    if packed is None:
        return None
    run, left, busy, failed, seq = _execution_numbers(packed, 4)
    epoch, last, definition, _ = packed[24:].decode().split("\0")
    created, started, finished = (int(time or 0) for time in times)
    error, error_node = ((value or b"").decode() for value in values[4:])
    return Execution(
        chr(packed[1]), chr(packed[2]), run, left, busy, failed, seq, epoch, last, definition, created, started,
        finished, error, error_node,
    )  # fmt: skip
