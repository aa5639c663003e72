"""What users ask for, written down before anything happens: submit, trigger, retry, cancel.

Each is a compare-and-set on the execution's row, with its line in the audit trail, in one transaction. The hot store
hears of it afterwards; whatever keeps it from hearing, the reconciler makes good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, Update, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils import uuid7

from headrace.model.definition import Definition
from headrace.record.bulk import Bulk
from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.tables import audit, dead_letters, definitions, executions, idempotency_keys, restarts

VERSION_RACES = 100
ROWS_TOGETHER = 5000
NO_EPOCHS: Final[Mapping[str, str]] = MappingProxyType({})
NEW_EXECUTION = (
    "id", "definition_id", "workflow", "version", "partition", "status", "run", "epoch", "last_event", "cancelled_run",
    "input", "created_ms", "traceparent", "nodes", "done", "failed",
)  # fmt: skip
SAME_CONTENT = select(definitions.c.id, definitions.c.version).where(
    definitions.c.name == bindparam("n"), definitions.c.content_hash == bindparam("c")
)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's key, within what belongs to `owner`; the same key must come with the same body."""

    owner: str
    key: str
    body_hash: str


@dataclass(frozen=True, slots=True)
class Submission:
    """An execution to be; with `input_text` it is triggered at once. `traceparent` is well-formed."""

    execution_id: str
    partition: int
    definition: Definition
    actor: str
    input_text: str | None = None
    idempotency: Idempotency | None = None
    traceparent: str | None = None
    created_ms: int = field(default_factory=now_ms)


