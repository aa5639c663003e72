"""The engine as its callers see it: start an execution, cancel it, retry it, read it, follow it, forget it.

Whoever calls this needs no orchestrator or worker of its own: these live wherever they live, on the same hot store.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from uuid_utils import uuid7

from headrace.engine.opening import Kept, Run, continued, fresh
from headrace.engine.view import describe
from headrace.errors import Conflict, ExecutionNotFound, StoreUnavailable
from headrace.hot.keys import INPUT_FIELD
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.definition import Definition
from headrace.model.graph import Graph
from headrace.model.messages import Event, Execution, Reservation
from headrace.model.plan import Plan
from headrace.model.state import TERMINAL_EXECUTIONS, ExecutionState, NodeState
from headrace.model.validation import check_input
from headrace.settings import Settings
from headrace.steps.plans import Plans

INPUT_BYTES = 1 << 20
START_TOGETHER = 200


class Engine:
    def __init__(self, store: HotStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._plans = Plans(store, settings)

    async def start(self, definition: Definition, input_params: Mapping[str, Any] | None = None) -> str:
        """Checks the input, opens a first run and gives its id. The definition must have been validated."""
        [execution_id] = await self.start_many(definition, [dict(input_params or {})])
        return execution_id

    async def start_many(self, definition: Definition, inputs: Sequence[dict[str, Any]]) -> list[str]:
        """Several executions of one definition, in two calls per partition."""
        runs = [self._fresh_run(definition, check_input(definition, each)) for each in inputs]
        by_partition: dict[int, list[Run]] = {}
        for run in runs:
            by_partition.setdefault(self._store.partition_of(run.execution_id), []).append(run)
        for partition, there in by_partition.items():
            for some in (there[start : start + START_TOGETHER] for start in range(0, len(there), START_TOGETHER)):
                tokens = await self._reserve(partition, some)
                slices = [fresh(run, token) for run, token in zip(some, tokens, strict=True)]
                _check_opened(await self._store.open(partition, slices))
        return [run.execution_id for run in runs]

    def _fresh_run(self, definition: Definition, input_params: dict[str, Any]) -> Run:
        nodes = definition.nodes
        roots = [(nodes[index], text) for index, text in self._plans.of(definition).roots(input_params)]
        text = payload.encode(input_params, max_bytes=INPUT_BYTES)
        return Run(str(uuid7()), definition, text, roots=roots)

    async def cancel(self, execution_id: str) -> None:
        """Running handlers are told within a second; what has not started never will."""
        held = await self._held(execution_id)
        answer = await self._store.cancel(execution_id, held.run)
        cancelled_now = answer == "cancelled" or (
            answer == ExecutionState.CANCELLED and held.status == ExecutionState.RUNNING  # the reply was lost once
        )
        if not cancelled_now:
            raise Conflict(f"execution {execution_id} is {_status(answer)}, not RUNNING")

    async def retry(self, execution_id: str) -> int:
        """The next run of a FAILED or CANCELLED execution: what is COMPLETED keeps its output, all else runs."""
        held = await self._held(execution_id)
        if held.status not in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            raise Conflict(
                f"execution {execution_id} is {_status(held.status)}: only FAILED or CANCELLED can be retried"
            )
        definition = await self._definition(execution_id, held.definition)
        kept, input_text = await self._kept(execution_id, definition)
        run = Run(
            execution_id,
            definition,
            input_text,
            number=held.run + 1,
            created_ms=held.created_ms,
            old_epoch=held.epoch,
            last_event=held.last,
        )
        partition = self._store.partition_of(execution_id)
        [token] = await self._reserve(partition, [run])
        for piece in continued(run, token, Graph(definition), kept):
            _check_opened(await self._store.open(partition, [piece]))
        return run.number

    async def read(self, execution_id: str) -> dict[str, Any]:
        """The execution in the shape that the API and `--json` show."""
        held = await self._held(execution_id)
        plan = Plan(await self._definition(execution_id, held.definition))
        names = [node.id for node in plan.definition.nodes]
        records = await self._store.records(execution_id, names)
        wanted = [INPUT_FIELD]
        if held.status in TERMINAL_EXECUTIONS:
            wanted += [names[i] for i in plan.output_nodes]
        texts = await self._outputs(execution_id, wanted)
        outputs = {name: payload.decode(text) for name, text in texts.items()}
        return describe(execution_id, held, plan, records, outputs)

    async def follow(self, execution_id: str, *, after: str = "0-0") -> AsyncIterator[tuple[str, Event]]:
        """Each change of the execution as it happens, up to the end of its run."""
        partition = self._store.partition_of(execution_id)
        while True:
            for event_id, event in await self._store.read_events(partition, after):
                after = event_id
                if event.execution_id != execution_id:
                    continue
                yield event_id, event
                if event.status and event.status in TERMINAL_EXECUTIONS:
                    return

    async def under_way(self, execution_id: str) -> bool:
        """Whether handlers of it are running, or their results not yet applied. Nothing of a cancelled one counts."""
        held = await self._held(execution_id)
        return held.status != ExecutionState.CANCELLED and held.busy > 0

    async def forget(self, execution_id: str) -> bool:
        """Drops an ended execution from the hot store, once nothing of it is under way."""
        held = await self._held(execution_id)
        item = (execution_id, held.epoch, held.last)
        partition = self._store.partition_of(execution_id)
        return bool(await self._store.forget(partition, [item], definition_ttl_seconds=self._settings.hot_ttl_seconds))

    async def _reserve(self, partition: int, runs: Sequence[Run]) -> list[str]:
        """The tokens under which the runs may be opened. The definition is there before they are."""
        ttl = self._settings.hot_ttl_seconds
        definition = runs[0].definition
        await self._store.put_definition(partition, definition.content_hash, definition.to_json(), ttl)
        reservations = [
            Reservation(
                run.execution_id, secrets.token_urlsafe(9), run.old_epoch, run.last_event, run.number, again=False
            )
            for run in runs
        ]
        answers = await self._store.reserve(partition, reservations, definition_ttl_seconds=ttl)
        for reservation, answer in zip(reservations, answers, strict=True):
            if answer == "busy":
                raise Conflict(f"handlers of execution {reservation.execution_id} are still running: retry it later")
            if answer != "reserved":
                raise Conflict(f"execution {reservation.execution_id} has been opened by somebody else")
        return [reservation.token for reservation in reservations]

    async def _kept(self, execution_id: str, definition: Definition) -> tuple[dict[str, Kept], str]:
        names = [node.id for node in definition.nodes]
        records = await self._store.records(execution_id, names)
        completed = {
            name: record for name, record in zip(names, records, strict=True) if record.state == NodeState.COMPLETED
        }
        texts = await self._outputs(execution_id, [INPUT_FIELD, *completed])
        if len(texts) <= len(completed):
            raise Conflict(f"execution {execution_id} is being opened by somebody else")
        return {name: Kept(record, texts[name]) for name, record in completed.items()}, texts[INPUT_FIELD]

    async def _outputs(self, execution_id: str, names: list[str]) -> dict[str, str]:
        texts = await self._store.outputs(execution_id, names, most_bytes=1 << 62)
        return texts or {}

    async def _held(self, execution_id: str) -> Execution:
        held = await self._store.execution(execution_id)
        if held is None or held.status == ExecutionState.OPENING:
            raise ExecutionNotFound(f"there is no execution {execution_id}")
        return held

    async def _definition(self, execution_id: str, content_hash: str) -> Definition:
        text = await self._store.definition(self._store.partition_of(execution_id), content_hash)
        if text is None:
            raise ExecutionNotFound(f"the definition of execution {execution_id} is not in the store")
        return Definition.from_json(text)


def _check_opened(answers: Sequence[str]) -> None:
    if failed := [answer for answer in answers if answer not in ("opened", "already", "filled")]:
        raise StoreUnavailable(f"the store lost a reservation ({failed[0]}): try again")


def _status(answer: str) -> str:
    try:
        return ExecutionState(answer).name
    except ValueError:
        return answer
