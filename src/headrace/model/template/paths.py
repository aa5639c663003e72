"""Paths such as `start.cities[0]`: taken apart when a template is compiled, followed while it renders.

A path from the context says exactly what is missing when it is, for that is the error that people meet most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import nodes

from headrace.errors import MissingValue
from headrace.model.template import values
from headrace.model.template.budget import ABSENT, Frame
from headrace.model.template.values import Key, path_text, pick

Evaluate = Callable[[Frame], Any]


def constant(value: Any) -> Evaluate:
    return lambda frame: value


def split_path(node: nodes.Node) -> tuple[nodes.Node, tuple[Key, ...]]:
    """What a chain of dots and brackets starts from, and its keys as far as they are constant from there on."""
    keys: list[Key] = []
    while True:
        if isinstance(node, nodes.Getattr):
            keys.append(node.attr)
        elif isinstance(node, nodes.Getitem) and (key := _constant_key(node.arg)) is not None:
            keys.append(key)
        else:
            return node, tuple(reversed(keys))
        node = node.node


def _constant_key(node: nodes.Node) -> Key | None:
    if isinstance(node, nodes.Neg) and isinstance(node.node, nodes.Const) and type(node.node.value) is int:
        return -node.node.value
    if isinstance(node, nodes.Const) and type(node.value) in (str, int):
        return node.value  # type: ignore[no-any-return]
    return None


def attribute_reader(path: Any, default: Any) -> Callable[[Any], Any]:
    keys = values.parse_path(path, "map")
    if default is ABSENT:
        return lambda item: values.attribute(item, keys)

    def read(item: Any) -> Any:
        found = values.follow(item, keys)
        return default if found is ABSENT else found

    return read


def read_local(slot: int) -> Evaluate:
    return lambda frame: frame.slots[slot]


def read_first_set(slots: Sequence[int]) -> Evaluate:
    return lambda frame: next(frame.slots[slot] for slot in slots if frame.slots[slot] is not ABSENT)


def read_within(value: Evaluate, keys: tuple[Key, ...], name: str = "(...)") -> Evaluate:
    def read(frame: Frame) -> Any:
        found = value(frame)
        for position, key in enumerate(keys):
            found = pick(found, key)
            if found is ABSENT:
                raise MissingValue(f"{path_text(name, keys[: position + 1])} is missing")
        return found

    return read


def read_root(name: str, keys: tuple[Key, ...]) -> Evaluate:
    """A path from the context. `root.output` is the whole of a root that has no key of that name."""
    whole = keys[:1] == ("output",)
    rest = keys[1:] if whole else keys

    def read(frame: Frame) -> Any:
        try:
            found = frame.context[name]
        except KeyError:
            raise MissingValue(f"{path_text(name, ())} is missing") from None
        if whole and type(found) is dict:
            found = found.get("output", found)
        for key in rest:
            found = pick(found, key)
            if found is ABSENT:
                raise MissingValue(_what_is_missing(frame.context[name], name, keys))
        return found

    return read


def _what_is_missing(value: Any, name: str, keys: tuple[Key, ...]) -> str:
    for position, key in enumerate(keys):
        found = pick(value, key)
        if found is ABSENT and not (position == 0 and key == "output"):
            return f"{path_text(name, keys[: position + 1])} is missing"
        value = value if found is ABSENT else found
    return f"{path_text(name, keys)} is missing"


def presence(value: Evaluate, wanted: bool) -> Evaluate:
    def test(frame: Frame) -> bool:
        try:
            value(frame)
        except MissingValue:
            return not wanted
        return wanted

    return test
