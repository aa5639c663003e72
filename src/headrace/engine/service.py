"""What the API offers, without HTTP: submit, trigger, cancel, retry and read, on the record and the hot store.

SQL comes first: what was answered with a success is committed there, and the hot store hears of it afterwards, or when
it is back. A running execution is read from the hot store, where it is newest, any other one from SQL. An execution
that has ended in the hot store is shown as running until SQL has its end, so that nothing that was shown is taken back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from uuid_utils import uuid7

from headrace.engine.audit import Audit, Found
from headrace.engine.feed import Feed
from headrace.engine.following import Told, follow
from headrace.engine.opener import Opener
from headrace.engine.submissions import Submissions
from headrace.engine.view import describe, timestamp
from headrace.engine.why import Inquiry, told
from headrace.errors import (
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    KeyReused,
    NodeNotFound,
    Problem,
    RecordUnavailable,
    StoreUnavailable,
    WorkflowNotFound,
)
from headrace.hot.keys import INPUT_FIELD
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.configs import HandlerSpec
from headrace.model.definition import Definition
from headrace.model.messages import Execution, Record
from headrace.model.plan import Plan
from headrace.model.state import ExecutionState, NodeState
from headrace.model.validation import check_input
from headrace.record.acceptance import Acceptance, Idempotency, Now, Submission
from headrace.record.acceptance import KeyReused as Reused
from headrace.record.admin import Handlers
from headrace.record.database import Database
from headrace.record.logs import Logs
from headrace.record.openings import Openings
from headrace.record.queries import Queries
from headrace.record.readings import Attempt, Readings, Stored
from headrace.settings import Settings

INPUT_BYTES = 1 << 20
REST_WITHIN_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Submitted:
    """`is_new` is false where an idempotency key had been used before: then this is that execution."""

    execution_id: str
    workflow_definition_id: str
    name: str
    version: int
    run: int = 0
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An execution at one moment: from SQL, or newer, from the hot store."""

    stored: Stored
    plan: Plan
    held: Execution
    records: Sequence[Record]


