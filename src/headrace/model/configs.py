"""The handlers that nodes name, and the configs that they give them, as far as both are known before a run.

A config may have templates in it, so only that is an error which no value of theirs could mend. The part of `validate`
that depends on what is installed; everything else about a definition can be checked without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from headrace.model.definition import Definition, Node, schema_complaint, validator
from headrace.model.fields import kind_of
from headrace.model.findings import Findings, Loc
from headrace.model.payload import dotted, shown
from headrace.model.plan import INPUT, template_strings

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """What validation knows of a handler."""

    name: str
    config_schema: dict[str, Any] | None = None


def check_handlers(definition: Definition, handlers: Mapping[str, HandlerSpec], findings: Findings) -> None:
    """Unknown handlers, and configs that their handler would refuse, whatever the templates in them give."""
    known = _listed(handlers)
    compiled: dict[str, Validator | None] = {}
    for position, node in enumerate(definition.nodes):
        loc: Loc = ("nodes", position)
        if node.handler == "":
            continue
        if node.handler not in handlers:
            hint = findings.did_you_mean(node.handler, handlers) or f": known are {known}"
            message = f"there is no handler {shown(node.handler)}{hint}"
            findings.add("unknown_handler", message, (*loc, "handler"), node.id or None)
            continue
        spec = handlers[node.handler]
        if node.handler not in compiled:
            compiled[node.handler] = _handler_validator(spec, findings)
        check = compiled[node.handler]
        if check is not None and node.handler != INPUT and not check.is_valid(node.config):
            _check_config(check, spec, (*loc, "config"), node, findings)


def _listed(handlers: Mapping[str, HandlerSpec]) -> str:
    names = sorted(handlers)
    return ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")


def _handler_validator(spec: HandlerSpec, findings: Findings) -> Validator | None:
    if spec.config_schema is None:
        return None
    if complaint := schema_complaint(spec.config_schema):
        findings.add("bad_handler_schema", f"the config schema of handler {spec.name} is broken: {complaint}")
        return None
    return validator(spec.config_schema)


def _check_config(check: Validator, spec: HandlerSpec, loc: Loc, node: Node, findings: Findings) -> None:
    wild = _Wildcards(node.config)
    for error in chain.from_iterable(map(_inner, check.iter_errors(node.config))):
        if not wild.is_definite(error):
            continue
        where = (*loc, *error.instance_path)
        for step, message in _messages(error, spec, findings):
            findings.add("bad_config", f"{dotted(where[2:])}: {message}", (*where, *step), node.id or None)


def _inner(error: ValidationError) -> Iterator[ValidationError]:
    """The errors to speak of: of an object that may also be absent, those within the object."""
    if error.kind.name == "anyOf":
        branches: list[list[ValidationError]] = error.kind.as_dict()["context"]
        fitting = [branch for branch in branches if not any(_is_type_of(error, each) for each in branch)]
        if len(fitting) == 1:
            yield from chain.from_iterable(map(_inner, fitting[0]))
            return
    yield error


def _is_type_of(whole: ValidationError, error: ValidationError) -> bool:
    return error.kind.name == "type" and error.instance_path == whole.instance_path


def _messages(error: ValidationError, spec: HandlerSpec, findings: Findings) -> Iterator[tuple[Loc, str]]:
    """What to say about an error, and the further step of its path, if any."""
    kind = error.kind.as_dict()
    if error.kind.name == "additionalProperties":
        known = _fields_beside(error, spec)
        for name in kind["unexpected"]:
            what = "there is" if error.instance_path else f"{spec.name} has"
            yield (name,), f"{what} no field {shown(name)}{findings.did_you_mean(name, known)}"
    elif error.kind.name == "required":
        yield (), f"the field {shown(kind['property'])} is missing"
    elif error.kind.name == "falseSchema":
        yield (), "nothing is allowed here"
    elif error.kind.name == "anyOf" and (types := _expected_types(kind["context"])):
        yield (), f"must be of type {' or '.join(types)}, not {kind_of(error.instance)}"
    elif error.kind.name == "type":
        yield (), f"must be of type {' or '.join(kind['types'])}, not {kind_of(error.instance)}"
    elif error.kind.name == "anyOf" or "OneOfNotValid" in type(error.kind).__name__:
        yield (), "it fits none of the forms that are allowed here"
    else:
        yield (), shown(error.message, 300)


def _fields_beside(error: ValidationError, spec: HandlerSpec) -> Mapping[str, Any]:
    """The fields of the object in which there is one too many."""
    schema: Any = spec.config_schema
    try:
        for step in error.schema_path[:-1]:
            schema = schema[step]
        return dict(schema["properties"])
    except (LookupError, TypeError):  # a schema with identifiers of its own, or without fields
        return {}


def _expected_types(branches: list[list[ValidationError]]) -> list[str]:
    """The types of a union that fails by type alone, such as an optional number; else nothing."""
    if any(len(branch) != 1 or branch[0].kind.name != "type" for branch in branches):
        return []
    return [name for branch in branches for name in branch[0].kind.as_dict()["types"]]


_WHATEVER_IS_INSIDE: Final = frozenset(
    {"type", "required", "additionalProperties", "propertyNames", "falseSchema"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)


class _Wildcards:
    """The places in a config whose values are known only when it is rendered."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._places = {loc for loc, _ in template_strings(config)}
        self._around = {loc[:length] for loc in self._places for length in range(len(loc))}

    def is_definite(self, error: ValidationError) -> bool:
        """Whether the error stays, whatever the templates give."""
        loc = tuple(error.instance_path)
        if loc in self._places or (self._places and not {"then", "else"}.isdisjoint(error.evaluation_path)):
            return False
        if error.kind.name == "anyOf" or "OneOfNotValid" in type(error.kind).__name__:
            branches: list[list[ValidationError]] = error.kind.as_dict()["context"]
            return all(any(map(self.is_definite, branch)) for branch in branches)
        if loc not in self._around or error.kind.name in _WHATEVER_IS_INSIDE:
            return True
        options = error.kind.as_dict()
        return error.kind.name in ("enum", "const") and only_scalars(
            options.get("options") or [options.get("expected_value")]
        )


def only_scalars(options: Iterable[Any]) -> bool:
    """Whether no list or mapping is among the values that are allowed."""
    return not any(isinstance(option, list | dict) for option in options)
