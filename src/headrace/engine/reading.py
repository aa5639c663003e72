"""How an execution stands, from where it is newest: a running one from the hot store, any other one from SQL.

An execution that has ended in the hot store is shown as running until SQL has its end, so that nothing that was shown
is taken back. With one of the stores away, the other one is shown as far as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.engine.view import describe, timestamp
from headrace.errors import ExecutionNotFound, NodeNotFound, RecordUnavailable, StoreUnavailable
from headrace.hot.keys import INPUT_FIELD
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.definition import Definition
from headrace.model.messages import Execution, Record
from headrace.model.plan import Plan
from headrace.model.state import ExecutionState, NodeState
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.readings import Attempt, Readings, Stored

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An execution at one moment: from SQL, or newer, from the hot store (`is_live`)."""

    stored: Stored
    plan: Plan
    held: Execution
    records: Sequence[Record]
    is_live: bool


class Reader:
    def __init__(self, database: Database, store: HotStore, most_output_bytes: int) -> None:
        self._store = store
        self._most_output_bytes = most_output_bytes
        self._readings = Readings(database)
        self._logs = Logs(database)

    async def read(self, execution_id: str) -> dict[str, Any]:
        """In the shape of the contract."""
        return await self.shown(await self.snapshot(execution_id))

    async def shown(self, seen: Snapshot) -> dict[str, Any]:
        names = [INPUT_FIELD]
        if seen.stored.status in ENDED:
            names += [seen.plan.definition.nodes[i].id for i in seen.plan.output_nodes]
        outputs = await self._outputs(seen, names)
        stored = seen.stored
        shown = describe(stored.execution_id, seen.held, seen.plan, seen.records, outputs, version=stored.version)
        if seen.stored.status == "PENDING":
            shown |= {"status": "PENDING", "run": 0}
        return shown

    async def node(self, execution_id: str, node: str) -> dict[str, Any]:
        """One node, with its resolved config, its output and all its attempts."""
        seen = await self.snapshot(execution_id)
        index = seen.plan.graph.index.get(node)
        if index is None:
            raise NodeNotFound(f"execution {execution_id} has no node {node}")
        needs = seen.plan.needs(index)
        outputs = await self._outputs(seen, [INPUT_FIELD, node, *needs])
        shown = describe(execution_id, seen.held, seen.plan, seen.records, {}, version=seen.stored.version)
        attempts, lines = [], {}
        with suppress(RecordUnavailable):
            attempts = await self._readings.attempts_of(execution_id, node)
            lines = await self._logs.of_node(execution_id, node)
        node_shown: dict[str, Any] = shown["nodes"][index]
        return node_shown | {
            "config": _resolved(seen.plan, index, outputs),
            "output": outputs.get(node),
            "attempts": [
                _shown_attempt(each, is_followed=each is not attempts[-1])
                | {"logs": lines.get((each.run, each.attempt), [])}
                for each in attempts
            ],
        }

    async def attempts(self, execution_id: str, *, cursor: str, limit: int) -> dict[str, Any]:
        """A page of the attempts of all its nodes, by the time when they were queued."""
        page = await self._readings.attempts(execution_id, cursor=cursor, limit=limit)
        if not page.items:
            await self.stored(execution_id)  # or it is not there
        items = [{"node": each.node} | _shown_attempt(each, is_followed=each.is_followed) for each in page.items]
        return {"items": items, "next_cursor": page.next_cursor}

    async def stored(self, execution_id: str) -> Stored:
        stored = await self._readings.execution(execution_id)
        if stored is None:
            raise ExecutionNotFound(f"there is no execution {execution_id}")
        return stored

    async def snapshot(self, execution_id: str) -> Snapshot:
        try:
            stored = await self.stored(execution_id)
        except RecordUnavailable:
            stored = await self._live(execution_id)
        plan = Plan(Definition.from_json(stored.definition))
        names = [node.id for node in plan.definition.nodes]
        if stored.status == "RUNNING":
            with suppress(StoreUnavailable):
                held = await self._store.execution(execution_id)
                if held is not None and _is_open(held, stored):
                    records = await self._store.records(execution_id, names)
                    return Snapshot(stored, plan, _still_running(stored, held), records, is_live=True)
        known = await self._readings.latest_attempts(execution_id, stored.run)
        records = [_record(known[name]) if name in known else Record() for name in names]
        return Snapshot(stored, plan, _as_held(stored), records, is_live=False)

    async def _live(self, execution_id: str) -> Stored:
        """With SQL away, from the hot store, if it runs there. Which version it is, only SQL knows."""
        held = await self._store.execution(execution_id)
        partition = self._store.partition_of(execution_id)
        text = await self._store.definition(partition, held.definition) if held and held.definition else None
        if held is None or text is None:
            raise RecordUnavailable("the SQL store cannot be used now, and this execution is not running")
        inputs = await self._store.outputs(execution_id, [INPUT_FIELD], most_bytes=1 << 62) or {}
        return Stored(
            execution_id=execution_id,
            definition_id="",
            definition=text.decode(),
            workflow=Definition.from_json(text).name,
            version=None,
            status="RUNNING",
            run=held.run,
            epoch=held.epoch,
            last_event=held.last,
            input_text=inputs.get(INPUT_FIELD),
            error=None,
            error_node=None,
            created_ms=held.created_ms,
            started_ms=held.started_ms,
            finished_ms=None,
        )

    async def _outputs(self, seen: Snapshot, names: Sequence[str]) -> dict[str, Any]:
        """From SQL; what it has not got yet, from the hot store, if that has this run: an earlier one may not count."""
        stored = seen.stored
        nodes = [name for name in names if name != INPUT_FIELD]
        texts: dict[str, str] = {}
        with suppress(RecordUnavailable):
            texts = await self._readings.outputs(stored.execution_id, nodes)
        missing = [name for name in nodes if name not in texts]
        if missing and seen.is_live:
            with suppress(StoreUnavailable):
                most = self._most_output_bytes
                texts |= await self._store.outputs(stored.execution_id, missing, most_bytes=most) or {}
        if INPUT_FIELD in names and stored.input_text is not None:
            texts[INPUT_FIELD] = stored.input_text
        return {name: payload.decode(text) for name, text in texts.items()}


