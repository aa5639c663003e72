"""All that can be known about a definition before it runs, in one answer.

`validate` stands between a user's document and the store: structure, graph, templates, the names they use, handlers and
their configs. It finds every problem at once, executes nothing, and its time is bounded for hostile documents. A
problem is only reported when no rendering of the templates could make it vanish. `check_input` is its counterpart at
the trigger.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from headrace.errors import InvalidDefinition, InvalidInput, TemplateError
from headrace.model import graph as graphs
from headrace.model import template
from headrace.model.configs import HandlerSpec, check_handlers
from headrace.model.definition import MAX_NODES, Definition, Node, examine, misfits
from headrace.model.findings import Findings, Loc
from headrace.model.payload import dotted, shown
from headrace.model.plan import INPUT, MAX_RENDERED_BYTES, template_strings
from headrace.model.template.syntax import has_syntax

References = frozenset[tuple[str, ...]]


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
        check_handlers(definition, handlers, findings)
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
            for error in misfits(schema, given[name]):
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
                words = str(found) if "\n" in source else str(found).removeprefix("line 1: ")
                findings.add(found.code, f"{dotted(loc[2:])}: {words}", loc, node.id or None)
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
        findings.add("not_ancestor", message, loc, node.id or None, part=name)


_SIMPLE: Final = re.compile(r"\{\{ ?([A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*) ?\}\}")
_KEYWORDS: Final = frozenset(
    {"and", "else", "if", "in", "is", "not", "or", "recursive", "loop", "self"}
    | {"true", "false", "none", "True", "False", "None", "secret"}
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
    hint = findings.did_you_mean(root, chain((INPUT, "secret"), graph.index))
    message = f"{dotted(loc[2:])}: there is no node {shown(root)} to read from{hint}"
    findings.add("unknown_name", message, loc, node.id or None, part=root)


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
            findings.add("unknown_input", message, loc, node.id or None, part=f"{INPUT}.{path[1]}")


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
