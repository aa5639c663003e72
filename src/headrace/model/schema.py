"""The JSON Schema of a definition file, for editors: fields, their meaning, and the config of every given handler.

It says what `validate` says, as far as a schema can, and is never stricter: no editor complains about a file that runs.
Any value in a config may be text with a template in it, so the schema of a handler is loosened to allow that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.model.configs import HandlerSpec, only_scalars
from headrace.model.definition import MAX_RETRIES, MAX_SECONDS, NAME, NODE_ID, RESERVED_IDS, SCHEMA_KEY
from headrace.model.plan import INPUT

Schema = dict[str, Any]

TEMPLATE: Final = r"\{[{%#]"
_DEFS: Final = "#/$defs/"


def definition_schema(handlers: Mapping[str, HandlerSpec]) -> Schema:
    """Draft 2020-12, nothing referred to from elsewhere."""
    defs: Schema = {"node": _node(handlers), "retry_config": _RETRY_CONFIG, "input": _INPUT, "template": _TEMPLATE}
    for name, spec in sorted(handlers.items()):
        if spec.config_schema is not None and name != INPUT:
            defs.update(_config_defs(spec.config_schema, _config_name(name)))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace workflow",
        "description": "A workflow: nodes, each with a handler, that run when the nodes they depend on are done.",
        "type": "object",
        "properties": _PROPERTIES,
        "required": ["name", "nodes"],
        "additionalProperties": False,
        "$defs": defs,
    }


def _ref(name: str) -> Schema:
    return {"$ref": _DEFS + name}


def _seconds(description: str, **limit: float) -> Schema:
    return {"type": ["number", "null"], **limit, "maximum": MAX_SECONDS, "description": description}


_PROPERTIES: Final[Schema] = {
    SCHEMA_KEY: {"type": ["string", "null"], "description": "For editors: where the schema of this file is."},
    "name": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "The name of the workflow: lower-case letters, digits, - and _.",
    },
    "description": {"type": ["string", "null"], "description": "What the workflow is for, in your words."},
    "inputs": {
        "type": ["object", "null"],
        "additionalProperties": _ref("input"),
        "description": "The inputs, each with the JSON Schema of its value. One without a default must be given.",
    },
    "on_failure": {
        "enum": ["fail_fast", "continue", None],
        "default": "fail_fast",
        "description": "What a failed node means for the others. fail_fast: nothing more is started. "
        "continue: what does not depend on it goes on.",
    },
    "timeout_seconds": _seconds("How long one run of the whole workflow may take.", exclusiveMinimum=0),
    "nodes": {
        "type": "array",
        "items": _ref("node"),
        "minItems": 1,
        "description": "The nodes. Their order matters only where several become ready together.",
    },
}

_TYPES: Final = ["string", "number", "integer", "boolean", "object", "array", "null"]
_INPUT: Final[Schema] = {
    "type": ["object", "boolean"],
    "properties": {
        "type": {
            "anyOf": [{"enum": _TYPES}, {"type": "array", "items": {"enum": _TYPES}}],
            "description": "The type of the value.",
        },
        "default": {"description": "The value that is taken where none is given."},
        "description": {"type": "string", "description": "What the input is for."},
        "enum": {"type": "array", "description": "The values that are allowed."},
    },
    "description": "The JSON Schema of one input.",
}
_TEMPLATE: Final[Schema] = {
    "type": "string",
    "pattern": TEMPLATE,
    "description": "A template: {{ node.field }} reads the output of a node, {{ input.name }} an input.",
}
_RETRY_CONFIG: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {
        "max_retries": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": MAX_RETRIES,
            "description": "How often a failed attempt is repeated, at most.",
        },
        "initial_delay": _seconds("Seconds before the first repetition.", minimum=0),
        "max_delay": _seconds("Seconds before a repetition, at most.", minimum=0),
        "exponential_base": {
            "type": ["number", "null"],
            "minimum": 1,
            "maximum": 1e6,
            "description": "How many times longer each delay is than the one before it.",
        },
        "jitter": {"type": ["boolean", "null"], "description": "Vary the delays, so that nodes do not retry in step."},
    },
    "additionalProperties": False,
    "description": "How often and when a failed attempt is repeated. The settings say what is not said here.",
}


def _node(handlers: Mapping[str, HandlerSpec]) -> Schema:
    return {
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "pattern": f"^{NODE_ID.pattern}$",
                "not": {"enum": sorted(RESERVED_IDS)},
                "description": "The name of the node, which templates use: letters, digits and _.",
            },
            "handler": {
                "type": "string",
                "enum": sorted(handlers),
                "description": "What the node does: the name of a handler.",
            },
            "dependencies": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "uniqueItems": True,
                "description": "The ids of the nodes that must be done before this one starts.",
            },
            "config": {
                "type": ["object", "null"],
                "description": "What the handler is given. Any text in it may be a template.",
            },
            "timeout_seconds": _seconds("How long one attempt may take.", exclusiveMinimum=0),
            "retry_config": _ref("retry_config"),
            "description": {"type": ["string", "null"], "description": "What the node is for, in your words."},
        },
        "required": ["id", "handler"],
        "additionalProperties": False,
        "allOf": [_config_of(name, spec) for name, spec in sorted(handlers.items()) if _has_config(spec)],
        "description": "One step of the workflow.",
    }


def _config_of(name: str, spec: HandlerSpec) -> Schema:
    """What the choice of a handler means for the config beside it. Editors understand if and then best."""
    if name == INPUT:
        then: Schema = {"properties": {"config": {"maxProperties": 0}}}
    elif (spec.config_schema or {}).get("required"):
        then = {"properties": {"config": _ref(_config_name(name))}, "required": ["config"]}
    else:
        then = {"properties": {"config": {"anyOf": [_ref(_config_name(name)), {"type": "null"}]}}}
    return {"if": {"properties": {"handler": {"const": name}}, "required": ["handler"]}, "then": then}


def _has_config(spec: HandlerSpec) -> bool:
    return spec.config_schema is not None or spec.name == INPUT


def _config_name(handler: str) -> str:
    return f"config:{handler}"


# The schema of a handler's config, loosened


_NOTES: Final = ("description", "default", "examples", "deprecated")
_ON_TEXT: Final = frozenset({"minLength", "maxLength", "pattern", "format", "enum", "const"})
_ON_THE_REST: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "type"}
    | {"required", "minProperties", "maxProperties", "minItems", "maxItems"}
)
_BY_NAME: Final = frozenset({"properties", "patternProperties"})
_IN_LISTS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf", "prefixItems": "prefixItems"}
_ONE: Final = frozenset({"items", "additionalProperties", "propertyNames"})


def _config_defs(schema: Schema, name: str) -> Schema:
    """The schema of a config and the definitions that it refers to, under names that no other handler has."""
    inner = {f"{name}:{each}": _loosened(value, name) for each, value in schema.get("$defs", {}).items()}
    return {name: _kept(schema, name), **inner}


def _loosened(schema: Any, name: str) -> Any:
    """The same, or text with a template."""
    if schema is True or schema is False:
        return schema or _ref("template")
    kept = _kept(schema, name)
    types = kept.get("type")
    notes = {key: kept.pop(key) for key in _NOTES if key in kept}
    if not _ON_TEXT.isdisjoint(kept):
        return {**notes, "anyOf": [kept, _ref("template")]}
    if types is not None and "string" not in (listed := [types] if isinstance(types, str) else types):
        return {**notes, **kept, "type": [*listed, "string"], "pattern": TEMPLATE}
    return {**notes, **kept}


def _kept(schema: Schema, name: str) -> Schema:
    """What stays true whatever templates give, and what concerns this value alone; the rest is left out.

    Out are `not`, `if`, `contains`, `uniqueItems` and their like: they look into values that are not known yet.
    """
    kept: Schema = {}
    for key, value in schema.items():
        if key in ("enum", "const"):
            if only_scalars(value if key == "enum" else [value]):
                kept[key] = value
        elif key in _NOTES or key in _ON_THE_REST or key in _ON_TEXT or (key, value) == ("additionalProperties", False):
            kept[key] = value
        elif key in _BY_NAME:
            kept[key] = {each: _loosened(inner, name) for each, inner in value.items()}
        elif key in _ONE:
            kept[key] = _loosened(value, name)
        elif key in _IN_LISTS:
            kept.setdefault(_IN_LISTS[key], [_loosened(inner, name) for inner in value])
        elif key == "$ref" and value.startswith(_DEFS):
            kept[key] = f"{_DEFS}{name}:{value.removeprefix(_DEFS)}"
    return kept
