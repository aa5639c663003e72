"""What operations take and answer, in the words of OpenAPI: bodies, headers, problems, streams of events.

Routes say it of themselves with these; the application puts the document together. The tests send what the document
allows and what it forbids, and hold every answer against it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel

from headrace.api.problems import MEDIA_TYPE
from headrace.model.schema import definition_schema

DEFINITION: dict[str, Any] = {
    "name": "greeting",
    "inputs": {"name": {"type": "string", "default": "world"}},
    "nodes": [
        {"id": "start", "handler": "input"},
        {"id": "done", "handler": "output", "dependencies": ["start"], "config": {"text": "Hello {{ start.name }}"}},
    ],
}

_ALWAYS = (401, 403, 429, 500, 503)
_WORDS = {
    400: "The body cannot be read.", 401: "A valid API key is needed.", 403: "The key or the origin may not do this.",
    404: "There is no such thing.", 408: "The body did not arrive in time.",
    409: "The state of the execution does not allow this.", 413: "The body is too large.",
    422: "The request has problems; each is in errors.", 429: "Too many requests: wait as Retry-After says.",
    500: "Something is wrong with the server.", 503: "A store is away: try again as Retry-After says.",
}  # fmt: skip
_READS_BODY = (400, 408, 413, 422)
_RETRY_AFTER = {"Retry-After": {"required": True, "schema": {"type": "integer"}, "description": "In seconds."}}
_HEADERS = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}, 429: _RETRY_AFTER, 503: _RETRY_AFTER,
}  # fmt: skip
PART = "#/components/schemas/"
LOCATION = {"Location": {"required": True, "schema": {"type": "string"}, "description": "The path of the execution."}}
REPLAYED = {
    "Idempotent-Replayed": {"schema": {"const": "true"}, "description": "The Idempotency-Key had been used before."}
}

Responses = dict[int | str, dict[str, Any]]


def answers(
    status: int, model: type[BaseModel] | None, words: str, *problems: int, body: bool = False, **good: Any
) -> Responses:
    """The answer when all is well, and every problem that there can be."""
    found = sorted({*problems, *_ALWAYS, *(_READS_BODY if body else ())})
    shown = {"model": model} if model else {}
    return {status: {"description": words, **shown, **good}, **{one: problem(one) for one in found}}


def problem(status: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": PART + "Problem"}}}
    return {"description": _WORDS[status], "content": content, "headers": _HEADERS.get(status, {})}


def events(words: str, data: list[str], *problems: int) -> Responses:
    """A stream of events; the schema is that of one event, and of the JSON in its data."""
    contents = [{"$ref": PART + name} for name in (*data, "Problem")]
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": ["snapshot", "change", "end", "problem"]},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": contents}},
        },
        "required": ["event", "data"],
    }
    return answers(200, None, words, *problems, content={"text/event-stream": {"schema": schema}})


def body(schema: dict[str, Any], example: Any, *, required: bool = True, yaml: bool = False) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    if yaml:
        content["application/yaml"] = {"schema": schema, "example": example}
    return {"requestBody": {"required": required, "content": content}}


def definition_body() -> dict[str, Any]:
    return body({"$ref": "#/components/schemas/Definition"}, DEFINITION, yaml=True)


_INPUT_PARAMS = {"type": ["object", "null"], "description": "Values for the workflow's inputs."}
TRIGGER_BODY = body(
    {"type": "object", "properties": {"input_params": _INPUT_PARAMS}, "additionalProperties": False},
    {"input_params": {"name": "Ada"}},
    required=False,
)
START_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {
                "workflow": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
                "version": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1},
                "input_params": _INPUT_PARAMS,
            },
            "required": ["workflow"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"definition": {"$ref": "#/components/schemas/Definition"}, "input_params": _INPUT_PARAMS},
            "required": ["definition"],
            "additionalProperties": False,
        },
    ]
}
START_BODY = body(START_SCHEMA, {"definition": DEFINITION, "input_params": {"name": "Ada"}}, yaml=True)
RETRY_BODY = body(
    {
        "type": "object",
        "properties": {
            "from": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Nodes that run again although they are COMPLETED, and with them all that comes after.",
            }
        },
        "additionalProperties": False,
    },
    {"from": ["start"]},
    required=False,
)
RETRY_LETTERS_BODY = body(
    {
        "type": "object",
        "properties": {
            "ids": {"type": ["array", "null"], "items": {"type": "string", "format": "uuid"}, "maxItems": 1000},
            "workflow": {"type": ["string", "null"], "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
        },
        "additionalProperties": False,
    },
    {"workflow": "greeting"},
    required=False,
)


def path_parameter(name: str, words: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "uuid"}
    return {"name": name, "in": "path", "required": True, "description": words, "schema": schema}


def components(*models: type[BaseModel]) -> dict[str, Any]:
    """Of models that no answer consists of, with their parts."""
    found: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema(ref_template=PART + "{model}")
        found |= schema.pop("$defs", {})
        found[model.__name__] = schema
    return found


def definition_components() -> dict[str, Any]:
    """The schema of a definition, with its parts where an OpenAPI document has them."""
    schema = definition_schema({})
    del schema["$schema"]
    parts = schema.pop("$defs")
    del parts["node"]["properties"]["handler"]["enum"]  # which there are, /v1/handlers says
    text = msgspec.json.encode({"Definition": schema, **{f"Definition_{name}": parts[name] for name in parts}})
    moved: dict[str, Any] = msgspec.json.decode(text.replace(b"#/$defs/", b"#/components/schemas/Definition_"))
    return moved
