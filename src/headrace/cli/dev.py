"""`headrace dev`: API, orchestrator and worker in one process, with embedded stores that outlive it.

Everything is under HEADRACE_HOME. Started again there, also after `kill -9`, it goes on with what was running: the
private Valkey has its append-only file, and what that lost is opened again from SQL.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headrace import __version__, logs
from headrace.cli.roles import exit_code
from headrace.cli.startup import load_registry, load_settings
from headrace.embedded import EmbeddedValkey
from headrace.process import connected, on_signals, process_name, recorded, roles_running, run_loop, traced
from headrace.settings import Settings
from headrace.worker.registry import Registry


def run_dev(host: str | None, port: int | None, modules: Sequence[str]) -> int:
    logs.configure("warning")
    settings = load_settings()
    given = {"api_host": host, "api_port": port}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    registry = load_registry([*settings.worker_handlers, *modules], settings)
    return exit_code("dev", lambda: run_loop(_dev(settings, registry)))


async def _dev(settings: Settings, registry: Registry) -> None:
    from headrace.api.app import create_app
    from headrace.api.server import serve
    from headrace.engine.service import Service

    stop = asyncio.Event()
    async with (
        on_signals(stop.set),
        _valkey(settings) as url,
        connected(url, settings) as store,
        recorded(settings) as database,
        traced(settings, process_name("dev")) as tracer,
        roles_running(store, settings, registry, database, tracer) as worker,
        Service(database, store, settings) as service,
    ):
        app = create_app(service, database, store, settings)
        await serve(app, settings, stop, listening=lambda address: _tell(address, settings, registry))
        print("Stopping: what runs may finish. Ctrl-C again ends at once.", file=sys.stderr, flush=True)
    if worker.is_stuck:
        os._exit(0)  # handlers that do not listen: the event loop would wait for them


@asynccontextmanager
async def _valkey(settings: Settings) -> AsyncIterator[str]:
    """The configured server, or a private one of this folder."""
    if settings.valkey_url is not None:
        yield settings.valkey_url
        return
    with EmbeddedValkey(settings.headrace_home / "valkey") as server:
        if server.set_aside is not None:
            print(f"Valkey's data was damaged and is in {server.set_aside}; going on from SQL", file=sys.stderr)
        yield server.url


def _tell(address: str, settings: Settings, registry: Registry) -> None:
    from headrace.api.site import BUILT

    rows = {
        "Web UI": address if BUILT.exists() else "not built: `make ui` does it, in a clone of the project",
        "API": f"{address}  (documentation: {address}/docs)",
        "Stores": f"{settings.headrace_home}/" if settings.valkey_url is None else "as configured",
        "Handlers": ", ".join(registry.names),
        "Try": f"headrace run examples/hello.yaml --server {address}",
        "Stop": "Ctrl-C; started again here, it goes on with what was running",
    }
    print(f"Headrace {__version__}", *(f"  {name:<10}{text}" for name, text in rows.items()), sep="\n", file=sys.stderr)
    sys.stderr.flush()
