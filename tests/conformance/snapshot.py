"""Reads a partition of the real server raw, and compares all of it with the reference.

Times that the reference leaves open (NOW, After, GRACE) must lie between the last look and this one; then the reference
learns them, so that from here on they must not change. Stream ids are learned in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import Any

import msgspec

from headrace.hot import codec, keys, library
from headrace.hot.store import HotStore
from headrace.hot.wire import Refused
from headrace.model.messages import Event, Failure, Hint, Outcome, Record
from tests.conformance.reference import GRACE, LATE, NOW, WORKER_LOST, After, Execution, Happened, Partition

LOOK = """
local prefix, after, control, ids, handlers, definitions = ARGV[1], ARGV[2], ARGV[3], unpack(cmsgpack.unpack(ARGV[4]))
local t = redis.call('TIME')
local tasks, executions, texts = {}, {}, {}
for i, handler in ipairs(handlers) do tasks[i] = redis.call('LRANGE', prefix .. 'tasks:' .. handler, 0, -1) end
for i, hash in ipairs(definitions) do
  texts[i] = {redis.call('TTL', prefix .. 'def:' .. hash), redis.call('HGET', prefix .. 'defs', hash)}
end
for i, id in ipairs(ids) do
  executions[i] = {redis.call('HGETALL', prefix .. 'x:' .. id), redis.call('PTTL', prefix .. 'x:' .. id)}
