"""What a user submits: a workflow definition as frozen values, its text and its hash.

Everything behind the front door works on a `Definition`; `parse` alone makes one from an untrusted document, and says
everything that is wrong with it at once. Its text is what is stored and read back by orchestrators, in the order in
which the user wrote it, so that outputs have that order too. The same content always has the same hash, whatever the
order of keys.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from headrace.errors import InvalidDefinition
from headrace.model.fields import Fields, kind_of
from headrace.model.findings import Findings, Loc
from headrace.model.payload import dotted, shown

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


MAX_NODES = 100_000
MAX_SECONDS = 10 * 366 * 86_400.0
MAX_RETRIES = 1_000_000
MAX_SCHEMA_CHARS = 65_536
MAX_CHARS_COMPARED = 2_000_000  # of a schema times a value
RESERVED_IDS = frozenset({"secret"})

SCHEMA_KEY = "$schema"  # for editors; it says nothing about the workflow and is not kept

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
NODE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
HANDLER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class RetryConfig(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often and when a failed attempt is repeated. None means: as the settings say."""

    max_retries: int | None = None
    initial_delay: float | None = None
    max_delay: float | None = None
    exponential_base: float | None = None
    jitter: bool | None = None

    def over(self, defaults: RetryConfig) -> RetryConfig:
        """This policy, with the fields that it leaves open taken from `defaults`."""
        return RetryConfig(
            max_retries=defaults.max_retries if self.max_retries is None else self.max_retries,
            initial_delay=defaults.initial_delay if self.initial_delay is None else self.initial_delay,
            max_delay=defaults.max_delay if self.max_delay is None else self.max_delay,
            exponential_base=defaults.exponential_base if self.exponential_base is None else self.exponential_base,
            jitter=defaults.jitter if self.jitter is None else self.jitter,
        )


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    handler: str
    dependencies: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    timeout_seconds: float | None = None
    retry_config: RetryConfig | None = None
    description: str = ""


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    name: str
    nodes: tuple[Node, ...]
    description: str = ""
    inputs: dict[str, Any] = {}
    on_failure: Literal["fail_fast", "continue"] = "fail_fast"
    timeout_seconds: float | None = None

    def to_json(self) -> str:
        """The text that is stored and read back: as the user wrote it, in that order, defaults left out."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Definition:
        """Decode text that `to_json` gave. It is trusted: nothing beyond the types is checked."""
        return _decoder.decode(text)

    @property
    def content_hash(self) -> str:
        """A short name for this content, the same for every order of keys (that of nodes and dependencies counts)."""
        known = self.__dict__.get("content_hash_")
        if known is None:
            known = self.__dict__["content_hash_"] = hashlib.sha256(_sorted.encode(self)).hexdigest()[:32]
        return str(known)


_sorted = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Definition)


def parse(document: object, *, max_nodes: int = MAX_NODES) -> Definition:
    """The definition in an untrusted, already decoded document, or InvalidDefinition with all of its problems.

    The structure alone is checked: names, types, ranges, JSON. Dependencies, templates and handlers come later.
    """
    findings = Findings()
    definition = examine(document, findings, max_nodes=max_nodes)
    if problems := findings.all():
        raise InvalidDefinition(problems)
    return definition


def examine(document: object, findings: Findings, *, max_nodes: int = MAX_NODES) -> Definition:
    """As much of a definition as the document gives; what is wrong goes into `findings` and reads as absent.

    Node i of the answer is node i of the document, so that later checks can go on; an unusable id or handler is "".
    """
    if document is None:
        findings.add("empty", "there is nothing in it: a definition has a name and nodes")
        return Definition("", ())
    names = (*Definition.__struct_fields__, SCHEMA_KEY)
    field = Fields(document, (), findings, names=names, what="the definition")
    field.text(SCHEMA_KEY)
    expected = "lower-case letters, digits, - and _, at most 64, beginning with a letter or digit"
    return Definition(
        name=field.text("name", NAME, expected),
        nodes=_nodes(field, findings, max_nodes),
        description=field.text("description"),
        inputs=_inputs(field, findings),
        on_failure=field.choice("on_failure"),
        timeout_seconds=field.number("timeout_seconds", above=0.0, most=MAX_SECONDS),
    )


def _nodes(field: Fields, findings: Findings, max_nodes: int) -> tuple[Node, ...]:
    items = field.take("nodes", list, "a list (each node begins with - id:)", required=True)
    if items is None:
        return ()
    if not items:
        findings.add("no_nodes", "nodes is empty: a workflow needs at least one node", ("nodes",))
    if len(items) > max_nodes:
        message = f"there are {len(items):,} nodes, and at most {max_nodes:,} are allowed"
        findings.add("too_many_nodes", message, ("nodes",))
        return ()
    return tuple(_node(item, ("nodes", position), findings) for position, item in enumerate(items))


def _node(item: object, loc: Loc, findings: Findings) -> Node:
    field = Fields(item, loc, findings, names=Node.__struct_fields__, what="a node")
    node_id = field.text("id", NODE_ID, "letters, digits and _, at most 64, not beginning with a digit")
    if node_id in RESERVED_IDS:
        findings.add("reserved_id", f"the id {node_id} is reserved for templates", (*loc, "id"), node_id)
    field.node = node_id or None
    config = field.take("config", dict, "a mapping")
    return Node(
        id=node_id,
        handler=field.text(
            "handler", HANDLER_NAME, "letters, digits, _, . and -, at most 64, beginning with a letter or _"
        ),
        dependencies=_dependencies(field, findings),
        config=config if config and findings.add_flaws(config, (*loc, "config"), field.node) else {},
        timeout_seconds=field.number("timeout_seconds", above=0.0, most=MAX_SECONDS),
        retry_config=_retry(field, findings),
        description=field.text("description"),
    )


def _dependencies(field: Fields, findings: Findings) -> tuple[str, ...]:
    known: dict[str, None] = {}
    for position, item in enumerate(field.take("dependencies", list, "a list of node ids") or ()):
        loc = (*field.loc, "dependencies", position)
        if type(item) is not str:
            place = dotted(loc[2:] if field.node else loc)
            findings.add("wrong_type", f"{place} must be a node id, not {kind_of(item)}", loc, field.node)
        elif item in known:
            findings.add("duplicate_dependency", f"{shown(item)} is in dependencies twice", loc, field.node)
        else:
            known[item] = None
    return tuple(known)


def _retry(field: Fields, findings: Findings) -> RetryConfig | None:
    value = field.take("retry_config", dict, "a mapping")
    if value is None:
        return None
    loc = (*field.loc, "retry_config")
    inner = Fields(value, loc, findings, names=RetryConfig.__struct_fields__, what="retry_config", node=field.node)
    retries = inner.number("max_retries", least=0.0, most=MAX_RETRIES, whole=True)
    return RetryConfig(
        max_retries=None if retries is None else int(retries),
        initial_delay=inner.number("initial_delay", least=0.0, most=MAX_SECONDS),
        max_delay=inner.number("max_delay", least=0.0, most=MAX_SECONDS),
        exponential_base=inner.number("exponential_base", least=1.0, most=1e6),
        jitter=inner.take("jitter", bool, "true or false"),
    )


def _inputs(field: Fields, findings: Findings) -> dict[str, Any]:
    value = field.take("inputs", dict, "a mapping of input names to JSON Schemas") or {}
    if not findings.add_flaws(value, ("inputs",)):
        return {}
    for name, schema in value.items():
        loc = ("inputs", name)
        complaint = _hostile(schema) or schema_complaint(schema)
        if complaint:
            findings.add("bad_schema", f"{dotted(loc)} is not a usable JSON Schema: {complaint}", loc)
        elif isinstance(schema, dict) and "default" in schema:
            for error in islice(misfits(schema, schema["default"]), 1):
                message = f"the default of {dotted(loc)} does not fit: {shown(error.message, 300)}"
                findings.add("bad_default", message, (*loc, "default"))
    return value


_SLOW_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"})


def _hostile(schema: object) -> str | None:
    """Refuse what makes checking exponential: references and unevaluated* (the latter even while it is compiled)."""
    if not isinstance(schema, dict | bool):
        return f"it must be a mapping or a boolean, not {kind_of(schema)}"
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_CHARS:
        return f"it is longer than {MAX_SCHEMA_CHARS:,} characters"
    stack: list[object] = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if slow := _SLOW_KEYWORDS.intersection(value):
                return f"{min(slow)} may not be used here"
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return None


def validator(schema: dict[str, Any] | bool) -> Validator:
    """The compiled schema: draft 2020-12, nothing fetched, patterns in linear time. Raises ValueError."""
    return _compiled(msgspec.json.encode(schema, order="sorted"))


def misfits(schema: dict[str, Any] | bool, value: object) -> Iterator[ValidationError]:
    """What does not fit; only the first of it where looking for all could take long (unions are tried branch by branch,
    item by item)."""
    check = validator(schema)
    if len(msgspec.json.encode(schema)) * len(msgspec.json.encode(value)) < MAX_CHARS_COMPARED:
        yield from check.iter_errors(value)
        return
    try:
        check.validate(value)
    except ValueError as error:
        yield cast("ValidationError", error)


def schema_complaint(schema: dict[str, Any] | bool) -> str | None:
    try:
        validator(schema)
    except ValueError as error:
        return shown(getattr(error, "message", str(error)), 300)
    return None


@lru_cache(maxsize=256)
def _compiled(schema: bytes) -> Validator:
    import jsonschema_rs

    def refuse(uri: str) -> Any:
        raise ValueError("schemas are not fetched from elsewhere")

    limits = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    return jsonschema_rs.Draft202012Validator(msgspec.json.decode(schema), retriever=refuse, pattern_options=limits)
