"""What follows from a result, as far as this worker can tell: the children of the node, and the tasks of those that it
can render.

They go along with the report (complete.lua), so that the next nodes are queued in the same step, and no orchestrator
has to be woken. It is only a shorter way: what is missing here, or takes long to render, is left to the orchestrators.
The worker's loop belongs to handlers, so neither plans nor outputs nor templates may be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.model.messages import Report, Task, Token
from headrace.settings import Settings
from headrace.steps.ahead import Ahead
from headrace.steps.plans import LoadedPlan, Plans
from headrace.steps.rendering import Renderer

MOST_NODES_HELD = 20_000
CACHE_BYTES = 16 << 20
MOST_CHILDREN = 100
MOST_OUTPUT_BYTES = 64 << 10
MOST_LEFT = 10_000  # definitions that are known to be left to the orchestrators

log = structlog.get_logger(__name__)


class NextSteps:
    def __init__(self, store: HotStore, settings: Settings) -> None:
        self._most_bytes = settings.worker_plan_bytes
        self._plans = Plans(store, settings, most_nodes=MOST_NODES_HELD)
        self._renderer = Renderer(store, settings, cache_bytes=CACHE_BYTES, light_bytes=MOST_OUTPUT_BYTES)
        self._ahead = Ahead(self._renderer)
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        self._wanted: list[tuple[str, str, Sequence[str]]] = []
        self._fetching: asyncio.Task[None] | None = None

    def prepare(self, partition: int, task: Task) -> None:
        """A task starts: what will be needed when it ends is fetched meanwhile."""
        if not task.definition or task.definition in self._left:
            return
        try:
            plan = self._plans.held(task.definition)
            if plan is not None:
                self._want(task, plan.reads_beyond(plan.graph.index[task.node]))
            elif task.definition not in self._loading:
                self._loading[task.definition] = asyncio.create_task(self._load(partition, task.definition))
        except Exception:
            self._leave(task.definition)

    def report(self, token: Token, definition: str, output: str) -> Report | None:
        """The report of a success, with what follows from it; None, if that cannot be told here."""
        plan = self._plans.held(definition)
        if plan is None or definition in self._left:
            return None
        try:
            return self._report(token, plan, output)
        except Exception:  # a result is reported whatever becomes of the next step
            self._leave(definition)
            return None

    def _report(self, token: Token, plan: LoadedPlan, output: str) -> Report | None:
        index = plan.graph.index[token.node]
        children = plan.graph.children[index]
        if not children:
            return Report(token, output, ())
        if len(children) > MOST_CHILDREN:
            return None
        if len(output) <= MOST_OUTPUT_BYTES:
            self._renderer.remember(token.execution_id, token.epoch, token.node, output)
        tasks = self._ahead.tasks(token, plan, children)
        return Report(token, output, plan.named_children(index), tasks)

    async def aclose(self) -> None:
        jobs = [*self._loading.values(), *([self._fetching] if self._fetching else [])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _load(self, partition: int, definition: str) -> None:
        try:
            if await self._plans.get(partition, definition, most_bytes=self._most_bytes) is None:
                self._remember_left(definition)
        except StoreUnavailable:
            pass  # the next task of it tries again
        except Exception:
            self._leave(definition)
        finally:
            del self._loading[definition]

    def _want(self, task: Task, reads: Sequence[str]) -> None:
        if not reads or all(self._renderer.has(task.execution_id, task.epoch, name) for name in reads):
            return
        self._wanted.append((task.execution_id, task.epoch, reads))
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch())

    async def _fetch(self) -> None:
        with suppress(StoreUnavailable):
            while self._wanted:
                wanted, self._wanted = self._wanted, []
                await self._renderer.fetch_outputs(wanted)

    def _leave(self, definition: str) -> None:
        """After an error that nobody foresaw."""
        log.exception("steps are left to the orchestrators", definition=definition)
        self._remember_left(definition)

    def _remember_left(self, definition: str) -> None:
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
        self._left.add(definition)
