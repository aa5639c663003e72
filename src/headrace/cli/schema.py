"""`headrace schema`: the JSON Schema of a definition file, with the config of every handler that is there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace import logs
from headrace.cli.definitions import specs
from headrace.cli.startup import load_registry, load_settings
from headrace.model.schema import definition_schema


def schema_text(modules: Sequence[str]) -> str:
    """The schema as a file holds it."""
    logs.configure("warning")
    settings = load_settings()
    registry = load_registry([*settings.worker_handlers, *modules], settings)
    schema = definition_schema(specs(registry))
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def print_schema(modules: Sequence[str]) -> int:
    print(schema_text(modules), end="")
    return 0
