"""What the API offers, without HTTP: submit, trigger, cancel, retry and read, on the record and the hot store.

SQL comes first: what was answered with a success is committed there, and the hot store hears of it afterwards, or when
it is back. How things stand is read elsewhere: an execution by reading.py, workers and queues by fleet.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from uuid_utils import uuid7

from headrace.engine import fleet
from headrace.engine.audit import Audit, Found
from headrace.engine.feed import Feed
from headrace.engine.following import Told, follow
from headrace.engine.opener import Opener
from headrace.engine.reading import Reader
from headrace.engine.submissions import Submissions
from headrace.engine.why import Inquiry, told
from headrace.errors import (
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidRequest,
    KeyReused,
    Problem,
    RecordUnavailable,
    StoreUnavailable,
    WorkflowNotFound,
)
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.configs import HandlerSpec
from headrace.model.definition import Definition
from headrace.model.findings import Findings
from headrace.model.graph import Graph
from headrace.model.payload import shown
from headrace.model.validation import check_input
from headrace.record.acceptance import Acceptance, Idempotency, Now, Restart, Submission
from headrace.record.acceptance import KeyReused as Reused
from headrace.record.admin import Handlers
from headrace.record.database import Database
from headrace.record.openings import Openings
from headrace.record.queries import Queries
from headrace.record.readings import Readings
from headrace.settings import Settings

INPUT_BYTES = 1 << 20
REST_WITHIN_SECONDS = 5.0
OPENED_WITHIN_SECONDS = 1.0
LOOK_EVERY_SECONDS = 0.02

log = structlog.get_logger(__name__)


class Submitted(msgspec.Struct, frozen=True):
    """`is_new` is false where an idempotency key had been used before: then this is that execution."""

    execution_id: str
    workflow_definition_id: str
    name: str
    version: int
    run: int = 0
    is_new: bool = True


class Service:
    """Used as a context manager: what was accepted is opened in the background."""

    def __init__(self, database: Database, store: HotStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._acceptance = Acceptance(database)
        self._readings = Readings(database)
        self._handlers = Handlers(database)
        self._submissions = Submissions(self._acceptance, Opener(store, Openings(database), settings))
        self.feed = Feed(store)
        self.reader = Reader(database, store, settings.max_context_bytes)
        self._inquiry = Inquiry(database, store, settings)
        self._queries = Queries(database)
        self._asked: dict[tuple[str, int | None], list[asyncio.Future[Definition | None]]] = {}
        self._looking_up: set[asyncio.Task[None]] = set()
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
        try:
            async with asyncio.timeout(REST_WITHIN_SECONDS), self._submissions.at_rest():
                self._running.cancel()
        except TimeoutError:
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
        definition = await self._definition(name, version)
        if definition is None:
            told = f"{name}" if version is None else f"{name}, version {version}"
            raise WorkflowNotFound(f"there is no workflow {told}")
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
        stored = await self.reader.stored(execution_id)
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

    async def retry(
        self, execution_id: str, *, actor: str, from_nodes: Sequence[str] = (), traceparent: str | None = None
    ) -> int:
        """The next run of a FAILED or CANCELLED execution: what is COMPLETED keeps its output. With `from_nodes`, of a
        COMPLETED one too: these and all that comes after them run again."""
        restart = await self._restart(execution_id, from_nodes) if from_nodes else None
        now = await self._acceptance.retry(execution_id, actor, traceparent, restart=restart)
        allowed = "FAILED or CANCELLED" if restart is None else "COMPLETED, FAILED or CANCELLED"
        return self._accepted(execution_id, now, allowed)

    async def cancel(self, execution_id: str, *, actor: str) -> None:
        """Running handlers are told within a second; with the hot store away, when it is back."""
        now = await self._acceptance.cancel(execution_id, actor)
        run = self._accepted(execution_id, now, "RUNNING", opens=False)
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(OPENED_WITHIN_SECONDS):  # it may be on its way into the store
                while await self._store.cancel(execution_id, run) in ("absent", "opening"):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_SECONDS)

    # ---- reading

    async def read(self, execution_id: str) -> dict[str, Any]:
        """In the shape of the contract."""
        return await self.reader.read(execution_id)

    async def node(self, execution_id: str, node: str) -> dict[str, Any]:
        """One node, with its resolved config, its output and all its attempts."""
        return await self.reader.node(execution_id, node)

    async def attempts(self, execution_id: str, *, cursor: str = "", limit: int = 50) -> dict[str, Any]:
        """A page of all attempts of all its nodes, in the order in which they were queued."""
        return await self.reader.attempts(execution_id, cursor=cursor, limit=limit)

    def follow(self, execution_id: str, last_event_id: str | None = None) -> AsyncIterator[Told]:
        """How it stands, each change as it happens, and its end."""
        return follow(self.reader, self.feed, execution_id, last_event_id)

    async def why(self, execution_id: str) -> list[dict[str, Any]]:
        """Why each unfinished node is not running."""
        return told(await self._inquiry.why(execution_id))

    async def audit(self) -> Found:
        """What cannot make progress."""
        return await Audit(self._inquiry, self._queries, self._store).run()

    async def workers(self) -> list[dict[str, Any]]:
        """Those that have not signed off; `alive` says whether their heartbeat is fresh."""
        return await fleet.workers(self._store, self._settings.worker_heartbeat_timeout)

    async def queues(self) -> list[dict[str, Any]]:
        """Depth and oldest age by handler."""
        return await fleet.queues(self._store)

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

    async def _definition(self, name: str, version: int | None) -> Definition | None:
        """Those who ask for the same before the query begins share it."""
        key = (name, version)
        if key not in self._asked:
            self._asked[key] = []
            task = asyncio.create_task(self._look_up(key))
            self._looking_up.add(task)
            task.add_done_callback(self._looking_up.discard)
        answer: asyncio.Future[Definition | None] = asyncio.get_running_loop().create_future()
        self._asked[key].append(answer)
        return await answer

    async def _look_up(self, key: tuple[str, int | None]) -> None:
        await asyncio.sleep(0)
        asking = self._asked.pop(key)  # whoever comes now may have written a newer one
        try:
            text = await self._readings.definition(*key)
            found = None if text is None else Definition.from_json(text)
        except Exception as error:
            for answer in asking:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for answer in asking:
                if not answer.done():
                    answer.set_result(found)

    async def _restart(self, execution_id: str, asked: Sequence[str]) -> Restart:
        graph = Graph(Definition.from_json((await self.reader.stored(execution_id)).definition))
        findings = Findings()
        for position, name in enumerate(asked):
            if name not in graph.index:
                near = findings.did_you_mean(name, graph.index)
                findings.add("unknown_node", f"there is no node {shown(name)}{near}", ("from", position))
        if problems := findings.all():
            raise InvalidRequest(problems)
        names, first = list(graph.index), [graph.index[name] for name in dict.fromkeys(asked)]
        return Restart(asked, [names[i] for i in (*first, *graph.descendants(*first))])

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


def _input_text(definition: Definition, input_params: Mapping[str, Any] | None) -> str:
    if input_params in (None, {}) and not definition.inputs:
        return "{}"
    return payload.encode(check_input(definition, input_params), max_bytes=INPUT_BYTES)