class Service:
    """Used as a context manager: what was accepted is opened in the background."""

    def __init__(self, database: Database, store: HotStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._acceptance = Acceptance(database)
        self._readings = Readings(database)
        self._handlers = Handlers(database)
        self._logs = Logs(database)
        self._submissions = Submissions(self._acceptance, Opener(store, Openings(database), settings))
        self.feed = Feed(store)
        self._inquiry = Inquiry(database, store, settings)
        self._queries = Queries(database)
        self._asked: dict[tuple[str, int | None], asyncio.Future[str | None]] = {}
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submissions.run())
            group.create_task(self.feed.run())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_WITHIN_SECONDS), self._submissions.at_rest():
                self._running.cancel()
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    # ---- asking for something

    async def submit(self, definition: Definition, *, actor: str, traceparent: str | None = None) -> Submitted:
        """Stores it and makes an execution that waits for its trigger. The definition must have been validated."""
        return await self._submit(definition, None, actor, None, traceparent)

    async def start(
        self,
        definition: Definition,
        input_params: Mapping[str, Any] | None,
        *,
        actor: str,
        idempotency: Idempotency | None = None,
        traceparent: str | None = None,
    ) -> Submitted:
        """Submit and trigger in one."""
        return await self._submit(definition, _input_text(definition, input_params), actor, idempotency, traceparent)

    async def start_named(
        self,
        name: str,
        version: int | None,
        input_params: Mapping[str, Any] | None,
        *,
        actor: str,
        idempotency: Idempotency | None = None,
        traceparent: str | None = None,
    ) -> Submitted:
        text = await self._definition(name, version)
        if text is None:
            told = f"{name}" if version is None else f"{name}, version {version}"
            raise WorkflowNotFound(f"there is no workflow {told}")
        definition = Definition.from_json(text)
        return await self.start(definition, input_params, actor=actor, idempotency=idempotency, traceparent=traceparent)

    async def trigger(
        self,
        execution_id: str,
        input_params: Mapping[str, Any] | None,
        *,
        actor: str,
        traceparent: str | None = None,
    ) -> int:
        """The run that it starts. Of a FAILED execution it is a retry, which takes no new input."""
        stored = await self.stored(execution_id)
        if stored.status in ("FAILED", "CANCELLED"):
            if input_params:
                problem = "a second trigger goes on with the input of the first: leave input_params out"
                raise InvalidInput([Problem("input_not_allowed", problem)])
            return await self.retry(execution_id, actor=actor, traceparent=traceparent)
        if stored.status != "PENDING":
            raise Conflict(f"execution {execution_id} is {stored.status}, not PENDING")
        text = _input_text(Definition.from_json(stored.definition), input_params)
        now = await self._acceptance.trigger(execution_id, text, actor, traceparent)
        return self._accepted(execution_id, now, "PENDING")

    async def retry(self, execution_id: str, *, actor: str, traceparent: str | None = None) -> int:
        """The next run of a FAILED or CANCELLED execution: what is COMPLETED keeps its output."""
        now = await self._acceptance.retry(execution_id, actor, traceparent)
        return self._accepted(execution_id, now, "FAILED or CANCELLED")

    async def cancel(self, execution_id: str, *, actor: str) -> None:
        """Running handlers are told within a second; with the hot store away, when it is back."""
        now = await self._acceptance.cancel(execution_id, actor)
        run = self._accepted(execution_id, now, "RUNNING", opens=False)
        with suppress(StoreUnavailable):
            await self._store.cancel(execution_id, run)

    # ---- reading

    async def read(self, execution_id: str) -> dict[str, Any]:
        """In the shape of the contract."""
        return await self.shown(await self.snapshot(execution_id))

    async def shown(self, seen: Snapshot) -> dict[str, Any]:
        names = [INPUT_FIELD]
        if seen.stored.status in ("COMPLETED", "FAILED", "CANCELLED"):
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
                _shown_attempt(each, attempts[-1]) | {"logs": lines.get((each.run, each.attempt), [])}
                for each in attempts
            ],
        }

    def follow(self, execution_id: str, last_event_id: str | None = None) -> AsyncIterator[Told]:
        """How it stands, each change as it happens, and its end."""
        return follow(self, execution_id, last_event_id)

    async def why(self, execution_id: str) -> list[dict[str, Any]]:
        """Why each unfinished node is not running."""
        return told(await self._inquiry.why(execution_id))

    async def audit(self) -> Found:
        """What cannot make progress."""
        return await Audit(self._inquiry, self._queries, self._store).run()

    async def workers(self) -> list[dict[str, Any]]:
        """Those that have not signed off; `alive` says whether their heartbeat is fresh."""
        now_ms = await self._store.now_ms()
        found: dict[str, dict[str, Any]] = {}
        for partition in range(self._store.partitions):
            for name, (seen_ms, about) in (await self._store.workers(partition)).items():
                age = max(0.0, (now_ms - seen_ms) / 1000)
                told = msgspec.json.decode(about)
                found[name] = {
                    "name": name,
                    "alive": age <= self._settings.worker_heartbeat_timeout,
                    "heartbeat_age_seconds": round(age, 3),
                    "handlers": list(told.get("handlers", ())),
                    "slots": told.get("slots"),
                    "running": told.get("running"),
                }
        return [found[name] for name in sorted(found)]

    async def queues(self) -> list[dict[str, Any]]:
        """Depth and oldest age by handler."""
        now_ms = await self._store.now_ms()
        depths: Counter[str] = Counter()
        oldest: dict[str, int] = {}
        for partition in range(self._store.partitions):
            for handler, (depth, since_ms) in (await self._store.queue_ages(partition)).items():
                depths[handler] += depth
                if since_ms:
                    oldest[handler] = min(since_ms, oldest.get(handler, since_ms))
        return [
            {
                "handler": name,
                "depth": depths[name],
                "oldest_age_seconds": round(max(0, now_ms - oldest[name]) / 1000, 3) if name in oldest else None,
            }
            for name in sorted(depths)
        ]

    async def ready(self) -> dict[str, str]:
        """Store -> "ok", or what is wrong with it."""
        found = {"valkey": "ok", "sql": "ok"}
        try:
            await self._store.now_ms()
        except StoreUnavailable as error:
            found["valkey"] = str(error)
        try:
            await self._readings.ping()
        except RecordUnavailable as error:
            found["sql"] = str(error)
        return found

    async def specs(self) -> dict[str, HandlerSpec]:
        """The handlers that workers have offered at any time, with the schemas of their configs."""
        known = {each.name: each.config_schema or "null" for each in await self._handlers.all()}
        with suppress(StoreUnavailable):
            known |= await self._store.offered()  # newer than what was written down
        return {name: HandlerSpec(name, msgspec.json.decode(text)) for name, text in known.items()}

    # ---- inside

    async def _definition(self, name: str, version: int | None) -> str | None:
        """Those who ask for the same before the query begins share it."""
        key = (name, version)
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._look_up(key))
        return await asyncio.shield(self._asked[key])

    async def _look_up(self, key: tuple[str, int | None]) -> str | None:
        await asyncio.sleep(0)
        del self._asked[key]  # whoever comes now may have written a newer one
        return await self._readings.definition(*key)

    async def _submit(
        self,
        definition: Definition,
        input_text: str | None,
        actor: str,
        idempotency: Idempotency | None,
        traceparent: str | None,
    ) -> Submitted:
        execution_id = str(uuid7())
        partition = self._store.partition_of(execution_id)
        result = await self._submissions.submit(
            Submission(execution_id, partition, definition, actor, input_text, idempotency, traceparent)
        )
        if isinstance(result, Reused):
            raise KeyReused("this Idempotency-Key was used with another body: use a new one")
        run = 0 if input_text is None else 1
        return Submitted(
            result.execution_id, result.definition_id, definition.name, result.version, run, is_new=result.is_new
        )

    def _accepted(self, execution_id: str, now: Now | None, allowed: str, *, opens: bool = True) -> int:
        if now is None:
            raise ExecutionNotFound(f"there is no execution {execution_id}")
        if not now.done:
            raise Conflict(f"execution {execution_id} is {now.status}, not {allowed}")
        if opens:
            self._submissions.open_soon(execution_id)
        return now.run

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
                    return Snapshot(stored, plan, _still_running(stored, held), records)
        known = await self._readings.latest_attempts(execution_id, stored.run)
        records = [_record(known[name]) if name in known else Record() for name in names]
        return Snapshot(stored, plan, _as_held(stored), records)

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
        """From SQL; what it has not got yet, from the hot store."""
        stored = seen.stored
        nodes = [name for name in names if name != INPUT_FIELD]
        texts: dict[str, str] = {}
        with suppress(RecordUnavailable):
            texts = await self._readings.outputs(stored.execution_id, nodes)
        missing = [name for name in nodes if name not in texts]
        if missing and stored.status == "RUNNING":
            with suppress(StoreUnavailable):
                most = self._settings.max_context_bytes
                texts |= await self._store.outputs(stored.execution_id, missing, most_bytes=most) or {}
        if INPUT_FIELD in names and stored.input_text is not None:
            texts[INPUT_FIELD] = stored.input_text
        return {name: payload.decode(text) for name, text in texts.items()}


def _input_text(definition: Definition, input_params: Mapping[str, Any] | None) -> str:
    return payload.encode(check_input(definition, input_params), max_bytes=INPUT_BYTES)


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


def _shown_attempt(attempt: Attempt, last: Attempt) -> dict[str, Any]:
    """One that never ended, and has a successor, was given back or lost with the store."""
    is_over = (attempt.run, attempt.attempt) != (last.run, last.attempt)
    state = "ABANDONED" if is_over and attempt.state in ("QUEUED", "RUNNING") else attempt.state
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
