"""What is left of a run, read once: record, hot store, ledger of effects, what clients were told, events.

The rules look at this value and at nothing else, so each of them can be shown a fabricated one (test_chaos_checker.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import func, select

from headrace.hot import keys
from headrace.hot.wire import Address, Link
from headrace.record.database import Database
from headrace.record.tables import attempts, audit, dead_letters, executions, partitions, set_aside
from headrace.settings import Settings
from tests.chaos.run import Run, read_lines
from tests.chaos.watcher import code_of, digest

TOKEN_PARTS = 5


@dataclass(frozen=True)
class Call:
    """A handler, as the effect server heard of it: `phase` is "start" or "end"."""

    at: float
    execution: str
    node: str
    run: int
    attempt: int
    token: str
    key: str
    phase: str
    worker: str = ""

    @property
    def epoch(self) -> str:
        parts = self.token.split("|")
        return parts[1] if len(parts) == TOKEN_PARTS else ""


@dataclass(frozen=True)
class Accepted:
    """An execution that a client was promised. `actions` are what it asked for later, with the answers."""

    execution: str
    definition: Mapping[str, Any]
    key: str = ""
    at: float = 0.0
    actions: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        return {node["id"]: tuple(node.get("dependencies", ())) for node in self.definition["nodes"]}

    @cached_property
    def nodes(self) -> dict[str, Mapping[str, Any]]:
        return {node["id"]: node for node in self.definition["nodes"]}


@dataclass(frozen=True)
class Stored:
    """An execution in SQL."""

    execution: str
    status: str
    run: int
    epoch: str = ""
    last_event: str = ""
    cancelled_run: int = 0
    error: str = ""
    error_node: str = ""
    created_ms: int = 0
    finished_ms: int = 0


@dataclass(frozen=True)
class Attempt:
    """A row of SQL's attempts: of a completed one the output, of a failed one the failure's code."""

    execution: str
    run: int
    node: str
    attempt: int
    state: str
    output: str | None = None
    code: str = ""
    retryable: bool = False
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0


@dataclass(frozen=True)
class Change:
    """Of a node, in an event; `detail` is as the watcher wrote it."""

    node: str
    state: str
    attempt: int
    detail: str = ""
    due_ms: int = 0


@dataclass(frozen=True)
class Seen:
    """An event that the watcher saw."""

    id: str
    execution: str
    epoch: str
    run: int
    seq: int
    previous: str
    at_ms: int
    status: str
    changes: Sequence[Change]

    @property
    def at(self) -> float:
        return self.at_ms / 1000


@dataclass(frozen=True)
class Fault:
    name: str
    at: float
    healed_at: float
    target: str = ""


@dataclass(frozen=True)
class HotLeft:
    """What the hot store holds once all is quiet."""

    keys: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)  # name -> type, ttl in s or -1, size
    timers: Mapping[str, float] = field(default_factory=dict)  # member -> due in ms
    pending: int = 0
    consumers: Mapping[str, float] = field(default_factory=dict)  # name -> idle seconds
    workers: Mapping[str, float] = field(default_factory=dict)  # name -> seconds since its heartbeat
    last_events: Mapping[int, str] = field(default_factory=dict)
    late_results: int = 0
    now_ms: int = 0


@dataclass(frozen=True)
class Evidence:
    settings: Settings
    healed_at: float
    accepted: Mapping[str, Accepted]
    stored: Mapping[str, Stored]
    attempts: Sequence[Attempt]
    calls: Sequence[Call]
    events: Sequence[Seen] = ()
    faults: Sequence[Fault] = ()
    hot: HotLeft = field(default_factory=HotLeft)
    letters: frozenset[tuple[str, int, str]] = frozenset()  # execution, run, node
    actions: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (execution, audited action) -> how often
    cursors: Mapping[int, str] = field(default_factory=dict)
    set_aside: int = 0
    refused: Sequence[tuple[float, int]] = ()  # when, and how many reports a worker was told to be stale
    submitted_twice: Mapping[str, frozenset[str]] = field(default_factory=dict)  # idempotency key -> executions

    @cached_property
    def starts(self) -> list[Call]:
        return sorted((each for each in self.calls if each.phase == "start"), key=lambda each: each.at)

    @cached_property
    def by_execution(self) -> dict[str, list[Attempt]]:
        found: dict[str, list[Attempt]] = {}
        for row in self.attempts:
            found.setdefault(row.execution, []).append(row)
        return found

    @cached_property
    def completed(self) -> dict[tuple[str, str], Attempt]:
        """(execution, node) -> the attempt that completed it, as SQL has it."""
        return {(row.execution, row.node): row for row in self.attempts if row.state == "COMPLETED"}


async def gather(run: Run, healed_at: float) -> Evidence:
    lines = list(read_lines(run.accepted))
    database = Database(run.database_url)
    try:
        return Evidence(
            settings=run.settings,
            healed_at=healed_at,
            accepted=_accepted(lines),
            calls=[_call(line) for line in read_lines(run.ledger)],
            events=[_seen(line) for line in read_lines(run.events)],
            faults=[_fault(line) for line in read_lines(run.faults) if line.get("fired", True)],
            refused=[(line["at"], line["count"]) for line in read_lines(run.refused)],
            submitted_twice=_by_key(lines),
            hot=await _hot(run),
            **await _record(database),
        )
    finally:
        await database.aclose()


# ---- the files


def _accepted(lines: Iterable[Mapping[str, Any]]) -> dict[str, Accepted]:
    """Of several lines of one execution the last: it knows what was asked of it."""
    return {
        line["execution_id"]: Accepted(
            line["execution_id"],
            line["definition"],
            line.get("idempotency_key") or "",
            line.get("at", 0.0),
            line.get("actions") or (),
        )
        for line in lines
        if line.get("execution_id")
    }


def _by_key(lines: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.get("execution_id") and line.get("idempotency_key"):
            found.setdefault(line["idempotency_key"], set()).add(line["execution_id"])
    return {key: frozenset(ids) for key, ids in found.items()}


def _call(line: Mapping[str, Any]) -> Call:
    return Call(
        line["at"], line["execution"], line["node"], line["run"], line["attempt"], str(line["token"]), line["key"],
        line["phase"], str(line.get("worker", "")),
    )  # fmt: skip


def _seen(line: Mapping[str, Any]) -> Seen:
    changes = [Change(*each) for each in line["changes"]]
    return Seen(
        line["id"], line["execution"], line["epoch"], line["run"], line["seq"], line["previous"], line["at_ms"],
        line["status"], changes,
    )  # fmt: skip


def _fault(line: Mapping[str, Any]) -> Fault:
    return Fault(line["fault"], line["at"], line.get("healed_at") or line["at"], str(line.get("target", "")))


# ---- the record


async def _record(database: Database) -> dict[str, Any]:
    async with database.read() as connection:
        stored = [
            Stored(
                row.id, row.status, row.run, row.epoch, row.last_event, row.cancelled_run, code_of(row.error),
                row.error_node or "", row.created_ms, row.finished_ms or 0,
            )
            for row in await connection.execute(select(executions))
        ]  # fmt: skip
        rows = [_attempt(row) for row in await connection.execute(select(attempts))]
        letters = await connection.execute(select(dead_letters.c.execution_id, dead_letters.c.run, dead_letters.c.node))
        trail = await connection.execute(
            select(audit.c.execution_id, audit.c.action, func.count()).group_by(audit.c.execution_id, audit.c.action)
        )
        return {
            "stored": {each.execution: each for each in stored},
            "attempts": rows,
            "letters": frozenset((row[0], row[1], row[2]) for row in letters),
            "actions": {(row[0], row[1]): row[2] for row in trail},
            "cursors": {row.number: row.cursor for row in await connection.execute(select(partitions))},
            "set_aside": (await connection.execute(select(func.count()).select_from(set_aside))).scalar_one(),
        }


def _attempt(row: Any) -> Attempt:
    failure = msgspec.json.decode(row.error) if row.error else {}
    return Attempt(
        row.execution_id, row.run, row.node, row.attempt, row.state, row.output, failure.get("code", ""),
        failure.get("retryable", False), row.queued_ms or 0, row.started_ms or 0, row.finished_ms or 0,
    )  # fmt: skip


# ---- the hot store


async def _hot(run: Run) -> HotLeft:
    link = Link(Address.parse(run.valkey_url), 10.0)
    try:
        seconds, microseconds = await link.call("TIME")
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        found: dict[str, tuple[str, int, int]] = {}
        parts: dict[str, Any] = {"timers": {}, "consumers": {}, "workers": {}, "last_events": {}}
        pending = late = 0
        for name in await _all_keys(link):
            if (measured := await _measured(link, name))[1] != EXPIRED:
                found[name] = measured
        for partition in range(run.partitions):
            prefix = keys.prefix(partition)
            if prefix + "timers" in found:
                flat = await link.call("ZRANGE", prefix + "timers", 0, -1, "WITHSCORES")
                parts["timers"] |= {m.decode(): float(s) for m, s in zip(flat[::2], flat[1::2], strict=True)}
            if prefix + "results" in found:
                pending += (await link.call("XPENDING", prefix + "results", keys.RESULTS_GROUP))[0]
                for one in await link.call("XINFO", "CONSUMERS", prefix + "results", keys.RESULTS_GROUP):
                    told = dict(zip(one[::2], one[1::2], strict=True))
                    parts["consumers"][told[b"name"].decode()] = told[b"idle"] / 1000
            flat = await link.call("HGETALL", prefix + "workers")
            for worker, value in zip(flat[::2], flat[1::2], strict=True):
                parts["workers"][worker.decode()] = (now_ms - int(value.partition(b"|")[0])) / 1000
            newest = await link.call("XREVRANGE", prefix + "events", "+", "-", "COUNT", 1)
            parts["last_events"][partition] = newest[0][0].decode() if newest else "0-0"
            late += int(await link.call("HGET", prefix + "metrics", "late_results") or 0)
        return HotLeft(keys=found, pending=pending, late_results=late, now_ms=now_ms, **parts)
    finally:
        await link.aclose()


async def _all_keys(link: Link) -> list[str]:
    found: set[str] = set()
    cursor = b"0"
    while True:
        cursor, some = await link.call("SCAN", cursor, "COUNT", 1000)
        found.update(key.decode() for key in some)
        if cursor == b"0":
            return sorted(found)


EXPIRED = -2  # what TTL says of a key that is not there any more
SIZES = {"hash": "HLEN", "stream": "XLEN", "zset": "ZCARD", "set": "SCARD", "list": "LLEN", "string": "STRLEN"}


async def _measured(link: Link, name: str) -> tuple[str, int, int]:
    kind = (await link.call("TYPE", name)).decode()
    return kind, await link.call("TTL", name), await link.call(SIZES[kind], name) if kind in SIZES else 0


def digest_of(attempt: Attempt) -> str:
    return digest(attempt.output or "")
