"""`headrace run`: one definition to its end, on a private engine that lives as long as the command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from headrace import logs
from headrace.cli.definitions import read_definition, read_document
from headrace.cli.output import complain, print_json
from headrace.cli.roles import UNREACHABLE
from headrace.cli.startup import USAGE, Usage, load_registry, load_settings
from headrace.cli.views import View, fitting
from headrace.embedded import EmbeddedValkey, scratch
from headrace.engine.engine import Engine
from headrace.errors import Conflict, InvalidInput, StoreUnavailable, StoreUnsupported
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.messages import Failure
from headrace.model.validation import check_input
from headrace.process import connected, on_signals, process_name, roles_running, run_loop, traced
from headrace.settings import Settings
from headrace.worker.registry import Registry

if TYPE_CHECKING:  # an optional dependency
    from headrace.tracing import EndedRun

INTERRUPTED = 130
MOST_EVENTS_KEPT = 500


@dataclass(frozen=True, slots=True)
class Run:
    """What is asked for."""

    definition: Definition
    input_params: dict[str, Any]
    registry: Registry
    settings: Settings
    results: TextIO
    json_output: bool


def run_file(
    file: Path,
    inputs: Sequence[str],
    input_file: Path | None,
    modules: Sequence[str],
    *,
    json_output: bool,
    verbose: bool = False,
) -> int:
    with results_file(alone=json_output) as results:
        logs.configure("info" if verbose else "warning")
        settings = load_settings()
        registry = load_registry([*settings.worker_handlers, *modules], settings)
        try:
            definition = read_definition(file, registry, settings)
            input_params = read_inputs(inputs, input_file)
            check_input(definition, input_params)
        except (Usage, InvalidInput) as error:
            complain(*(str(error).splitlines() if isinstance(error, Usage) else [str(p) for p in error.problems]))
            return USAGE
        run = Run(definition, input_params, registry, settings, results, json_output)
        try:
            return_code = run_loop(_run(run))
        except* (StoreUnavailable, StoreUnsupported) as group:
            complain(*(str(error) for error in group.exceptions))
            return_code = UNREACHABLE
        return return_code


@contextmanager
def results_file(*, alone: bool) -> Iterator[TextIO]:
    """Where the result goes. `alone`: what handlers and their children print to stdout goes to stderr meanwhile."""
    if not alone:
        yield sys.stdout
        return
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout:
        sys.stdout.flush()
        os.dup2(2, 1)
        try:
            yield stdout
        finally:
            sys.stdout.flush()
            os.dup2(stdout.fileno(), 1)


def read_inputs(pairs: Sequence[str], input_file: Path | None) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if input_file is not None:
        read = read_document(input_file).data
        if not isinstance(read, dict):
            raise Usage(f"{input_file}: inputs must be a mapping of names to values")
        params.update(read)
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise Usage(f"--input {pair}: write it as KEY=VALUE")
        try:
            params[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            params[name] = text
    return params


async def _run(run: Run) -> int:
    interrupted = asyncio.Event()
    # When the roles stop, the execution has ended: nothing that still runs is worth waiting for.
    settings = run.settings.model_copy(update={"worker_graceful_shutdown_timeout": 0.0})
    async with on_signals(interrupted.set), fitting(run.definition, quiet=run.json_output) as view:
        with scratch(settings.headrace_home) as folder, EmbeddedValkey(folder) as server:
            async with (
                connected(server.url, settings) as store,
                traced(settings, process_name("run")) as tracer,
                roles_running(store, settings, run.registry, tracer=tracer) as worker,
            ):
                engine = Engine(store, settings)
                execution_id = await engine.start(run.definition, run.input_params)
                await _until_ended(engine, store, execution_id, view, interrupted)
                ended = await engine.read(execution_id)
                if tracer is not None:
                    tracer.run_ended(_run_of(ended))
    _print_result(ended, run)
    code = INTERRUPTED if interrupted.is_set() else 0 if ended["status"] == "COMPLETED" else 1
    if worker.is_stuck:
        sys.stdout.flush()
        os._exit(code)  # handlers that do not listen: the event loop would wait for them
    return code


async def _until_ended(
    engine: Engine, store: HotStore, execution_id: str, view: View, interrupted: asyncio.Event
) -> None:
    following = asyncio.ensure_future(_follow(engine, store, execution_id, view))
    asked = asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            view.interrupted()
            await engine.cancel(execution_id)
        await following
    except Conflict:
        pass  # it has ended already: only what was still running is not waited for
    finally:
        following.cancel()
        asked.cancel()


async def _follow(engine: Engine, store: HotStore, execution_id: str, view: View) -> None:
    """Shows each event and drops it; after a failure waits for what may still finish."""
    partition = store.partition_of(execution_id)
    after, kept = "0-0", 0
    async for event_id, event in engine.follow(execution_id):
        view.show(event)
        after, kept = event_id, kept + 1
        if kept >= MOST_EVENTS_KEPT:
            await store.trim_events(partition, event_id)
            kept = 0
    is_under_way = True
    while is_under_way:
        is_under_way = await engine.under_way(execution_id)
        for event_id, event in await store.read_events(partition, after, block=is_under_way):
            view.show(event)
            after = event_id


def _run_of(ended: dict[str, Any]) -> EndedRun:
    from headrace.tracing import EndedRun

    begun_ms, ended_ms = (
        round(datetime.fromisoformat(ended[name]).timestamp() * 1000) for name in ("started_at", "finished_at")
    )
    failure = msgspec.convert(ended["error"], Failure) if ended["error"] else None
    return EndedRun(
        ended["execution_id"], ended["run"], ended["workflow"], ended["status"], begun_ms, ended_ms, failure
    )


def _print_result(ended: dict[str, Any], run: Run) -> None:
    """Of an execution that did not complete, what its output nodes gave nevertheless."""
    shown = ended if run.json_output else ended["output"]
    if shown or ended["status"] == "COMPLETED":
        print_json(shown, run.results)
