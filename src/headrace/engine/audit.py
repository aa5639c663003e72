"""The audit: executions that cannot make progress, among all that are live, and what is wrong around them.

It goes through everything that SQL says is running, page by page. What has moved within the last seconds is only
counted. Of the rest each node's cause is looked up, as `why` would; an execution is stuck if none of its causes passes
by itself. The cost is a few round trips per page, and memory is that of a page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.engine.causes import PASSES, Around, Cause, Reason, explain
from headrace.engine.view import timestamp
from headrace.engine.why import Inquiry, current
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Execution, Record
from headrace.model.plan import Plan
from headrace.record.openings import Wanted
from headrace.record.queries import Queries

QUIET_MS = 10_000  # between two steps an execution rests for a moment, and so does a healthy engine
PAGE = 500
NAMES_TOGETHER = 5_000
MOST_TOLD = 1_000
MOST_PLANS = 100


@dataclass(frozen=True, slots=True)
class Stuck:
    execution_id: str
    workflow: str
    idle_seconds: float
    reasons: Sequence[Reason]


@dataclass(slots=True)
class Found:
    """`problems` concern all executions. Of very many stuck ones only the first are told, and all are counted."""

    problems: list[Reason] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    stuck_count: int = 0
    live_count: int = 0


class Audit:
    def __init__(self, inquiry: Inquiry, queries: Queries, store: HotStore) -> None:
        self._inquiry = inquiry
        self._queries = queries
        self._store = store
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    async def run(self) -> Found:
        found = Found()
        try:
            for partition in range(self._store.partitions):
                await self._partition(partition, found)
        except StoreUnavailable as error:
            found.problems.append(_problem(Cause.STORE_AWAY, f"Valkey does not answer, and nothing runs: {error}"))
        except RecordUnavailable as error:
            told = f"SQL does not answer, so nothing new is accepted and no end is shown: {error}"
            found.problems.append(_problem(Cause.RECORD_AWAY, told))
        found.stuck.sort(key=lambda each: -each.idle_seconds)
        return found

    async def _partition(self, partition: int, found: Found) -> None:
        around = await self._inquiry.around(partition)
        known = {problem.cause for problem in found.problems}
        found.problems += [each for each in _around(around) if each.cause not in known]
        async for page in self._pages(partition):
            found.live_count += len(page)
            held = await self._store.executions([one.execution_id for one in page])
            quiet = [pair for pair in zip(page, held, strict=True) if around.now_ms - _moved_ms(*pair) > QUIET_MS]
            async for stuck in self._stuck(quiet, around):
                found.stuck_count += 1
                if len(found.stuck) < MOST_TOLD:
                    found.stuck.append(stuck)

    async def _pages(self, partition: int) -> AsyncIterator[list[Wanted]]:
        after = ""
        while page := await self._inquiry.openings.running(partition, self._store.partitions, after, PAGE):
            after = page[-1].execution_id
            yield page

    async def _stuck(self, quiet: Sequence[tuple[Wanted, Execution | None]], around: Around) -> AsyncIterator[Stuck]:
        await self._load({one.definition_id for one, _ in quiet})
        for some in _slices([(one, held, self._plans[one.definition_id]) for one, held in quiet]):
            all_records = await self._store.records_of_many(
                [(one.execution_id, [node.id for node in plan.definition.nodes]) for one, _, plan in some]
            )
            for (one, held, plan), records in zip(some, all_records, strict=True):
                reasons = await self._explain(one, held, plan, records, around)
                if any(each.cause in PASSES for each in reasons):
                    continue
                idle_ms = around.now_ms - await self._asked_ms(one, held)
                if idle_ms > QUIET_MS:
                    yield Stuck(one.execution_id, plan.definition.name, idle_ms / 1000, reasons)

    async def _explain(
        self, one: Wanted, held: Execution | None, plan: Plan, records: Sequence[Record], around: Around
    ) -> list[Reason]:
        held = current(held, one.run, one.epoch)
        case = await self._inquiry.case(
            one.execution_id, plan, records, held, run=one.run, is_cancelled=one.is_cancelled
        )
        reasons = [each for each in explain(case, around) if each.cause != Cause.DEADLINE]
        return reasons[:1] if reasons and reasons[0].node is None else reasons

    async def _asked_ms(self, one: Wanted, held: Execution | None) -> int:
        """When it last changed, or was last asked to: the store does not know yet of what was asked just now."""
        trail = await self._queries.audit(execution_id=one.execution_id, limit=1)
        return max([_moved_ms(one, held), *(line.at_ms for line in trail.items)])

    async def _load(self, ids: set[str]) -> None:
        """Plans of these definitions; of others only so many are kept."""
        for name in list(self._plans)[: max(0, len(self._plans) - MOST_PLANS)]:
            del self._plans[name]
        missing = [name for name in ids if name not in self._plans]
        for name, text in (await self._inquiry.openings.definitions(missing)).items():
            self._plans[name] = Plan(Definition.from_json(text))


def _around(around: Around) -> Iterator[Reason]:
    if not around.is_orchestrated:
        since = timestamp(around.orchestrated_ms)
        told = f"No orchestrator has been at work since {since}" if since else "No orchestrator is at work"
        yield _problem(Cause.NO_ORCHESTRATOR, told)
    if not any(worker.alive for worker in around.workers.values()):
        yield _problem(Cause.NO_WORKER, "No worker is alive")


def _problem(cause: Cause, why: str) -> Reason:
    return Reason(None, "", cause, why)


def _moved_ms(one: Wanted, held: Execution | None) -> int:
    """When it last changed: the id of an event begins with its time."""
    last = held.last if held is not None and held.run == one.run and held.last else one.last_event
    return max(int(last.partition("-")[0] or 0), one.created_ms)


def _slices(
    some: Sequence[tuple[Wanted, Execution | None, Plan]],
) -> Iterator[list[tuple[Wanted, Execution | None, Plan]]]:
    """As many together as have a bounded number of nodes in all."""
    batch: list[tuple[Wanted, Execution | None, Plan]] = []
    size = 0
    for one in some:
        batch.append(one)
        size += len(one[2].definition.nodes)
        if size >= NAMES_TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