@dataclass(frozen=True, slots=True)
class Accepted:
    """`is_new` is false where the idempotency key had been used before: then this is that execution."""

    execution_id: str
    definition_id: str
    version: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The idempotency key came with another body."""


@dataclass(frozen=True, slots=True)
class Now:
    """Where an execution stands: `done` says whether this call brought it there."""

    status: str
    run: int
    done: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """What runs again in the next run although it is COMPLETED: the nodes that were `asked` for, and all after them."""

    asked: Sequence[str]
    nodes: Sequence[str]


class Acceptance:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._new_executions = Bulk(insert(executions), NEW_EXECUTION)
        self._new_lines = Bulk(insert(audit))

    async def submit(
        self, submissions: Sequence[Submission], epochs: Mapping[str, str] = NO_EPOCHS
    ) -> list[Accepted | KeyReused]:
        """All in one transaction, with few statements: they are accepted when it is committed. `epochs`: of those whose
        place in the hot store is reserved."""
        return await self._database.writing(lambda connection: self._submit(connection, submissions, epochs))

    def _submit(
        self, connection: Connection, submissions: Sequence[Submission], epochs: Mapping[str, str]
    ) -> list[Accepted | KeyReused]:
        answers: dict[int, Accepted | KeyReused] = {}
        stored: dict[tuple[str, str], tuple[str, int]] = {}
        ours: dict[tuple[str, str], Submission] = {}
        for i in sorted(range(len(submissions)), key=lambda i: _lock_order(submissions[i])):
            wanted, given = submissions[i], submissions[i].idempotency
            twin = ours.setdefault((given.owner, given.key), wanted) if given else wanted
            if given and twin is wanted and (earlier := self._claim_key(connection, wanted, given)):
                answers[i] = earlier
                del ours[given.owner, given.key]
                continue
            if given and twin.idempotency and twin.idempotency.body_hash != given.body_hash:
                answers[i] = KeyReused()
                continue
            content = (twin.definition.name, twin.definition.content_hash)
            if content not in stored:
                stored[content] = self._definition(connection, twin.definition)
            answers[i] = Accepted(twin.execution_id, *stored[content], is_new=twin is wanted)
        self._insert(connection, [(submissions[i], answer) for i, answer in answers.items()], epochs)
        return [answers[i] for i in range(len(submissions))]

    async def trigger(
        self, execution_id: str, input_text: str, actor: str, traceparent: str | None = None
    ) -> Now | None:
        """PENDING becomes RUNNING. None: there is no such execution."""
        change = update(executions).values(status="RUNNING", run=1, input=input_text, **_traced(traceparent))
        return await self._change(execution_id, ("PENDING",), change, "trigger", actor)

    async def retry(
        self, execution_id: str, actor: str, traceparent: str | None = None, *, restart: Restart | None = None
    ) -> Now | None:
        """FAILED or CANCELLED becomes RUNNING in the next run, which settles its dead letters. With a `restart` also
        COMPLETED does, and what these nodes did before no longer counts."""
        change = update(executions).values(
            status="RUNNING",
            run=executions.c.run + 1,
            error=None,
            error_node=None,
            started_ms=None,
            finished_ms=None,
            done=None,
            failed=None,
            **_traced(traceparent),
        )
        letters = update(dead_letters).values(status="RETRIED")
        letters = letters.where(dead_letters.c.execution_id == execution_id, dead_letters.c.status == "OPEN")

        async def also(connection: AsyncConnection, run: int) -> None:
            await connection.execute(letters)
            if restart is not None:
                await self._restart(connection, execution_id, run, restart.nodes)

        allowed = ("FAILED", "CANCELLED") if restart is None else ("FAILED", "CANCELLED", "COMPLETED")
        detail = None if restart is None else f"from {', '.join(restart.asked)}"
        return await self._change(execution_id, allowed, change, "retry", actor, detail=detail, also=also)

    async def _restart(self, connection: AsyncConnection, execution_id: str, run: int, nodes: Sequence[str]) -> None:
        statement = self._database.insert(restarts)
        upsert = statement.on_conflict_do_update(
            index_elements=["execution_id", "node"], set_={"run": statement.excluded.run}
        )
        rows = [{"execution_id": execution_id, "node": node, "run": run} for node in nodes]
        for start in range(0, len(rows), ROWS_TOGETHER):  # a statement has to be done within ANSWER_SECONDS
            await connection.execute(upsert, rows[start : start + ROWS_TOGETHER])

    async def cancel(self, execution_id: str, actor: str) -> Now | None:
        """Marks the run; it is CANCELLED once the hot store has said so. Asked again, it is done all the same."""
        change = update(executions).values(cancelled_run=executions.c.run)
        change = change.where(executions.c.cancelled_run != executions.c.run)
        return await self._change(execution_id, ("RUNNING",), change, "cancel", actor)

    async def _change(
        self,
        execution_id: str,
        allowed: Sequence[str],
        change: Update,
        action: str,
        actor: str,
        *,
        detail: str | None = None,
        also: Callable[[AsyncConnection, int], Awaitable[None]] | None = None,
    ) -> Now | None:
        """`also` is done in the same transaction; it gets the run that the execution is in now."""
        where = select(executions.c.status, executions.c.run).where(executions.c.id == execution_id)
        async with self._database.write() as connection:
            before = (await connection.execute(where.with_for_update())).one_or_none()
            if before is None:
                return None
            if before.status not in allowed:
                return Now(before.status, before.run, done=False)
            changed = await connection.execute(change.where(executions.c.id == execution_id))
            if not changed.rowcount:  # it had been done before: nothing new for the trail
                return Now(before.status, before.run, done=True)
            after = (await connection.execute(where)).one()
            if also is not None:
                await also(connection, after.run)
            await connection.execute(insert(audit), [audit_line(actor, action, execution_id, detail)])
            return Now(after.status, after.run, done=True)

    def _insert(
        self,
        connection: Connection,
        answered: Sequence[tuple[Submission, Accepted | KeyReused]],
        epochs: Mapping[str, str],
    ) -> None:
        new = [(one, answer) for one, answer in answered if isinstance(answer, Accepted) and answer.is_new]
        if not new:
            return
        rows = [
            {
                "id": wanted.execution_id,
                "definition_id": accepted.definition_id,
                "workflow": wanted.definition.name,
                "version": accepted.version,
                "partition": wanted.partition,
                "status": "PENDING" if wanted.input_text is None else "RUNNING",
                "run": 0 if wanted.input_text is None else 1,
                "epoch": epochs.get(wanted.execution_id, ""),
                "last_event": "",
                "cancelled_run": 0,
                "input": wanted.input_text,
                "created_ms": wanted.created_ms,
                "traceparent": wanted.traceparent,
                "nodes": len(wanted.definition.nodes),
                "done": 0,
                "failed": 0,
            }
            for wanted, accepted in new
        ]
        self._new_executions.execute(connection, rows)
        trail = [
            audit_line(wanted.actor, "submit" if wanted.input_text is None else "start", wanted.execution_id)
            for wanted, _ in new
        ]
        self._new_lines.execute(connection, trail)

    def _claim_key(self, connection: Connection, wanted: Submission, given: Idempotency) -> Accepted | KeyReused | None:
        """None: the key is new, and ours now. A transaction that has the same key is waited for."""
        row = {
            "owner": given.owner,
            "key": given.key,
            "body_hash": given.body_hash,
            "execution_id": wanted.execution_id,
            "created_ms": now_ms(),
        }
        known = idempotency_keys.c
        found = None
        while found is None:  # again only if the key was there and expired meanwhile
            claim = self._database.insert(idempotency_keys).values(row).on_conflict_do_nothing()
            if connection.execute(claim).rowcount:
                return None
            found = connection.execute(
                select(known.body_hash, executions.c.id, executions.c.definition_id, executions.c.version)
                .join(executions, executions.c.id == known.execution_id)
                .where(known.owner == given.owner, known.key == given.key)
            ).one_or_none()
        if found.body_hash != given.body_hash:
            return KeyReused()
        return Accepted(found.id, found.definition_id, found.version, is_new=False)

    def _definition(self, connection: Connection, definition: Definition) -> tuple[str, int]:
        """Its id and version: those of the same content, or the next."""
        table, name = definitions.c, definition.name
        newest = select(func.coalesce(func.max(table.version), 0)).where(table.name == name)
        for _ in range(VERSION_RACES):
            found = connection.execute(SAME_CONTENT, {"n": name, "c": definition.content_hash}).one_or_none()
            if found is not None:
                return found.id, found.version
            row = {
                "id": str(uuid7()),
                "name": name,
                "version": connection.execute(newest).scalar_one() + 1,
                "content_hash": definition.content_hash,
                "body": definition.to_json(),
                "created_ms": now_ms(),
            }
            connection.execute(self._database.insert(definitions).values(row).on_conflict_do_nothing())
        raise RuntimeError(f"the versions of {name} change too fast")


def _lock_order(wanted: Submission) -> tuple[str, ...]:
    """Transactions that take the same names and keys in the same order do not wait for each other in a circle."""
    given = wanted.idempotency
    key = (given.owner, given.key) if given is not None else ()
    return (wanted.definition.name, *key)


def _traced(traceparent: str | None) -> dict[str, str]:
    """Without a trace of its own, a request goes on in the one that the execution has."""
    return {} if traceparent is None else {"traceparent": traceparent}


def audit_line(actor: str, action: str, execution_id: str | None = None, detail: str | None = None) -> dict[str, Any]:
    """A row of the audit trail: who did what, and when."""
    return {
        "id": str(uuid7()),
        "at_ms": now_ms(),
        "actor": actor,
        "action": action,
        "execution_id": execution_id,
        "detail": detail,
    }
