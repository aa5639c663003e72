"""Workflows in tests: run to their end on the real engine, with a private Valkey, and looked at afterwards.

Nothing is imitated: definitions are validated, configs rendered, handlers retried and timed out as in production. Only
the waiting between attempts is left out, unless a test asks for it. `run_workflow` starts a server for one run; a
`LocalEngine`, which pytest has as the fixture `headrace`, keeps it for many. No two runs ever share a server at once.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TypedDict, Unpack

import msgspec
import structlog

from headrace.builder import Workflow
from headrace.embedded import EmbeddedValkey
from headrace.engine.engine import Engine
from headrace.errors import Conflict, InvalidDefinition
from headrace.hot.store import HotStore
from headrace.model import payload
from headrace.model.configs import HandlerSpec
from headrace.model.definition import Definition, RetryConfig
from headrace.model.document import Document, load
from headrace.model.validation import check_input, validate
from headrace.process import connected, roles_running, run_loop
from headrace.settings import Settings
from headrace.worker.registry import Context, Registry

Source = str | Path | Mapping[str, Any] | Definition | Workflow
Handlers = str | ModuleType | Callable[..., Any]

TIMEOUT_SECONDS = 60.0
MOST_NODES_TOLD = 20


class RunOptions(TypedDict, total=False):
    """What surrounds one run.

    handlers         names of modules, modules, and marked functions. A function replaces any handler of its name
    settings         settings under their names in the environment, where they differ: {"RETRY_MAX_RETRIES": 1}
    timeout_seconds  of the whole run, 60 unless told; after that, TimeoutError
    """

    handlers: Iterable[Handlers] | Handlers
    settings: Mapping[str, Any]
    timeout_seconds: float


class Options(RunOptions, total=False):
    """How a workflow is run: RunOptions, and

    fast_retries     True: retries do not wait, whatever their policy. `Retry(after=...)` is waited for all the same
    """

    fast_retries: bool


@dataclass(frozen=True, slots=True)
class NodeResult:
    """How a node ended. `attempt` is the last one, `reason` why it did not run."""

    id: str
    handler: str
    status: str
    attempt: int
    output: dict[str, Any] | None
    error: dict[str, Any] | None
    reason: str | None

    def __str__(self) -> str:
        if self.error:
            attempts = "1 attempt" if self.attempt == 1 else f"{self.attempt} attempts"
            return f"{self.id} {self.status} after {attempts}: {_told(self.error)}"
        return f"{self.id} {self.status}: {self.reason}" if self.reason else f"{self.id} {self.status}"


@dataclass(frozen=True, slots=True, repr=False)
class WorkflowResult:
    """How an execution ended, in the words of the API. `output` is there, as far as it goes, after a failure too."""

    workflow: str
    execution_id: str
    status: str
    run: int
    output: dict[str, Any]
    error: dict[str, Any] | None
    nodes: dict[str, NodeResult]

    @property
    def ok(self) -> bool:
        return self.status == "COMPLETED"

    def raise_for_status(self) -> Self:
        """Itself, or AssertionError that says which nodes did not complete, and why."""
        if not self.ok:
            raise AssertionError("\n  ".join((f"{self.workflow} {self.status}", *self._not_completed())))
        return self

    def __repr__(self) -> str:
        about = f"output={self.output!r}" if self.ok else "; ".join(self._not_completed())
        return f"<{self.workflow} {self.status}: {about}>"

    def _not_completed(self) -> list[str]:
        """What failed comes first: the rest follows from it."""
        others = [node for node in self.nodes.values() if node.status != "COMPLETED"]
        told = [str(node) for node in sorted(others, key=lambda node: node.error is None)]
        if self.error and "node" not in self.error:
            told.insert(0, _told(self.error))
        more = len(told) - MOST_NODES_TOLD
        return told if more <= 0 else [*told[:MOST_NODES_TOLD], f"and {more:,} more nodes"]


def _told(error: Mapping[str, Any]) -> str:
    return f"{error.get('type') or error['code']}: {error['message']}"


def run_workflow(
    definition: Source, inputs: dict[str, Any] | None = None, **options: Unpack[Options]
) -> WorkflowResult:
    """Run a definition to its end on a server of its own; `Options` says how.

    A definition is the path of a file, the text of one (if it has several lines), a dict, a Definition or a Workflow.
    A failed workflow is a result like any other. InvalidDefinition and InvalidInput say what could not be started.
    """
    with LocalEngine() as engine:
        return engine.run(definition, inputs, **options)


async def arun_workflow(
    definition: Source, inputs: dict[str, Any] | None = None, **options: Unpack[Options]
) -> WorkflowResult:
    """`run_workflow` for async tests: the handlers run on the loop of the caller."""
    with LocalEngine() as engine:
        return await engine.arun(definition, inputs, **options)


def context(
    *,
    execution_id: str = "test",
    node_id: str = "node",
    run: int = 1,
    attempt: int = 1,
    idempotency_key: str | None = None,
    deadline: datetime | None = None,
    log: Any = None,
) -> Context:
    """A Context to call a handler with."""
    key = f"{execution_id}:{run}:{node_id}" if idempotency_key is None else idempotency_key
    return Context(execution_id, node_id, run, attempt, key, deadline, log or structlog.get_logger())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an execution is. A failed one rests there until it is retried."""

    server: EmbeddedValkey
    definition: Definition


