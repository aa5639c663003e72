"""From the bytes of a request to what it asks for. Everything in them is hostile until it has been through here.

A body is JSON, or YAML where the content type says so. What cannot be read is malformed (400); what can be read and
does not make sense is invalid (422), with all of its problems at once. Large bodies are read beside the event loop,
one at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from headrace.api.limits import read_body, too_large
from headrace.api.parts import Parts, caller, header, parts
from headrace.api.paths import MAX_VERSION, UUID
from headrace.api.problems import Refused, counted
from headrace.errors import InvalidDefinition, Problem
from headrace.model.configs import HandlerSpec
from headrace.model.definition import NAME, Definition
from headrace.model.document import Document, load
from headrace.model.fields import Fields, kind_of
from headrace.model.findings import Findings
from headrace.model.validation import validate
from headrace.record.acceptance import Idempotency

LARGE_BYTES: Final = 64 << 10
MAX_VALUES: Final = 5_000_000  # a value takes far more memory than the two bytes it may take here
MAX_KEY_CHARS: Final = 255
MAX_LETTERS: Final = 1000

Result = TypeVar("Result")
Handlers = Mapping[str, HandlerSpec]


class Start(msgspec.Struct, frozen=True):
    """Either a definition, or the name of a workflow that is known."""

    definition: Definition | None
    workflow: str
    version: int | None
    input_params: dict[str, Any]


async def read_definition(request: Request) -> Definition:
    """The definition that is the whole body, validated."""
    data, document = await _read(request, parts(request).settings.api_max_definition_bytes)
    return await _validated(request, document, len(data))


async def read_start(request: Request) -> tuple[Start, Idempotency | None]:
    settings = parts(request).settings
    key = _idempotency_key(request)
    data, document = await _read(request, settings.api_max_definition_bytes)
    start = _start(document.data)
    if "definition" in document.data:
        definition = await _validated(request, document, len(data), ("definition",))
        start = msgspec.structs.replace(start, definition=definition)
    elif len(data) > settings.api_max_body_bytes:
        raise too_large(settings.api_max_body_bytes)
    if key is None:
        return start, None
    return start, Idempotency(caller(request).owner, key, hashlib.sha256(data).hexdigest())


async def read_fields(request: Request, *names: str) -> dict[str, Any]:
    """The fields of a small body that may be left out. Their values are not checked yet."""
    _, document = await _read(request, parts(request).settings.api_max_body_bytes, default=b"{}")
    findings = Findings()
    Fields(document.data, (), findings, names=names, what="the body")
    refuse(findings)
    return {name: value for name, value in document.data.items() if value is not None}


async def read_letters(request: Request) -> tuple[list[str] | None, str | None]:
    """Which dead letters: by id, of a workflow, or (None, None) all."""
    body = await read_fields(request, "ids", "workflow")
    findings = Findings()
    field = Fields(body, (), findings, names=("ids", "workflow"), what="the body")
    ids = field.take("ids", list, "a list of ids")
    for position, each in enumerate(ids or ()):
        if not isinstance(each, str) or not UUID.fullmatch(each):
            findings.add("bad_id", f"ids[{position}] is not the id of a dead letter", ("ids", position))
    if ids is not None and ("workflow" in body or len(ids) > MAX_LETTERS):
        findings.add("ambiguous", f"give at most {MAX_LETTERS:,} ids, or a workflow", ("ids",))
    workflow = field.text("workflow", NAME, "the name of a workflow") if "workflow" in body else None
    refuse(findings)
    return ids, workflow


async def read_retry(request: Request) -> list[str]:
    """The nodes to run again although they are complete."""
    body = await read_fields(request, "from")
    findings = Findings()
    nodes = Fields(body, (), findings, names=("from",), what="the body").take("from", list, "a list of nodes") or []
    for position, each in enumerate(nodes):
        if not isinstance(each, str):
            message = f"from[{position}] must be the id of a node, not {kind_of(each)}"
            findings.add("wrong_type", message, ("from", position))
    refuse(findings)
    return nodes


async def _read(request: Request, most_bytes: int, *, default: bytes = b"") -> tuple[bytes, Document]:
    data = await read_body(request, most_bytes) or default
    is_yaml = (header(request.scope, b"content-type") or "").partition(";")[0].strip().lower().endswith("yaml")
    return data, await _beside(parts(request), len(data), partial(_document, data, is_yaml=is_yaml))


async def _validated(request: Request, document: Document, size: int, loc: tuple[str, ...] = ()) -> Definition:
    """The definition at `loc`. A body that is large is checked where it was read."""
    here = parts(request)
    handlers = await here.specs.known()
    return await _beside(here, size, partial(_validate, document, loc, handlers, here.settings.max_nodes))


def _idempotency_key(request: Request) -> str | None:
    key = header(request.scope, b"idempotency-key")
    if key is None or (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        return key
    message = f"must be 1 to {MAX_KEY_CHARS} printable ASCII characters"
    raise Refused("invalid_request", problems=[Problem("bad_header", message, ("header", "Idempotency-Key"))])


async def _beside(here: Parts, size: int, work: Callable[[], Result]) -> Result:
    if size < LARGE_BYTES:
        return work()
    async with here.large_bodies:
        return await asyncio.to_thread(work)


# The rest needs no event loop


def _document(data: bytes, *, is_yaml: bool) -> Document:
    if not data.strip():
        raise Refused("malformed_body", "the body is empty")
    if data.count(b",") + data.count(b"{") + data.count(b"[") > MAX_VALUES:
        raise Refused("too_large", f"the body has more than {MAX_VALUES:,} values")
    try:
        return load(data.decode(), source_name="body.yaml" if is_yaml else "body.json")
    except UnicodeDecodeError:
        raise Refused("malformed_body", "the body is not UTF-8 text") from None
    except InvalidDefinition as error:
        code = "too_large" if error.problems[0].code == "too_large" else "malformed_body"
        raise Refused(code, str(error.problems[0]), problems=error.problems) from None


def _validate(document: Document, loc: tuple[str, ...], handlers: Handlers, max_nodes: int) -> Definition:
    value = document.data[loc[0]] if loc else document.data
    try:
        return validate(value, handlers=handlers, max_nodes=max_nodes)
    except InvalidDefinition as error:
        problems = [replace(problem, loc=(*loc, *problem.loc)) for problem in error.problems]
        is_yaml = document.source_name.endswith("yaml")  # lines help whoever writes by hand
        raise InvalidDefinition(document.located(problems) if is_yaml else problems) from None


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    """What most bodies are, for msgspec to check at once; of any other, `_start` says what it is or what is wrong."""

    workflow: Annotated[str, msgspec.Meta(pattern=rf"\A{NAME.pattern}\Z")]
    input_params: dict[str, Any] = {}


def _start(body: Any) -> Start:
    """All but the definition."""
    try:
        named = msgspec.convert(body, _Named)
        return Start(None, named.workflow, None, named.input_params)
    except msgspec.ValidationError:
        pass
    findings = Findings()
    field = Fields(body, (), findings, names=("workflow", "version", "definition", "input_params"), what="the body")
    has_definition = isinstance(body, dict) and "definition" in body
    if has_definition and body.keys() & {"workflow", "version"}:
        findings.add("ambiguous", "give either a definition, or a workflow and its version", ("definition",))
    workflow = "" if has_definition else field.text("workflow", NAME, "the name of a workflow")
    version = field.number("version", least=1, most=MAX_VERSION, whole=True)
    input_params = field.take("input_params", dict, "a mapping") or {}
    refuse(findings)
    return Start(None, workflow, None if version is None else int(version), input_params)


def refuse(findings: Findings) -> None:
    if problems := findings.all():
        raise Refused("invalid_request", counted(problems), problems=problems)
