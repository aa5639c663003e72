"""Definitions: their fields, from the same schema that `headrace schema` prints, and their limits."""

from __future__ import annotations

from docs.generate.markdown import code, literal, table
from docs.generate.schemas import HEAD, Schema, fields, table_of

from headrace.engine.engine import INPUT_BYTES
from headrace.model import definition, document, findings, payload, plan, yaml_reader
from headrace.model.schema import definition_schema
from headrace.settings import Settings

_schema = definition_schema({})
_defs: dict[str, Schema] = _schema["$defs"]


def _table_of(schema: Schema) -> str:
    """Without the fields of what is inside: that has a table of its own."""
    leaves = {name: {key: inner[key] for key in inner if key != "properties"} for name, inner in _defs.items()}
    return table_of({**schema, "$defs": leaves})


def _retry_config() -> str:
    """With the setting that stands in for each field."""
    rows = []
    for field in fields(_defs["retry_config"]):
        name, kind, _, meaning = field.row
        setting = Settings.model_fields[f"retry_{field.name}"]
        rows.append((name, kind, f"{code(str(setting.alias))}: {literal(setting.default)}", meaning))
    return table(HEAD, rows)


def _limits() -> str:
    settings = Settings.model_fields
    rows = (
        (f"{document.MAX_CHARS:,}", "characters of a file"),
        (f"{document.MAX_YAML_CHARS:,}", "characters of a file that is YAML; a larger one must be JSON"),
        (f"{yaml_reader.MAX_EXPANDED_CHARS:,}", "characters of YAML with its aliases written out"),
        (f"{document.MAX_DEPTH:,}", "levels of nesting in a file"),
        (f"{payload.MAX_DEPTH:,}", "levels of nesting in a config, an input or an output"),
        (f"{settings['max_nodes'].default:,}", "nodes (`MAX_NODES`)"),
        (f"{definition.MAX_SCHEMA_CHARS:,}", "characters of the JSON Schema of one input"),
        (f"{INPUT_BYTES:,}", "bytes of all inputs of an execution, as JSON"),
        (f"{plan.MAX_RENDERED_BYTES:,}", "bytes of a config, before and after its templates are rendered"),
        (f"{settings['max_context_bytes'].default:,}", "bytes that one node's templates read (`MAX_CONTEXT_BYTES`)"),
        (f"{settings['max_output_bytes'].default:,}", "bytes of a node's output (`MAX_OUTPUT_BYTES`)"),
        (f"{findings.MAX_PROBLEMS:,}", "problems that are told; the others are counted"),
    )
    return table(("at most", "what"), rows)


BLOCKS = {
    "fields of a definition": lambda: _table_of(_schema),
    "fields of a node": lambda: _table_of(_defs["node"]),
    "fields of a retry_config": _retry_config,
    "fields of an input": lambda: _table_of(_defs["input"]),
    "limits of a definition": _limits,
}
