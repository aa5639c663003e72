"""`headrace run`: one definition to its end, on a private engine that lives as long as the command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace import logs
from headrace.cli.progress import Progress
from headrace.cli.roles import UNREACHABLE
from headrace.cli.startup import USAGE, load_registry, load_settings
from headrace.embedded import EmbeddedValkey, scratch
from headrace.engine.engine import Engine
from headrace.errors import Conflict, InvalidDefinition, InvalidInput, Problem, StoreUnavailable, StoreUnsupported
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.document import Document, load
from headrace.model.validation import HandlerSpec, check_input, validate
from headrace.process import connected, on_signals, roles_running, run_loop
from headrace.settings import Settings
from headrace.worker.registry import Registry

INTERRUPTED = 130


class Usage(Exception):
    """The command was called with something that cannot be used; the lines say what."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


def run_file(
    file: Path, inputs: Sequence[str], input_file: Path | None, modules: Sequence[str], *, json_output: bool
) -> int:
    logs.configure("warning")
    settings = load_settings()
    registry = load_registry([*settings.worker_handlers, *modules])
    try:
        definition = read_definition(file, registry, settings)
        input_params = read_inputs(inputs, input_file)
        check_input(definition, input_params)
    except (Usage, InvalidInput) as error:
        _complain(*(str(error).splitlines() if isinstance(error, Usage) else [str(p) for p in error.problems]))
        return USAGE
    try:
        return_code = run_loop(_run(definition, input_params, registry, settings, json_output=json_output))
    except* (StoreUnavailable, StoreUnsupported) as group:
        _complain(*(str(error) for error in group.exceptions))
        return_code = UNREACHABLE
    return return_code


def read_definition(file: Path, registry: Registry, settings: Settings) -> Definition:
    document = _load(file)
    handlers = {handler.name: HandlerSpec(handler.name, handler.config_schema) for handler in registry}
    try:
        return validate(document.data, handlers=handlers, max_nodes=settings.max_nodes)
    except InvalidDefinition as error:
        raise Usage(*(_told(file, problem) for problem in document.located(error.problems))) from None


def read_inputs(pairs: Sequence[str], input_file: Path | None) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if input_file is not None:
        read = _load(input_file).data
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


async def _run(
    definition: Definition, input_params: dict[str, Any], registry: Registry, settings: Settings, *, json_output: bool
) -> int:
    interrupted = asyncio.Event()
    # When the roles stop, the execution has ended: nothing that still runs is worth waiting for.
    settings = settings.model_copy(update={"worker_graceful_shutdown_timeout": 0.0})
    async with on_signals(interrupted.set):
        with scratch(settings.headrace_home) as folder, EmbeddedValkey(folder) as server:
            async with connected(server.url, settings) as store, roles_running(store, settings, registry) as worker:
                engine = Engine(store, settings)
                execution_id = await engine.start(definition, input_params)
                progress = Progress(definition, execution_id, quiet=json_output)
                following = asyncio.ensure_future(_follow(engine, store, execution_id, progress))
                asked = asyncio.ensure_future(interrupted.wait())
                await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    progress.line("Ctrl-C: cancelling")
                    try:
                        await engine.cancel(execution_id)
                        await following
                    except Conflict:
                        following.cancel()  # it has ended already: only what was still running is not waited for
                asked.cancel()
                view = await engine.read(execution_id)
                progress.finished(view)
    _print_result(view, json_output=json_output)
    code = INTERRUPTED if interrupted.is_set() else 0 if view["status"] == "COMPLETED" else 1
    if worker.is_stuck:
        sys.stdout.flush()
        os._exit(code)  # handlers that do not listen: the event loop would wait for them
    return code


async def _follow(engine: Engine, store: HotStore, execution_id: str, progress: Progress) -> None:
    """Shows each event and drops it; after a failure waits for what may still finish."""
    partition = store.partition_of(execution_id)
    after = "0-0"
    async for event_id, event in engine.follow(execution_id):
        progress.show(event)
        after = event_id
        await store.trim_events(partition, event_id)
    while await engine.under_way(execution_id):
        progress.line("waiting for what is still running (Ctrl-C to leave it)")
        for event_id, event in await store.read_events(partition, after):
            progress.show(event)
            after = event_id


def _load(file: Path) -> Document:
    try:
        return load(file.read_text(encoding="utf-8"), source_name=str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"cannot read {file}: {error}") from None
    except InvalidDefinition as error:
        raise Usage(*(_told(file, problem) for problem in error.problems)) from None


def _told(file: Path, problem: Problem) -> str:
    where = f"{file}:{problem.line}" if problem.line is not None else str(file)
    node = f"node {problem.node}: " if problem.node else ""
    return f"{where}: {node}{problem.message}"


def _complain(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _print_result(view: dict[str, Any], *, json_output: bool) -> None:
    shown = view if json_output else view["output"]
    if shown is not None:
        print(msgspec.json.format(msgspec.json.encode(shown)).decode())
