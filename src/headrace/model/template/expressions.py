"""Expressions: from Jinja's syntax nodes to closures that evaluate them over a frame.

Each node is compiled once into a small function of a Frame, in the order in which the template will run. That order is
what makes references exact: when a name is compiled, the scope knows whether it has surely, perhaps or never been set.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import nodes

from headrace.errors import MissingValue, TemplateError, TemplateSyntaxError
from headrace.model.template import values
from headrace.model.template.budget import ABSENT, ELEMENT, Frame, describe, to_text
from headrace.model.template.collections import FILTERS
from headrace.model.template.paths import (
    Evaluate,
    attribute_reader,
    constant,
    presence,
    read_first_set,
    read_local,
    read_root,
    read_within,
    split_path,
)
from headrace.model.template.predicates import TESTS
from headrace.model.template.scope import Scope
from headrace.model.template.secrets import SECRET, refusal
from headrace.model.template.values import Key, elements, pick

_ARITHMETIC: Final[dict[type[nodes.Expr], tuple[str, Callable[[Any, Any], Any]]]] = {
    nodes.Sub: ("-", operator.sub),
    nodes.Mul: ("*", operator.mul),
    nodes.Div: ("/", operator.truediv),
    nodes.FloorDiv: ("//", operator.floordiv),
    nodes.Mod: ("%", operator.mod),
    nodes.Pow: ("**", values.power),
}
_LIST_FILTERS: Final = ("map", "select", "reject", "selectattr", "rejectattr")
_ESCAPES: Final = ("e", "escape", "forceescape", "safe")
_PRESENCE: Final = ("defined", "undefined")


class ExpressionCompiler:
    """Compiles expressions; collects references and counts closures on the way."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.references: set[tuple[str, ...]] = set()
        self.cost = 0

    def expression(self, node: nodes.Node) -> Evaluate:
        self.cost += 1
        kind = type(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(node)  # type: ignore[arg-type]
        compile_node = _COMPILERS.get(kind)
        if compile_node is None:
            raise TemplateSyntaxError(f"line {node.lineno}: {kind.__name__.lower()} is not available in templates")
        return compile_node(self, node)

    def _all(self, items: Sequence[nodes.Node]) -> list[Evaluate]:
        return [self.expression(item) for item in items]

    # Reading

    def _const(self, node: nodes.Const) -> Evaluate:
        return constant(node.value)

    def _path(self, node: nodes.Expr) -> Evaluate:
        base, keys = split_path(node)
        self.cost += len(keys)
        if isinstance(base, nodes.Name):
            if base.name == SECRET:
                raise TemplateSyntaxError(f"line {node.lineno}: {refusal(node)}")
            return self._name_path(base.name, keys)
        value = self._computed(base) if isinstance(base, nodes.Getitem) else self.expression(base)
        return read_within(value, keys) if keys else value

    def _name_path(self, name: str, keys: tuple[Key, ...]) -> Evaluate:
        slots, surely = self.scope.find(name)
        if surely and len(slots) == 1:
            local = read_local(slots[0])
            return read_within(local, keys, name) if keys else local
        if not surely:
            self.references.add((name, *map(str, keys)))
        root = read_root(name, keys)
        if not slots:
            return root
        locally = read_within(read_first_set(slots), keys, name)

        def read(frame: Frame) -> Any:
            is_set = any(frame.slots[slot] is not ABSENT for slot in slots)
            return locally(frame) if is_set else root(frame)

        return read

    def _computed(self, node: nodes.Getitem) -> Evaluate:
        value = self.expression(node.node)
        if isinstance(node.arg, nodes.Slice):
            bounds = [self.expression(part) if part else constant(None) for part in _slice_parts(node.arg)]
            return lambda frame: values.cut(frame, value(frame), *[bound(frame) for bound in bounds])
        if isinstance(node.arg, nodes.Tuple):
            raise TemplateSyntaxError(f"line {node.lineno}: give one index or key within [ ]")
        key_of = self.expression(node.arg)

        def read(frame: Frame) -> Any:
            container, key = value(frame), key_of(frame)
            found = pick(container, key)
            if found is ABSENT:
                shown = repr(key[:60]) if type(key) is str else to_text(frame, key)[:60]
                raise MissingValue(f"{describe(container)} has no element {shown}")
            return found

        return read

    # Literals

    def _list(self, node: nodes.List | nodes.Tuple) -> Evaluate:
        items = self._all(node.items)

        def build(frame: Frame) -> list[Any]:
            frame.produce(ELEMENT * len(items))
            return [item(frame) for item in items]

        return build

    def _dict(self, node: nodes.Dict) -> Evaluate:
        pairs = [(self.expression(pair.key), self.expression(pair.value)) for pair in node.items]

        def build(frame: Frame) -> dict[str, Any]:
            frame.produce(2 * ELEMENT * len(pairs))
            result = {}
            for key_of, value_of in pairs:
                key = key_of(frame)
                if type(key) is not str:
                    raise TemplateError(f"an object's key must be text, not {describe(key)}")
                result[key] = value_of(frame)
            return result

        return build

    # Operators

    def _arithmetic(self, node: nodes.BinExpr) -> Evaluate:
        symbol, operate = _ARITHMETIC[type(node)]
        left, right = self.expression(node.left), self.expression(node.right)
        return lambda frame: values.calculate(symbol, operate, left(frame), right(frame))

    def _add(self, node: nodes.Add) -> Evaluate:
        left, right = self.expression(node.left), self.expression(node.right)
        return lambda frame: values.add(frame, left(frame), right(frame))

    def _sign(self, node: nodes.UnaryExpr) -> Evaluate:
        value = self.expression(node.node)
        sign = -1 if isinstance(node, nodes.Neg) else 1
        return lambda frame: values.calculate("-" if sign < 0 else "+", operator.mul, value(frame), sign)

    def _concat(self, node: nodes.Concat) -> Evaluate:
        parts = self._all(node.nodes)
        return lambda frame: values.concatenate(frame, [part(frame) for part in parts])

    def _and(self, node: nodes.And) -> Evaluate:
        left, right = self.expression(node.left), self.expression(node.right)
        return lambda frame: left(frame) and right(frame)

    def _or(self, node: nodes.Or) -> Evaluate:
        left, right = self.expression(node.left), self.expression(node.right)
        return lambda frame: left(frame) or right(frame)

    def _not(self, node: nodes.Not) -> Evaluate:
        value = self.expression(node.node)
        return lambda frame: not value(frame)

    def _compare(self, node: nodes.Compare) -> Evaluate:
        first = self.expression(node.expr)
        rest = [(operand.op, self.expression(operand.expr)) for operand in node.ops]

        def compare(frame: Frame) -> bool:
            left = first(frame)
            for operation, right_of in rest:
                right = right_of(frame)
                if not values.compare(frame, operation, left, right):
                    return False
                left = right
            return True

        return compare

    def _condition(self, node: nodes.CondExpr) -> Evaluate:
        test, chosen = self.expression(node.test), self.expression(node.expr1)
        other = self.expression(node.expr2) if node.expr2 is not None else constant("")
        return lambda frame: chosen(frame) if test(frame) else other(frame)

    # Calls, tests and filters

    def _call(self, node: nodes.Call) -> Evaluate:
        if not (isinstance(node.node, nodes.Name) and node.node.name == "range"):
            raise TemplateSyntaxError(
                f"line {node.lineno}: only range(...) can be called in templates, no methods and no other functions; "
                "use a filter instead, such as {{ value | upper }}"
            )
        _refuse_stars(node)
        if node.kwargs or not 1 <= len(node.args) <= 3:
            raise TemplateSyntaxError(f"line {node.lineno}: range takes (stop), (start, stop) or (start, stop, step)")
        bounds = self._all(node.args)
        return lambda frame: values.count_up(frame, *[bound(frame) for bound in bounds])

    def _test(self, node: nodes.Test) -> Evaluate:
        value = self.expression(node.node)
        if node.name in _PRESENCE:
            _refuse_arguments(node)
            return presence(value, node.name == "defined")
        test = self._bound(TESTS, node.name, node.lineno, node, node.args)
        return lambda frame: test(frame, value(frame))

    def _filter(self, node: nodes.Filter) -> Evaluate:
        if node.node is None:
            raise TemplateSyntaxError(f"line {node.lineno}: the filter {node.name[:40]!r} has nothing to work on")
        return self.filtered(node, self.expression(node.node))

    def filtered(self, node: nodes.Filter, value: Evaluate) -> Evaluate:
        """A filter over a value that is compiled already."""
        if node.name in _LIST_FILTERS:
            return self._list_filter(node, value)
        call = self._bound(FILTERS, node.name, node.lineno, node, node.args)
        if node.name not in ("default", "d"):
            return lambda frame: call(frame, value(frame))

        def default(frame: Frame) -> Any:
            try:
                found = value(frame)
            except MissingValue:
                found = ABSENT
            return call(frame, found)

        return default

    def _bound(
        self, table: Any, name: str, line: int, node: nodes.Filter | nodes.Test, positional: Sequence[nodes.Expr]
    ) -> Callable[[Frame, Any], Any]:
        """A filter or test with its arguments, as a function of frame and value."""
        _refuse_stars(node)
        if name in _ESCAPES:
            raise TemplateSyntaxError(f"line {line}: there is no filter {name!r}, since templates never escape text")
        builtin = table.find(name, line, *(_LIST_FILTERS if table is FILTERS else _PRESENCE))
        call = builtin.call
        if not positional and not node.kwargs:
            table.bind(builtin, line, (), {})
            return call  # type: ignore[no-any-return]
        named = {pair.key: self.expression(pair.value) for pair in node.kwargs}
        bound = table.bind(builtin, line, self._all(positional), named)
        arguments: list[Evaluate] = [argument if given else constant(argument) for given, argument in bound]
        if len(arguments) == 1:
            argument = arguments[0]
            return lambda frame, value: call(frame, value, argument(frame))
        return lambda frame, value: call(frame, value, *[argument(frame) for argument in arguments])

    def _list_filter(self, node: nodes.Filter, value: Evaluate) -> Evaluate:
        """map, select, reject, selectattr and rejectattr: each applies something named to every element."""
        name, line = node.name, node.lineno
        if name == "map":
            apply = self._mapping(node)
        elif name in ("select", "reject"):
            apply = self._selection(node, node.args)
        else:
            if not node.args:
                raise TemplateSyntaxError(f"line {line}: {name} needs the name of an attribute")
            apply = self._attribute_selection(node)
        keep = not name.startswith("reject")

        def run(frame: Frame) -> list[Any]:
            items = elements(frame, value(frame), name)
            frame.spend(2 * len(items))
            frame.produce_list(len(items))
            each = apply(frame)
            if name == "map":
                return [each(item) for item in items]
            return [item for item in items if bool(each(item)) is keep]

        return run

    def _mapping(self, node: nodes.Filter) -> Callable[[Frame], Callable[[Any], Any]]:
        named: dict[str, nodes.Expr] = {pair.key: pair.value for pair in node.kwargs}  # type: ignore[misc]
        if not node.args:
            if "attribute" not in named or set(named) - {"attribute", "default"}:
                raise TemplateSyntaxError(
                    f"line {node.lineno}: map takes (attribute='name', default=...) or the name of a filter"
                )
            _refuse_stars(node)
            path_of = self.expression(named["attribute"])
            default = self.expression(named["default"]) if "default" in named else constant(ABSENT)
            return lambda frame: attribute_reader(path_of(frame), default(frame))
        call = self._bound(FILTERS, _literal(node, 0), node.lineno, node, node.args[1:])
        return lambda frame: lambda item: call(frame, item)

    def _selection(
        self, node: nodes.Filter, arguments: Sequence[nodes.Expr]
    ) -> Callable[[Frame], Callable[[Any], Any]]:
        if not arguments:
            _refuse_arguments(node, positional=False)
            return lambda frame: bool
        name = _literal(node, len(node.args) - len(arguments))
        if name in _PRESENCE:
            return lambda frame: lambda item: (item is not ABSENT) is (name == "defined")
        test = self._bound(TESTS, name, node.lineno, node, arguments[1:])
        return lambda frame: lambda item: test(frame, item)

    def _attribute_selection(self, node: nodes.Filter) -> Callable[[Frame], Callable[[Any], Any]]:
        path_of = self.expression(node.args[0])
        select = self._selection(node, node.args[1:])
        asks_presence = len(node.args) > 1 and _literal(node, 1) in _PRESENCE

        def prepare(frame: Frame) -> Callable[[Any], Any]:
            keys = values.parse_path(path_of(frame), node.name)
            read = values.follow if asks_presence else values.attribute
            test = select(frame)
            return lambda item: test(read(item, keys))

        return prepare


def _slice_parts(node: nodes.Slice) -> tuple[nodes.Expr | None, nodes.Expr | None, nodes.Expr | None]:
    return node.start, node.stop, node.step


def _literal(node: nodes.Filter, position: int) -> str:
    argument = node.args[position]
    if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
        return argument.value
    raise TemplateSyntaxError(f"line {node.lineno}: {node.name} needs the name of a filter or test as literal text")


def _refuse_stars(node: nodes.Call | nodes.Filter | nodes.Test) -> None:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise TemplateSyntaxError(f"line {node.lineno}: * and ** are not available in arguments")
    names = [pair.key for pair in node.kwargs]
    if len(names) != len(set(names)):
        raise TemplateSyntaxError(f"line {node.lineno}: an argument is given twice")


def _refuse_arguments(node: nodes.Filter | nodes.Test, *, positional: bool = True) -> None:
    _refuse_stars(node)
    if node.kwargs or (positional and node.args):
        raise TemplateSyntaxError(f"line {node.lineno}: {node.name} takes no such arguments")


_COMPILERS: Final[dict[type[nodes.Node], Callable[[Any, Any], Evaluate]]] = {
    nodes.Const: ExpressionCompiler._const,
    nodes.Name: ExpressionCompiler._path,
    nodes.Getattr: ExpressionCompiler._path,
    nodes.Getitem: ExpressionCompiler._path,
    nodes.List: ExpressionCompiler._list,
    nodes.Tuple: ExpressionCompiler._list,
    nodes.Dict: ExpressionCompiler._dict,
    nodes.Add: ExpressionCompiler._add,
    nodes.Neg: ExpressionCompiler._sign,
    nodes.Pos: ExpressionCompiler._sign,
    nodes.Concat: ExpressionCompiler._concat,
    nodes.And: ExpressionCompiler._and,
    nodes.Or: ExpressionCompiler._or,
    nodes.Not: ExpressionCompiler._not,
    nodes.Compare: ExpressionCompiler._compare,
    nodes.CondExpr: ExpressionCompiler._condition,
    nodes.Call: ExpressionCompiler._call,
    nodes.Test: ExpressionCompiler._test,
    nodes.Filter: ExpressionCompiler._filter,
}