end
return {
  t[1] * 1000 + math.floor(t[2] / 1000),
  redis.call('HMGET', prefix .. 'meta', 'grace'),
  redis.call('ZRANGE', prefix .. 'timers', 0, -1, 'WITHSCORES'),
  redis.call('XRANGE', prefix .. 'results', '-', '+'),
  redis.call('XINFO', 'GROUPS', prefix .. 'results')[1][8],
  redis.call('XPENDING', prefix .. 'results', 'orchestrators', '-', '+', 10000),
  redis.call('XRANGE', prefix .. 'events', after, '+'),
  redis.call('XRANGE', prefix .. 'control', control, '+'),
  redis.call('SMEMBERS', prefix .. 'queues'),
  redis.call('HGETALL', prefix .. 'workers'),
  tasks, texts, executions,
}
"""

LOOK_HASH = sha1(LOOK.encode(), usedforsecurity=False).hexdigest()

HANDLERS = ["h1", "h2"]


@dataclass(frozen=True, slots=True)
class Seen:
    """An execution as it really is; `records` is empty while it is absent or OPENING."""

    status: str
    run: int
    epoch: str
    records: dict[str, Record]


ABSENT = Seen("", 0, "", {})


class Mirror:
    """One partition of the server beside its reference."""

    def __init__(self, store: HotStore, number: int, model: Partition, ids: list[str], hashes: list[str]) -> None:
        self.store, self.model = store, model
        self.ids, self.hashes = ids, hashes
        self.prefix = keys.prefix(number)
        self.seen = dict.fromkeys(ids, ABSENT)
        self.queues: set[str] = set()
        self._names = codec.encode((ids, HANDLERS, hashes))
        self._after = self._control = "-"
        self._before = 0
        self._now = 0
        self._grace = 0

    def restart(self) -> None:
        """The server lost this partition; the reference, too."""
        self.queues = set()
        self._after = self._control = "-"

    async def compare(self) -> list[tuple[str, Event]]:
        """Asserts that both are the same, and gives the new events."""
        raw = await self._look(0, self.prefix, self._after, self._control, self._names)
        self._now, (grace,), timers, results, delivered, pending, events, control, queues, workers, *rest = raw
        tasks, texts, executions = rest
        self._grace = int(grace or 0)
        new = self._events(events)
        self._results(results, [one[0].decode() for one in pending], delivered.decode())
        for handler, messages in zip(HANDLERS, tasks, strict=True):
            expected = self.model.tasks.get(handler, [])
            assert [codec.decode_task(message) for message in messages] == expected, f"tasks of {handler}"
            if expected:
                self.queues.add(handler)
        assert {name.decode() for name in queues} >= self.queues
        assert set(self.model.tasks) == {name.decode() for name in queues}
        self._timers(timers)
        assert [tuple(entry[1][1].decode().split("|")) for entry in control] == self.model.control, "control"
        if control:
            self._control, self.model.control = f"({control[-1][0].decode()}", []
        told = {
            name.decode(): value.decode().partition("|")[2]
            for name, value in zip(workers[::2], workers[1::2], strict=True)
        }
        assert told == self.model.workers
        for content_hash, (ttl, users) in zip(self.hashes, texts, strict=True):
            definition = self.model.definitions[content_hash]
            assert int(users or 0) == definition.users, "users of a definition"
            assert (ttl == -1) == definition.kept, "life of a definition"
        for execution_id, found in zip(self.ids, executions, strict=True):
            self.seen[execution_id] = self._execution(self.model.executions.get(execution_id), found)
        self._before = self._now
        return new

    async def _look(self, *arguments: Any) -> list[Any]:
        try:
            return await self.store._link.call("EVALSHA", LOOK_HASH, *arguments)
        except Refused:  # not there yet
            return await self.store._link.call("EVAL", LOOK, *arguments)

    def _time(self, real: int, expected: Any, what: str) -> int:
        """The time that the reference left open, or learned earlier."""
        if expected == NOW:
            expected = After(0)
        if isinstance(expected, After):
            assert self._before <= real - expected.ms <= self._now, f"{what}: {real} is not {expected} now"
            return real
        if expected == GRACE:
            expected = self._grace
        assert real == expected, f"{what}: {real}, expected {expected}"
        return real

    def _events(self, entries: list[Any]) -> list[tuple[str, Event]]:
        """Between executions their order means nothing; of one execution there is one per call at most."""
        new = [(entry_id.decode(), event) for entry_id, fields in entries for event in codec.read_events(fields)]
        expected = {happened.execution_id: happened for happened in self.model.events}
        assert sorted(event.execution_id for _, event in new) == sorted(expected), f"events: {new}, not {expected}"
        for entry_id, event in new:
            self._happened(event, expected[event.execution_id])
            expected[event.execution_id].id = entry_id
        self.model.events = []
        if new:
            self._after = f"({new[-1][0]}"
        return new

    def _happened(self, event: Event, expected: Happened) -> None:
        self._time(event.at_ms, NOW, "time of an event")
        changes = [
            msgspec.structs.replace(change, due_ms=change.due_ms - event.at_ms) if change.due_ms else change
            for change in event.changes
        ]
        real = (event.epoch, event.run, event.seq, event.previous, event.status, _plain_error(event.error), changes)
        wanted_event = (
            expected.epoch,
            expected.run,
            expected.seq,
            expected.previous,
            expected.status,
            expected.error,
            expected.changes,
        )
        assert real == wanted_event, f"event: {real}, expected {wanted_event}"

    def _results(self, entries: list[Any], pending: list[str], delivered: str) -> None:
        """What was delivered and is not pending is only waiting for the head of the stream to be cut off."""
        read = set(pending)
        live = [one for one in entries if one[0].decode() in read or _order(one[0].decode()) > _order(delivered)]
        real = [list(map(plain_outcome, codec.read_hints(fields))) for _, fields in live]
        assert real == [entry.hints for entry in self.model.results], "results"
        for (entry_id, _), entry in zip(live, self.model.results, strict=True):
            assert entry.id in ("", entry_id.decode())
            entry.id = entry_id.decode()
        assert pending == [entry.id for entry in self.model.results if entry.read], "pending"
        assert live or not pending

    def _timers(self, pairs: list[bytes]) -> None:
        real = {member.decode(): int(score) for member, score in zip(pairs[::2], pairs[1::2], strict=True)}
        expected = {timer.member: timer for timer in self.model.timers}
        assert real.keys() == expected.keys(), f"timers: {real.keys()}, expected {expected.keys()}"
        for member, timer in expected.items():
            self.model.timers[timer] = self._time(real[member], self.model.timers[timer], member)

    def _execution(self, x: Execution | None, parts: list[Any]) -> Seen:
        head, records, counts, outputs = _fields(parts[0])
        life = parts[1]
        if x is None:
            assert not (head or records or counts or outputs), f"an execution that should be gone: {head}"
            return ABSENT
        decoded = {name: codec.read_record(value) for name, value in records.items()}
        self._nodes(x, decoded)
        assert {name: int(count) for name, count in counts.items()} == x.counts, f"counts of {x.id}"
        assert {name: text.decode() for name, text in outputs.items()} == x.outputs, f"outputs of {x.id}"
        packed = head.pop("@m")
        assert packed[:1].decode() == library.FORMAT
        assert (packed[3:4] == b"d") == x.has_deadline
        real = codec.read_execution([packed, *[None] * 5])
        assert real is not None
        assert (real.status, real.epoch, real.run) == (x.status, x.epoch, x.run), f"{x.id}: {real}"
        if x.status == "O":
            assert not head
            assert life > 0, "a reservation without TTL"
            return Seen("O", 0, "", {})
        assert life == -1, "a live execution with a TTL"
        for name in ("created", "started", "finished"):
            assert (f"@{name}" in head) == (getattr(x, name) is not None), f"{name} of {x.id}"
            if f"@{name}" in head:
                setattr(x, name, self._time(int(head.pop(f"@{name}")), getattr(x, name), f"{name} of {x.id}"))
        error = (_plain_error(head.pop("@error", b"").decode()), head.pop("@error_node", b"").decode())
        assert error == (x.error, x.error_node)
        assert not head
        found = (real.mode, real.left, real.busy, real.failed, real.seq, real.last, real.definition)
        expected = (x.mode[0], x.left, x.busy, x.failed, x.seq, x.last_id, x.definition)
        assert found == expected, f"{x.id}: {found}, expected {expected}"
        return Seen(x.status, x.run, x.epoch, decoded)

    def _nodes(self, x: Execution, records: dict[str, Record]) -> None:
        assert records.keys() == x.nodes.keys(), f"nodes of {x.id}: {records.keys()}, expected {x.nodes.keys()}"
        for name, record in records.items():
            node = x.nodes[name]
            what = f"{name} of {x.id}"
            node.queued_ms = self._time(record.queued_ms, node.queued_ms, what)
            node.started_ms = self._time(record.started_ms, node.started_ms, what)
            node.finished_ms = self._time(record.finished_ms, node.finished_ms, what)
            real = (
                record.state,
                record.attempt,
                record.retries,
                record.lost,
                record.cursor,
                record.worker,
                record.error,
            )
            wanted = (node.state, node.attempt, node.retries, node.lost, node.cursor, node.worker, node.error)
            assert real == wanted, f"{what}: {real}, expected {wanted}"


def _order(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))


def _fields(flat: list[bytes]) -> list[dict[str, bytes]]:
    """Of an execution's hash: what begins with @, the nodes, their counts, their outputs."""
    parts: list[dict[str, bytes]] = [{}, {}, {}, {}]
    for raw, value in zip(flat[::2], flat[1::2], strict=True):
        name = raw.decode()
        if name.startswith("@"):
            parts[0][name] = value
        elif name.startswith(("d:", "o:")):
            parts[2 if name[0] == "d" else 3][name[2:]] = value
        else:
            parts[1][name] = value
    return parts


def plain_outcome(hint: Hint) -> Hint:
    """The outcome that the Lua itself writes, as the reference names it."""
    if hint.outcome.startswith('{"complete":true'):
        output = msgspec.json.decode(hint.outcome, type=Outcome).output
        return msgspec.structs.replace(hint, outcome=f"{output} complete")
    if not hint.outcome.startswith('{"failure":{"code":"worker_lost"'):
        return hint
    failure = msgspec.json.decode(hint.outcome, type=Outcome).failure
    assert failure is not None
    assert failure.retryable
    return msgspec.structs.replace(hint, outcome=WORKER_LOST)


def _plain_error(error: str) -> str:
    if not error.startswith('{"code":"timeout"'):
        return error
    assert not msgspec.json.decode(error, type=Failure).retryable
    return LATE