def _is_open(held: Execution, stored: Stored) -> bool:
    """Whether the hot store has what SQL means. A reservation has only the name of it: nothing to be read yet."""
    return held.status != ExecutionState.OPENING and (held.run, held.epoch) == (stored.run, stored.epoch)


def _still_running(stored: Stored, held: Execution) -> Execution:
    """As SQL sees it: its end is shown once it is archived, and its run began when it did, also if opened again."""
    started_ms = stored.started_ms or held.started_ms
    return msgspec.structs.replace(
        held, status=ExecutionState.RUNNING, started_ms=started_ms, finished_ms=0, error="", error_node=""
    )


def _as_held(stored: Stored) -> Execution:
    status = ExecutionState.RUNNING if stored.status == "PENDING" else ExecutionState[stored.status]
    return Execution(
        status=status,
        mode="",
        run=stored.run,
        left=0,
        busy=0,
        failed=0,
        seq=0,
        epoch=stored.epoch,
        last=stored.last_event,
        definition="",
        created_ms=stored.created_ms,
        started_ms=stored.started_ms or 0,
        finished_ms=stored.finished_ms or 0,
        error=stored.error or "",
        error_node=stored.error_node or "",
    )


def _record(attempt: Attempt) -> Record:
    return Record(
        NodeState[attempt.state].value,
        attempt.attempt,
        queued_ms=attempt.queued_ms or 0,
        started_ms=attempt.started_ms or 0,
        finished_ms=attempt.finished_ms or 0,
        worker=attempt.worker or "",
        error=attempt.error or "",
    )


def _resolved(plan: Plan, index: int, outputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config as the worker gets it, with secrets as references; None while it cannot be rendered."""
    try:
        return plan.render(index, outputs, outputs.get(INPUT_FIELD) or {}).config
    except Exception:  # whatever is missing or wrong, the node's own error says it
        return None


def _shown_attempt(attempt: Attempt, *, is_followed: bool) -> dict[str, Any]:
    """One that never ended, and has a successor, was given back or lost with the store."""
    state = "ABANDONED" if is_followed and attempt.state in ("QUEUED", "RUNNING") else attempt.state
    return {
        "run": attempt.run,
        "attempt": attempt.attempt,
        "status": "FAILED" if state == "RETRYING" else state,
        "worker": attempt.worker,
        "queued_at": timestamp(attempt.queued_ms or 0),
        "started_at": timestamp(attempt.started_ms or 0),
        "finished_at": timestamp(attempt.finished_ms or 0),
        "next_attempt_at": timestamp(attempt.due_ms or 0),
        "error": msgspec.json.decode(attempt.error) if attempt.error else None,
    }
