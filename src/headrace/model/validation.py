"""All that can be known about a definition before it runs, in one answer.

`validate` stands between a user's document and the store: structure, graph, templates, the names they use, handlers and
their configs. It finds every problem at once, executes nothing, and its time is bounded for hostile documents. A
problem is only reported when no rendering of the templates could make it vanish. `check_input` is its counterpart at
the trigger.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace.errors import InvalidDefinition, InvalidInput, TemplateError
from headrace.model import graph as graphs
from headrace.model import template
from headrace.model.definition import (
    MAX_NODES,
    Definition,
    Findings,
    Loc,
    Node,
    examine,
    schema_complaint,
    validator,
)
from headrace.model.payload import dotted, shown
from headrace.model.plan import INPUT, MAX_RENDERED_BYTES, template_strings
from headrace.model.template.syntax import has_syntax

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

References = frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """What validation knows of a handler."""

    name: str
    config_schema: dict[str, Any] | None = None


def validate(document: object, *, handlers: Mapping[str, HandlerSpec] | None, max_nodes: int = MAX_NODES) -> Definition:
    """The definition in a decoded document, or InvalidDefinition with everything that is wrong with it.

    Without `handlers`, nothing is said about handlers and their configs.
    """
    findings = Findings()
    definition = examine(document, findings, max_nodes=max_nodes)
    findings.extend(graphs.problems(definition))
    _check_templates(definition, findings)
    _check_sizes(definition, findings)
    if handlers is not None:
        _check_handlers(definition, handlers, findings)
    if problems := findings.all():
        raise InvalidDefinition(problems)
    return definition


def check_input(definition: Definition, input_params: object) -> dict[str, Any]:
    """The input_params with defaults filled in, or InvalidInput with everything that does not fit `inputs`."""
    findings = Findings()
    given = {} if input_params is None else input_params
    if not isinstance(given, dict):
        findings.add("wrong_type", "input_params must be a mapping")
        given = {}
    findings.add_flaws(given, ())
    if findings.all():
        raise InvalidInput(findings.all())
    filled = dict(given)
    for name in definition.inputs and [name for name in given if name not in definition.inputs]:
        message = f"there is no input {shown(name)}{findings.did_you_mean(name, definition.inputs)}"
        findings.add("unknown_input", message, (name,))
    for name, schema in definition.inputs.items():
        if name in given:
            for error in validator(schema).iter_errors(given[name]):
                loc = (name, *error.instance_path)
                findings.add("bad_input", f"{dotted(loc)}: {shown(error.message, 300)}", loc)
        elif isinstance(schema, dict) and "default" in schema:
            filled[name] = copy.deepcopy(schema["default"])
        else:
            findings.add("missing_input", f"the input {shown(name)} is missing", (name,))
    if problems := findings.all():
        raise InvalidInput(problems)
    return filled


# Templates and the names in them


def _check_templates(definition: Definition, findings: Findings) -> None:
    graph = graphs.Graph(definition)
    known: dict[str, References | TemplateError] = {}
    ancestry: dict[tuple[int, int], Loc] = {}
    for position, node in enumerate(definition.nodes):
        for loc, source in template_strings(node.config, ("nodes", position, "config")):
            found = known.get(source)
            if found is None:
                found = known[source] = references(source)
            if isinstance(found, TemplateError):
                findings.add(found.code, f"{dotted(loc[2:])}: {found}", loc, node.id or None)
                continue
            _check_inputs_read(definition, graph, found, source, (loc, node, findings))
            for root in sorted({path[0] for path in found}):
                if root in graph.index:
                    ancestry.setdefault((position, graph.index[root]), loc)
                elif root != INPUT:
                    _unknown_root(root, graph, (loc, node, findings))
    for position, other in sorted(graph.not_ancestors(ancestry)):
        node, name, loc = definition.nodes[position], definition.nodes[other].id, ancestry[position, other]
        message = f"{dotted(loc[2:])}: {name} is not an ancestor of {node.id}: add it to its dependencies"
        if name == node.id:
            message = f"{dotted(loc[2:])}: a node cannot read its own output"
        findings.add("not_ancestor", message, loc, node.id or None)


_SIMPLE: Final = re.compile(r"\{\{ ?([A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*) ?\}\}")
_KEYWORDS: Final = frozenset(
    {"and", "else", "if", "in", "is", "not", "or", "recursive", "loop", "self"}
    | {"true", "false", "none", "True", "False", "None"}
)


def references(source: str) -> References | TemplateError:
    """What a template reads, or why it does not compile. Plain paths, by far the most, are seen without compiling."""
    if len(source) < 1_000 and not has_syntax(rest := _SIMPLE.sub("", source)):
        paths = frozenset(tuple(path.split(".")) for path in _SIMPLE.findall(source))
        if "{" not in rest and "}" not in rest and all(_KEYWORDS.isdisjoint(path) for path in paths):
            return paths
    try:
        return template.compile(source).references
    except TemplateError as error:
        return error


Where = tuple[Loc, Node, Findings]


def _unknown_root(root: str, graph: graphs.Graph, where: Where) -> None:
    loc, node, findings = where
    if root == "secret":
        message = "secrets cannot be used in templates yet"
    else:
        hint = findings.did_you_mean(root, chain(graph.index, (INPUT,)))
        message = f"there is no node {shown(root)} to read from{hint}"
    findings.add("unknown_name", f"{dotted(loc[2:])}: {message}", loc, node.id or None)


_MAY_BE_MISSING: Final = re.compile(r"default|defined|\|\s*d\b|\bif\b|\bor\b|\band\b")


def _check_inputs_read(
    definition: Definition, graph: graphs.Graph, found: References, source: str, where: Where
) -> None:
    """`input.x` where no such input is declared, unless the template may be prepared for that."""
    if not definition.inputs or INPUT in graph.index or _MAY_BE_MISSING.search(source):
        return
    loc, node, findings = where
    for path in sorted(found):
        if path[0] == INPUT and len(path) > 1 and path[1] not in definition.inputs and path[1] != "output":
            hint = findings.did_you_mean(path[1], definition.inputs)
            message = f"{dotted(loc[2:])}: there is no input {shown(path[1])}{hint}"
            findings.add("unknown_input", message, loc, node.id or None)


# Handlers and their configs


def _check_sizes(definition: Definition, findings: Findings) -> None:
    for position, node in enumerate(definition.nodes):
        loc: Loc = ("nodes", position, "config")
        if not node.config:
            continue
        if node.handler == INPUT:
            message = "config must be empty: an input node gives the input_params on as they are"
            findings.add("input_config", message, loc, node.id or None)
        if len(msgspec.json.encode(node.config)) > MAX_RENDERED_BYTES:
            findings.add("too_large", f"config is larger than {MAX_RENDERED_BYTES:,} bytes", loc, node.id or None)


def _check_handlers(definition: Definition, handlers: Mapping[str, HandlerSpec], findings: Findings) -> None:
    compiled: dict[str, Validator | None] = {}
    for position, node in enumerate(definition.nodes):
        loc: Loc = ("nodes", position)
        if node.handler == "":
            continue
        if node.handler not in handlers:
            hint = findings.did_you_mean(node.handler, handlers)
            message = f"there is no handler {shown(node.handler)}{hint}"
            findings.add("unknown_handler", message, (*loc, "handler"), node.id or None)
            continue
        spec = handlers[node.handler]
        if node.handler not in compiled:
            compiled[node.handler] = _handler_validator(spec, findings)
        check = compiled[node.handler]
        if check is not None and node.handler != INPUT and not check.is_valid(node.config):
            _check_config(check, spec, (*loc, "config"), node, findings)


def _handler_validator(spec: HandlerSpec, findings: Findings) -> Validator | None:
    if spec.config_schema is None:
        return None
    if complaint := schema_complaint(spec.config_schema):
        findings.add("bad_handler_schema", f"the config schema of handler {spec.name} is broken: {complaint}")
        return None
    return validator(spec.config_schema)


def _check_config(check: Validator, spec: HandlerSpec, loc: Loc, node: Node, findings: Findings) -> None:
    wild = _Wildcards(node.config)
    for error in check.iter_errors(node.config):
        if not wild.is_definite(error):
            continue
        where = (*loc, *error.instance_path)
        for step, message in _messages(error, spec, findings):
            findings.add("bad_config", f"{dotted(where[2:])}: {message}", (*where, *step), node.id or None)


def _messages(error: ValidationError, spec: HandlerSpec, findings: Findings) -> Iterator[tuple[Loc, str]]:
    """What to say about an error, and the further step of its path, if any."""
    kind = error.kind.as_dict()
    if error.kind.name == "additionalProperties":
        known = (spec.config_schema or {}).get("properties", {}) if not error.instance_path else {}
        for name in kind["unexpected"]:
            yield (name,), f"{spec.name} has no field {shown(name)}{findings.did_you_mean(name, known)}"
    elif error.kind.name == "required":
        yield (), f"the field {shown(kind['property'])} is missing"
    elif error.kind.name == "falseSchema":
        yield (), "nothing is allowed here"
    elif error.kind.name == "anyOf" and (types := _expected_types(kind["context"])):
        yield (), f"must be of type {' or '.join(types)}"
    else:
        yield (), shown(error.message, 300)


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
        return loc not in self._around or error.kind.name in _WHATEVER_IS_INSIDE
