"""An orchestrator without a record: what is measured is the engine alone."""

from __future__ import annotations

from headrace.engine.role import orchestrate
from headrace.process import run_loop, serve
from headrace.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    run_loop(
        serve(
            "orchestrator",
            settings,
            settings.valkey_url or "",
            lambda store, name, stop: orchestrate(store, settings, name, stop),
        )
    )