class LocalEngine:
    """Runs workflows, one or several at a time. A server on which nothing is under way serves the next run."""

    def __init__(self) -> None:
        self._servers = ExitStack()
        self._idle: list[EmbeddedValkey] = []
        self._failed: dict[str, _Place] = {}

    def run(
        self, definition: Source, inputs: dict[str, Any] | None = None, **options: Unpack[Options]
    ) -> WorkflowResult:
        """As `run_workflow`."""
        _refuse_loop("arun or arun_workflow")
        return run_loop(self.arun(definition, inputs, **options))

    async def arun(
        self, definition: Source, inputs: dict[str, Any] | None = None, **options: Unpack[Options]
    ) -> WorkflowResult:
        """As `arun_workflow`."""
        settings, registry = _surroundings(options)
        checked = _definition(definition, registry, settings)
        input_params = check_input(checked, inputs)
        if options.get("fast_retries", True):
            checked = _without_delays(checked)
        server = self._idle.pop() if self._idle else self._start()

        async def start(engine: Engine) -> str:
            return await engine.start(checked, input_params)

        return await self._to_its_end(start, _Place(server, checked), settings, registry, options)

    def retry(self, result: WorkflowResult, **options: Unpack[RunOptions]) -> WorkflowResult:
        """The next run of a workflow that failed on this engine: what is complete keeps its output, all else runs.

        Definition and inputs stay as they were. What was repaired is around them, such as the handlers given here.
        """
        _refuse_loop("aretry")
        return run_loop(self.aretry(result, **options))

    async def aretry(self, result: WorkflowResult, **options: Unpack[RunOptions]) -> WorkflowResult:
        """As `retry`, on the loop of the caller."""
        settings, registry = _surroundings(options)
        place = self._failed.get(result.execution_id)
        if place is None:
            raise Conflict(f"{result.workflow} cannot be retried: only what FAILED on this engine can")
        _definition(place.definition, registry, settings)
        if place.server not in self._idle:
            raise Conflict(f"{result.workflow} cannot be retried now: its server is busy with another run")
        self._idle.remove(place.server)
        del self._failed[result.execution_id]

        async def retry(engine: Engine) -> str:
            await engine.retry(result.execution_id)
            return result.execution_id

        return await self._to_its_end(retry, place, settings, registry, options)

    async def _to_its_end(
        self,
        begin: Callable[[Engine], Awaitable[str]],
        place: _Place,
        settings: Settings,
        registry: Registry,
        options: RunOptions,
    ) -> WorkflowResult:
        timeout_seconds = options.get("timeout_seconds", TIMEOUT_SECONDS)
        async with connected(place.server.url, settings) as store:
            engine = Engine(store, settings)
            execution_id = await begin(engine)
            async with roles_running(store, settings, registry):
                has_ended = await _ends_within(timeout_seconds, engine, store, execution_id)
                result = await _result(engine, store, execution_id)
                is_idle = has_ended and (not result.ok or await engine.forget(execution_id))
        if not has_ended:
            told = "\n  ".join(result._not_completed())
            raise TimeoutError(f"{result.workflow} did not end within {timeout_seconds:g} seconds:\n  {told}")
        if is_idle:
            self._idle.append(place.server)
        if not result.ok:
            self._failed[execution_id] = place
        return result

    def close(self) -> None:
        self._servers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self) -> EmbeddedValkey:
        folder = self._servers.enter_context(tempfile.TemporaryDirectory(prefix="headrace-"))
        return self._servers.enter_context(EmbeddedValkey(Path(folder)))


