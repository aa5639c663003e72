"""A definition made ready to run: what an orchestrator keeps for as long as executions of it are alive.

Building a plan costs one pass over the graph. Templates are compiled when their node is first asked for, and the same
source is compiled once, so that a definition of 100,000 nodes costs only what is really run. A plan never changes what
it is given: rendered configs share unchanged parts with the definition, and nobody may write into either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from headrace.errors import BadValue, TemplateError, TemplateLimit
from headrace.model import payload, template
from headrace.model.definition import Definition
from headrace.model.findings import Loc
from headrace.model.graph import Graph
from headrace.model.messages import SecretText
from headrace.model.payload import dotted
from headrace.model.template.syntax import has_syntax

MAX_RENDERED_BYTES: Final = 4 * 1024 * 1024
LIGHT_CHARACTERS: Final = 8 * 1024
NUMBERS: Final = (int, float, bool, type(None))  # a template's numbers are within 64 bits and finite
NUMBER_BYTES: Final = 24
INPUT: Final = "input"
OUTPUT: Final = "output"

_Make = Callable[["_Rendering"], Any]


def template_strings(value: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """The strings with template syntax among the values, not the keys, of a config, and where they are."""
    if isinstance(value, str):
        if has_syntax(value):
            yield loc, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from template_strings(item, (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from template_strings(item, (*loc, index))


class Rendered(msgspec.Struct, frozen=True):
    """A node's config, fully materialised but for the secrets: it shows them as references, and says where they are."""

    config: dict[str, Any]
    secrets: tuple[SecretText, ...] = ()


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a node's templates read, and how its config is made; without templates it stands for itself."""

    needs: tuple[str, ...]
    needs_input: bool
    make: _Make | None

    @property
    def templated(self) -> bool:
        return self.make is not None


class Plan:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.graph = Graph(definition)
        self.output_nodes: tuple[int, ...] = self._output_nodes()
        self._templates: dict[str, template.Template] = {}
        self._reads: list[_Reads | None] = [None] * len(definition.nodes)
        self._light: dict[int, bool] = {}

    def needs(self, node: int) -> tuple[str, ...]:
        """The ids of the nodes whose outputs this node's config reads."""
        return self._reads_of(node).needs

    def needs_input(self, node: int) -> bool:
        """Whether this node's config reads input_params."""
        return self._reads_of(node).needs_input

    def is_templated(self, node: int) -> bool:
        return self._reads_of(node).templated

    def is_light(self, node: int) -> bool:
        """Whether its templates are short and without statements, such as loops: neither compiling nor rendering them
        takes long, if what they read is small. Asking compiles nothing."""
        known = self._light.get(node)
        if known is None:
            sources = [source for _, source in template_strings(self.definition.nodes[node].config)]
            short = sum(map(len, sources)) <= LIGHT_CHARACTERS
            known = self._light[node] = short and not any("{%" in source for source in sources)
        return known

    def render(self, node: int, outputs: Mapping[str, Any], input_params: dict[str, Any]) -> Rendered:
        """The node's config with every template replaced by its value. `outputs` has those that `needs` names."""
        it = self.definition.nodes[node]
        if it.handler == INPUT:
            return Rendered(input_params)
        reads = self._reads[node] or self._reads_of(node)
        make = reads.make
        if make is None:
            return Rendered(it.config)
        context = {**outputs, INPUT: input_params} if reads.needs_input else outputs
        rendering = _Rendering(it.id, context)
        return Rendered(make(rendering), tuple(rendering.secrets))

    def output(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """The output of an execution, from those outputs of its `output_nodes` that there are."""
        nodes = [self.definition.nodes[i] for i in self.output_nodes]
        present = [node for node in nodes if node.id in outputs]
        if nodes and nodes[0].handler != OUTPUT:
            return {node.id: outputs[node.id] for node in present}
        merged: dict[str, Any] = {}
        for node in present:
            merged.update(outputs[node.id])
        return merged

    def _output_nodes(self) -> tuple[int, ...]:
        nodes = self.definition.nodes
        named = tuple(i for i, node in enumerate(nodes) if node.handler == OUTPUT)
        return named or tuple(i for i, children in enumerate(self.graph.children) if not children)

    def _reads_of(self, node: int) -> _Reads:
        known = self._reads[node]
        if known is None:
            known = self._reads[node] = self._find_reads(node)
        return known

    def _find_reads(self, node: int) -> _Reads:
        it = self.definition.nodes[node]
        if it.handler == INPUT:
            return _Reads((), needs_input=True, make=None)
        roots: set[str] = set()
        for loc, source in template_strings(it.config, ("config",)):
            roots |= self._template(source, it.id, loc).roots
        index = self.graph.index
        return _Reads(
            tuple(sorted(roots & index.keys())),
            INPUT in roots and INPUT not in index,
            self._maker(it.config, ("config",)),
        )

    def _maker(self, value: Any, loc: Loc) -> _Make | None:
        """How a part of a config is made; None, if nothing in it is a template."""
        if isinstance(value, str):
            return partial(_rendered, self._templates[value], loc) if has_syntax(value) else None
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        made = [(key, make) for key, item in items if (make := self._maker(item, (*loc, key))) is not None]
        return partial(_changed, value, made) if made else None

    def _template(self, source: str, node_id: str, loc: Loc) -> template.Template:
        known = self._templates.get(source)
        if known is None:
            try:
                known = self._templates[source] = template.compile(source)
            except TemplateError as error:
                raise type(error)(f"node {node_id}, {dotted(loc)}: {error}") from None
        return known


def _changed(value: Any, made: Sequence[tuple[Any, _Make]], rendering: _Rendering) -> Any:
    """The object or list, with what is made in it."""
    value = value.copy()
    for key, make in made:
        value[key] = make(rendering)
    return value


class _Rendering(msgspec.Struct):
    """One rendering of one config, with what is left of its size."""

    node_id: str
    context: Mapping[str, Any]
    left: int = MAX_RENDERED_BYTES
    secrets: list[SecretText] = []  # each has its own

    def where(self, loc: Loc) -> str:
        return f"node {self.node_id}, {dotted(loc)}"


def _rendered(source: template.Template, loc: Loc, rendering: _Rendering) -> Any:
    try:
        value = source.render(rendering.context)
        if type(value) is template.Sealed:
            rendering.secrets.append(SecretText(loc[1:], value.pieces))
            value = value.shown
        rendering.left -= NUMBER_BYTES if type(value) in NUMBERS else len(payload.encode(value, max_bytes=1 << 40))
    except TemplateError as error:
        raise type(error)(f"{rendering.where(loc)}: {error}") from None
    except BadValue as error:
        raise TemplateError(
            f"{rendering.where(loc)}: {error}, in the template {template.shortened(source.source)}"
        ) from None
    if rendering.left < 0:
        raise TemplateLimit(
            f"{rendering.where(loc)}: the rendered config is larger than {MAX_RENDERED_BYTES:,} bytes, "
            f"at the template {template.shortened(source.source)}"
        )
    return value
