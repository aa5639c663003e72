"""Why each unfinished node of an execution is not running: what the two stores say, put together for causes.py.

With Valkey away the answer is that, with SQL away it comes from Valkey alone. Nothing is changed by asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.engine.causes import DO, Around, Case, Cause, Reason, WorkerSeen, all_because, explain
from headrace.errors import ExecutionNotFound, RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Execution, Record, Token
from headrace.model.plan import Plan
from headrace.model.state import ExecutionState, NodeState
from headrace.record.database import Database
from headrace.record.openings import Openings
from headrace.record.readings import Readings, Stored
from headrace.settings import Settings

TIMED = {NodeState.RUNNING: "L", NodeState.RETRYING: "T"}  # state -> kind of its timer


class Inquiry:
    def __init__(self, database: Database, store: HotStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._readings = Readings(database)
        self.openings = Openings(database)

    async def why(self, execution_id: str) -> list[Reason]:
        try:
            stored = await self._readings.execution(execution_id)
        except RecordUnavailable as error:
            return await self._without_record(execution_id, error)
        if stored is None:
            raise ExecutionNotFound(f"there is no execution {execution_id}")
        if stored.status == "PENDING":
            plan = Plan(Definition.from_json(stored.definition))
            says = "the execution was submitted and not triggered yet"
            return all_because(plan, [Record()] * len(plan.definition.nodes), Cause.NOT_TRIGGERED, says)
        if stored.status != "RUNNING":
            return []
        return await self._running(stored)

    async def _running(self, stored: Stored) -> list[Reason]:
        plan = Plan(Definition.from_json(stored.definition))
        wanted = await self.openings.wanted([stored.execution_id])
        try:
            around = await self.around(self._store.partition_of(stored.execution_id))
            held = current(await self._store.execution(stored.execution_id), stored.run, stored.epoch)
            in_hot = held is not None and held.run == stored.run and held.definition
            records = await (self._hot_records(stored.execution_id, plan) if in_hot else self._known(stored, plan))
            cancelled = any(each.is_cancelled for each in wanted)
            case = await self.case(stored.execution_id, plan, records, held, run=stored.run, is_cancelled=cancelled)
        except StoreUnavailable as error:
            says = f"Valkey does not answer, and nothing runs without it: {error}"
            return all_because(plan, await self._known(stored, plan), Cause.STORE_AWAY, says)
        return explain(case, around)

    async def _without_record(self, execution_id: str, error: RecordUnavailable) -> list[Reason]:
        held = await self._store.execution(execution_id)
        partition = self._store.partition_of(execution_id)
        text = await self._store.definition(partition, held.definition) if held and held.definition else None
        if held is None or text is None:
            raise error
        plan = Plan(Definition.from_json(text))
        records = await self._hot_records(execution_id, plan)
        case = await self.case(execution_id, plan, records, held, run=held.run)
        says = f"SQL does not answer: what runs goes on, and its end is shown when SQL is back ({error})"
        return [Reason(None, "RUNNING", Cause.RECORD_AWAY, says), *explain(case, await self.around(partition))]

    async def case(
        self,
        execution_id: str,
        plan: Plan,
        records: Sequence[Record],
        held: Execution | None,
        *,
        run: int,
        is_cancelled: bool = False,
    ) -> Case:
        """With the times of its timers."""
        names = [node.id for node in plan.definition.nodes]
        timed = [
            (TIMED[NodeState(record.state)], name, record.attempt)
            for name, record in zip(names, records, strict=True)
            if record.state in TIMED
        ]
        if held is None or not held.epoch:
            return Case(plan, run, is_cancelled, held, records, {})
        timers = [(kind, Token(execution_id, held.epoch, held.run, name, attempt)) for kind, name, attempt in timed]
        deadline = ("X", Token(execution_id, held.epoch, held.run, "", 0))
        *times, deadline_ms = await self._store.timer_times([*timers, deadline])
        due = {name: ms for (_, name, _), ms in zip(timed, times, strict=True)}
        return Case(plan, run, is_cancelled, held, records, due, deadline_ms)

    async def around(self, partition: int) -> Around:
        now_ms = await self._store.now_ms()
        silent_ms = self._settings.worker_heartbeat_timeout * 1000
        workers = {
            name: _worker(seen_ms, about, alive=now_ms - seen_ms <= silent_ms)
            for name, (seen_ms, about) in (await self._store.workers(partition)).items()
        }
        depths = await self._store.queues(partition)
        orchestrated_ms = await self._store.orchestrated_ms(partition)
        is_settled = not await self._store.unsettled(partition)
        return Around(self._settings, now_ms, orchestrated_ms, is_settled, workers, depths)

    async def _hot_records(self, execution_id: str, plan: Plan) -> list[Record]:
        return await self._store.records(execution_id, [node.id for node in plan.definition.nodes])

    async def _known(self, stored: Stored, plan: Plan) -> list[Record]:
        """As SQL has it: what was queued or running there begins again when the execution is opened."""
        known = await self._readings.latest_attempts(stored.execution_id, stored.run)
        kept = (NodeState.COMPLETED.name, NodeState.FAILED.name, NodeState.SKIPPED.name)
        states = {name: NodeState[row.state].value for name, row in known.items() if row.state in kept}
        return [Record(states.get(node.id, NodeState.PENDING.value)) for node in plan.definition.nodes]


def current(held: Execution | None, run: int, epoch: str) -> Execution | None:
    """What Valkey has of an execution, unless SQL lets it be opened anew, under another epoch."""
    if held is None or held.status == ExecutionState.OPENING or held.run != run or held.epoch == epoch:
        return held
    return None


def told(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """As the API tells it."""
    return [
        {"node": each.node, "status": each.status, "cause": each.cause.value, "why": each.why, "do": DO[each.cause]}
        for each in reasons
    ]


def _worker(seen_ms: int, about: str, *, alive: bool) -> WorkerSeen:
    says: Mapping[str, Any] = msgspec.json.decode(about)
    handlers = frozenset(says.get("handlers", ()))
    return WorkerSeen(alive, seen_ms, handlers, says.get("slots") or 0, says.get("running") or 0)