# What a run is made from


def _refuse_loop(instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"an event loop is running here: await {instead} instead")


def _surroundings(options: RunOptions) -> tuple[Settings, Registry]:
    settings = _settings(options.get("settings", {}))
    return settings, _registry(options.get("handlers", ()), settings)


def _settings(given: Mapping[str, Any]) -> Settings:
    known = {field.alias for field in Settings.model_fields.values()}
    if unknown := sorted(given.keys() - known):
        raise TypeError(f"there is no setting {', '.join(unknown)}: settings have the names of the environment")
    # When the roles stop, the execution has ended: nothing that still runs is worth waiting for.
    return Settings(**{"WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": 0.0, **given})


def _registry(handlers: Iterable[Handlers] | Handlers, settings: Settings) -> Registry:
    given = [handlers] if isinstance(handlers, str | ModuleType) or callable(handlers) else list(handlers)
    modules = [each if isinstance(each, str) else each.__name__ for each in given if isinstance(each, str | ModuleType)]
    registry = Registry.load(modules, settings)
    for each in given:
        if not isinstance(each, str | ModuleType):
            registry.add(each, replace=True)
    return registry


def _definition(source: Source, registry: Registry, settings: Settings) -> Definition:
    handlers = {handler.name: HandlerSpec(handler.name, handler.config_schema) for handler in registry}
    document = _document(source)
    data = document.data if isinstance(document, Document) else document
    try:
        return validate(data, handlers=handlers, max_nodes=settings.max_nodes)
    except InvalidDefinition as error:
        if not isinstance(document, Document):
            raise
        raise InvalidDefinition(document.located(error.problems)) from None


def _document(source: Source) -> Document | dict[str, Any]:
    if isinstance(source, Workflow):
        return source.to_dict()
    if isinstance(source, Definition):
        return dict(msgspec.json.decode(source.to_json()))
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, str) and "\n" in source:
        return load(source)
    return load(Path(source).read_text(encoding="utf-8"), source_name=str(source))


def _without_delays(definition: Definition) -> Definition:
    replace = msgspec.structs.replace
    nodes = (
        replace(node, retry_config=replace(node.retry_config or RetryConfig(), max_delay=0.0))
        for node in definition.nodes
    )
    return replace(definition, nodes=tuple(nodes))


# How it ends


async def _ends_within(seconds: float, engine: Engine, store: HotStore, execution_id: str) -> bool:
    """Whether the execution, and what may still finish after a failure, has ended in time. Its events are dropped."""
    partition, last = store.partition_of(execution_id), "0-0"
    try:
        async with asyncio.timeout(seconds):
            async for last, _ in engine.follow(execution_id):  # noqa: B007
                pass
            while await engine.under_way(execution_id):
                events = await store.read_events(partition, last)
                last = events[-1][0] if events else last
    except TimeoutError:
        return False
    await store.trim_events(partition, last)
    return True


async def _result(engine: Engine, store: HotStore, execution_id: str) -> WorkflowResult:
    view = await engine.read(execution_id)
    names = [node["id"] for node in view["nodes"]]
    outputs = await store.outputs(execution_id, names, most_bytes=1 << 62) or {}
    nodes = {
        node["id"]: NodeResult(
            id=node["id"],
            handler=node["handler"],
            status=node["status"],
            attempt=node["attempt"],
            output=payload.decode(outputs[node["id"]]) if node["id"] in outputs else None,
            error=node["error"],
            reason=node["reason"],
        )
        for node in view["nodes"]
    }
    output = view["output"] or {}
    return WorkflowResult(view["workflow"], execution_id, view["status"], view["run"], output, view["error"], nodes)
