"""What the hot store is opened from: which executions should be running, and what of them is complete.

The epoch is the fence: whoever wants to open an execution reserves its place in the hot store, then sets the epoch
here, if nobody else did meanwhile, and only then opens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Row, Select, bindparam, select, tuple_, update

from headrace.model.state import NodeState
from headrace.record.database import Database
from headrace.record.tables import attempts, definitions, executions

IDS_TOGETHER = 500
LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An execution that SQL says is running, and how far its events were applied."""

    execution_id: str
    run: int
    epoch: str
    last_event: str
    is_cancelled: bool
    definition_id: str
    input_text: str
    created_ms: int


@dataclass(slots=True)
class NodeHistory:
    """What SQL knows of a node when its execution is opened; `output` is there if it is complete."""

    state: str = NodeState.PENDING.name
    attempt: int = 0
    retries: int = 0
    lost: int = 0
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    worker: str = ""
    output: str | None = None
    error: str = ""
    owner: str = ""


@dataclass(slots=True)
class History:
    nodes: dict[str, NodeHistory] = field(default_factory=dict)


class Openings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def running(self, partition: int, after: str = "", most: int = 1000) -> list[Wanted]:
        """By id, from behind `after` on."""
        table = executions.c
        query = (
            _wanted()
            .where(table.status == "RUNNING", table.partition == partition, table.id > after)
            .order_by(table.id)
            .limit(most)
        )
        async with self._database.read() as connection:
            return [_as_wanted(row) for row in await connection.execute(query)]

    async def wanted(self, ids: Sequence[str]) -> list[Wanted]:
        """Of these, those that should be running."""
        found: list[Wanted] = []
        async with self._database.read() as connection:
            for some in _slices(ids):
                query = _wanted().where(executions.c.status == "RUNNING", executions.c.id.in_(some))
                found += [_as_wanted(row) for row in await connection.execute(query)]
        return found

    async def definitions(self, ids: Sequence[str]) -> dict[str, str]:
        """Definition id -> its canonical text."""
        found: dict[str, str] = {}
        async with self._database.read() as connection:
            for some in _slices(sorted(set(ids))):
                query = select(definitions.c.id, definitions.c.body).where(definitions.c.id.in_(some))
                found.update((row.id, row.body) for row in await connection.execute(query))
        return found

    async def take(self, changes: Sequence[tuple[Wanted, str]]) -> set[str]:
        """Sets the epochs of those that are still as they were; gives the ids of those. Their events begin anew."""
        taken: set[str] = set()
        table = executions.c
        async with self._database.write() as connection:
            for some in [changes[start : start + IDS_TOGETHER] for start in range(0, len(changes), IDS_TOGETHER)]:
                query = (
                    select(table.id)
                    .where(
                        table.status == "RUNNING",
                        tuple_(table.id, table.run, table.epoch).in_(
                            [(one.execution_id, one.run, one.epoch) for one, _ in some]
                        ),
                    )
                    .order_by(table.id)
                    .with_for_update()
                )
                unchanged = {row.id for row in await connection.execute(query)}
                rows = [{"x": one.execution_id, "e": epoch} for one, epoch in some if one.execution_id in unchanged]
                if rows:
                    statement = update(executions).where(table.id == bindparam("x"))
                    await connection.execute(statement.values(epoch=bindparam("e"), last_event=""), rows)
                taken |= unchanged
        return taken

    async def histories(self, wanted: Mapping[str, int]) -> dict[str, History]:
        """Execution -> what is known of its nodes; `wanted` says the run of each. Completions of earlier runs stand,
        and failed attempts of this one count."""
        found = {execution_id: History() for execution_id in wanted}
        table = attempts.c
        async with self._database.read() as connection:
            for some in _slices(sorted(wanted)):
                query = (
                    select(attempts)
                    .where(table.execution_id.in_(some))
                    .order_by(table.execution_id, table.node, table.run, table.attempt)
                )
                for row in await connection.execute(query):
                    is_complete = row.state == NodeState.COMPLETED.name
                    if row.run != wanted[row.execution_id] and not is_complete:
                        continue
                    node = found[row.execution_id].nodes.setdefault(row.node, NodeHistory())
                    _add(node, row)
        return found


def _add(node: NodeHistory, row: Row[Any]) -> None:
    """The next attempt of a node. One that was queued or running when the store was lost never ended: another will."""
    state, error = row.state, row.error or ""
    if node.output is not None:
        return
    node.attempt = row.attempt
    node.state = state if state in ("COMPLETED", "FAILED", "SKIPPED") else NodeState.PENDING.name
    node.error, node.owner = error, row.reason or ""
    node.output = row.output if state == "COMPLETED" else None
    node.worker = row.worker or ""
    node.queued_ms = row.queued_ms or 0
    node.started_ms = row.started_ms or 0
    node.finished_ms = row.finished_ms or 0
    if state == "RETRYING":
        lost = _code(error) == LOST
        node.lost, node.retries = node.lost + lost, node.retries + (not lost)


def _code(failure: str) -> str:
    try:
        return str(msgspec.json.decode(failure)["code"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return ""


def _wanted() -> Select[Any]:
    table = executions.c
    return select(
        table.id, table.run, table.epoch, table.last_event, table.cancelled_run, table.definition_id, table.input,
        table.created_ms,
    )  # fmt: skip


def _as_wanted(row: Row[Any]) -> Wanted:
    return Wanted(
        row.id,
        row.run,
        row.epoch,
        row.last_event,
        row.cancelled_run == row.run,
        row.definition_id,
        row.input,
        row.created_ms,
    )


def _slices(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + IDS_TOGETHER] for start in range(0, len(ids), IDS_TOGETHER)]
