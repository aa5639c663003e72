"""Statements: if, for, set and with, as closures that write text into a list.

Each block pays for its closures when it is entered, so the count of steps costs one subtraction per block and loop
turn. Jinja's scoping holds: what a loop sets is gone after each turn, what an `if` sets stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import nodes

from headrace.errors import TemplateError, TemplateSyntaxError
from headrace.model.template.budget import ABSENT, Frame, describe, to_text
from headrace.model.template.expressions import ExpressionCompiler
from headrace.model.template.paths import Evaluate
from headrace.model.template.scope import Scope
from headrace.model.template.secrets import SECRET, Reference, referenced
from headrace.model.template.values import elements

Emit = Callable[[Frame, list[str]], None]
Store = Callable[[Frame, Any], None]


class StatementCompiler(ExpressionCompiler):
    """Compiles blocks of statements, in the order in which they will run."""

    def __init__(self) -> None:
        super().__init__()
        self.has_secrets = False
        self._captures = False  # inside {% set x %}...{% endset %}, whose text can be worked with

    def block(self, body: Sequence[nodes.Node]) -> Emit:
        outer_cost, self.cost = self.cost, 1
        statements: list[Emit] = []
        for node in body:
            self.cost += 1
            compile_node = _COMPILERS.get(type(node))
            if compile_node is None:
                name = type(node).__name__.lower()
                raise TemplateSyntaxError(f"line {node.lineno}: {name} is not available in templates")
            statements.extend(compile_node(self, node))
        cost, self.cost = self.cost, outer_cost

        def run(frame: Frame, out: list[str]) -> None:
            frame.spend(cost)
            for statement in statements:
                statement(frame, out)

        return run

    def _scoped_block(self, body: Sequence[nodes.Node], scope: Scope) -> Emit:
        """A block with a scope of its own, emptied on entry. Names set before are the caller's business."""
        given = set(scope.own_slots)
        outer, self.scope = self.scope, scope
        run = self.block(body)
        self.scope = outer
        fresh = [slot for slot in scope.own_slots if slot not in given]
        if not fresh:
            return run

        def enter(frame: Frame, out: list[str]) -> None:
            for slot in fresh:
                frame.slots[slot] = ABSENT
            run(frame, out)

        return enter

    def _output(self, node: nodes.Output) -> list[Emit]:
        return [self._part(part) for part in node.nodes]

    def _part(self, part: nodes.Node) -> Emit:
        if isinstance(part, nodes.TemplateData):
            return _data(part.data)
        name = referenced(part)
        if name is None or self._captures:
            return _text(self.expression(part))
        self.has_secrets = True
        return _data(Reference(name))

    def _if(self, node: nodes.If) -> list[Emit]:
        before = self.scope.sure_names()
        branches: list[tuple[Evaluate, Emit]] = []
        after: list[frozenset[str]] = []
        for branch in (node, *node.elif_):
            test = self.expression(branch.test)
            branches.append((test, self.block(branch.body)))
            after.append(self.scope.sure_names())
            self.scope.only_sure(before)
        otherwise = self.block(node.else_)
        after.append(self.scope.sure_names())
        self.scope.only_sure(frozenset.intersection(*after))

        def run(frame: Frame, out: list[str]) -> None:
            for test, body in branches:
                if test(frame):
                    return body(frame, out)
            return otherwise(frame, out)

        return [run]

    def _for(self, node: nodes.For) -> list[Emit]:
        if node.recursive:
            raise TemplateSyntaxError(f"line {node.lineno}: recursive loops are not available in templates")
        items_of = self.expression(node.iter)
        scope = Scope(self.scope)
        store = self._target(node.target, scope)
        keep = self._loop_filter(node.test, scope, store)
        loop_slot = scope.set("loop")
        body = self._scoped_block(node.body, scope)
        otherwise = self._scoped_block(node.else_, Scope(self.scope))

        def run(frame: Frame, out: list[str]) -> None:
            items = elements(frame, items_of(frame), "for")
            if keep is not None:
                items = keep(frame, items)
            if not items:
                return otherwise(frame, out)
            slots = frame.slots
            size = len(items)
            for index, item in enumerate(items):
                store(frame, item)
                slots[loop_slot] = _loop(index, size)
                body(frame, out)
            return None

        return [run]

    def _loop_filter(
        self, test: nodes.Node | None, scope: Scope, store: Store
    ) -> Callable[[Frame, list[Any]], list[Any]] | None:
        """`for x in list if test`: the loop sees only what passes, so loop.length is right."""
        if test is None:
            return None
        outer, self.scope = self.scope, scope
        outer_cost, self.cost = self.cost, 1
        passes = self.expression(test)
        cost, self.cost = self.cost, outer_cost
        self.scope = outer

        def keep(frame: Frame, items: list[Any]) -> list[Any]:
            frame.produce_list(len(items))
            kept = []
            for item in items:
                frame.spend(cost)
                store(frame, item)
                if passes(frame):
                    kept.append(item)
            return kept

        return keep

    def _set(self, node: nodes.Assign) -> list[Emit]:
        value = self.expression(node.node)
        store = self._target(node.target, self.scope)
        return [lambda frame, out: store(frame, value(frame))]

    def _set_block(self, node: nodes.AssignBlock) -> list[Emit]:
        outer, self._captures = self._captures, True
        body = self._scoped_block(node.body, Scope(self.scope))
        self._captures = outer

        def text(frame: Frame) -> str:
            parts: list[str] = []
            body(frame, parts)
            frame.produce(sum(map(len, parts)))
            return "".join(parts)

        value: Evaluate = text
        filters: list[nodes.Filter] = []
        node_filter: nodes.Expr | None = node.filter
        while isinstance(node_filter, nodes.Filter):
            filters.append(node_filter)
            node_filter = node_filter.node
        for item in reversed(filters):
            self.cost += 1
            value = self.filtered(item, value)
        store = self._target(node.target, self.scope)
        return [lambda frame, out: store(frame, value(frame))]

    def _with(self, node: nodes.With) -> list[Emit]:
        values = [self.expression(value) for value in node.values]
        scope = Scope(self.scope)
        stores = [self._target(target, scope) for target in node.targets]
        body = self._scoped_block(node.body, scope)

        def run(frame: Frame, out: list[str]) -> None:
            for store, value in zip(stores, [value(frame) for value in values], strict=True):
                store(frame, value)
            body(frame, out)

        return [run]

    def _target(self, node: nodes.Node, scope: Scope) -> Store:
        """What stores a value into a name, or a list's elements into as many names."""
        if isinstance(node, nodes.Name):
            if node.name == "loop":
                raise TemplateSyntaxError(f"line {node.lineno}: loop is the name of the loop itself")
            if node.name == SECRET:
                raise TemplateSyntaxError(f"line {node.lineno}: secret is the name of the worker's secrets")
            return _store(scope.set(node.name))
        if not isinstance(node, nodes.Tuple):
            raise TemplateSyntaxError(f"line {node.lineno}: only names can be set, such as {{% set x = 1 %}}")
        stores = [self._target(item, scope) for item in node.items]

        def unpack(frame: Frame, value: Any) -> None:
            if type(value) is not list or len(value) != len(stores):
                raise TemplateError(f"{len(stores)} names need a list of as many elements, not {describe(value)}")
            for store, item in zip(stores, value, strict=True):
                store(frame, item)

        return unpack


def _store(slot: int) -> Store:
    def store(frame: Frame, value: Any) -> None:
        frame.slots[slot] = value

    return store


def _loop(index: int, size: int) -> dict[str, Any]:
    return {
        "index": index + 1,
        "index0": index,
        "revindex": size - index,
        "revindex0": size - index - 1,
        "first": index == 0,
        "last": index == size - 1,
        "length": size,
    }


def _data(text: str) -> Emit:
    size = len(text)

    def emit(frame: Frame, out: list[str]) -> None:
        frame.produce(size)
        out.append(text)

    return emit


def _text(value: Evaluate) -> Emit:
    def emit(frame: Frame, out: list[str]) -> None:
        text = to_text(frame, value(frame))
        frame.produce(len(text))
        out.append(text)

    return emit


_COMPILERS: Final[dict[type[nodes.Node], Callable[[Any, Any], list[Emit]]]] = {
    nodes.Output: StatementCompiler._output,
    nodes.If: StatementCompiler._if,
    nodes.For: StatementCompiler._for,
    nodes.Assign: StatementCompiler._set,
    nodes.AssignBlock: StatementCompiler._set_block,
    nodes.With: StatementCompiler._with,
}
