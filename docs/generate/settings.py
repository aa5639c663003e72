"""The settings, from their fields: name, type, default, meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from docs.generate.markdown import code, table
from docs.generate.schemas import Field, fields, type_of

from headrace.settings import LlmProvider, Settings

# The prefixes of the names in each table of the page.
GROUPS: dict[str, Sequence[str]] = {
    "general": ("HEADRACE_HOME", "ENVIRONMENT"),
    "clients": ("HEADRACE_SERVER", "HEADRACE_API_KEY"),
    "Valkey": ("REDIS_",),
    "SQL": ("DATABASE_URL", "POSTGRES_"),
    "API": ("API_",),
    "workers": ("WORKER_",),
    "orchestrators": ("ORCHESTRATOR_",),
    "retries": ("RETRY_",),
    "limits": ("MAX_", "HOT_", "HANDLER_", "RETENTION_", "DLQ_"),
    "HTTP": ("HTTP_",),
    "LLM": ("OPENAI_", "LLM_"),
    "traces": ("OTEL_",),
    "secrets": ("HEADRACE_SECRET_",),
}
# How lists and mappings are written in the environment.
_WRITTEN = {"list": "names, with commas between them", "mapping": "name=value, with commas between them"}


def known() -> list[Field]:
    """Every setting. Those with a part of the name left open are written LLM_<NAME>_API_KEY."""
    found: list[Field] = []
    for field in fields({**Settings.model_json_schema(), "$defs": {"LlmProvider": {}}}):
        if field.name == "llm_providers":
            provider = LlmProvider.model_json_schema()
            found += (Field(f"LLM_<NAME>_{each.name.upper()}", each.schema, False) for each in fields(provider))
        elif field.name.endswith("*"):
            text = {**field.schema["additionalProperties"], "description": field.schema["description"]}
            found.append(Field(field.name.replace("*", "<NAME>"), text, False))
        else:
            found.append(field)
    return found


def group_of(name: str) -> list[str]:
    return [group for group, prefixes in GROUPS.items() if name.startswith(tuple(prefixes))]


def _table(group: str) -> str:
    return table(
        ("name", "type", "default", "meaning"), _rows(each for each in known() if group in group_of(each.name))
    )


def _rows(settings: Iterable[Field]) -> Iterable[tuple[str, str, str, str]]:
    for each in settings:
        kind = type_of(each.schema)
        yield code(each.name), _WRITTEN.get(kind, kind), each.default, each.meaning


def _block(group: str) -> Callable[[], str]:
    return lambda: _table(group)


BLOCKS = {f"settings: {group}": _block(group) for group in GROUPS}
