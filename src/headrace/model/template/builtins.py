"""How filters and tests are kept: a table of names, each with a function and its parameters.

Arguments are matched with parameters when a template is compiled, so a wrong name or number of them is found by
validation and costs nothing while rendering.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headrace.errors import TemplateError, TemplateSyntaxError
from headrace.model.template.budget import describe

REQUIRED: Final = inspect.Parameter.empty

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Builtin:
    """A filter or test: called with the frame, the value, and one argument per parameter."""

    name: str
    call: Callable[..., Any]
    parameters: tuple[tuple[str, Any], ...]


class Table(dict[str, Builtin]):
    """The builtins of one kind, by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind: Final = kind

    def add(self, *names: str) -> Callable[[Function], Function]:
        """Register a function `(frame, value, *parameters)` under its names."""

        def register(function: Function) -> Function:
            declared = list(inspect.signature(function).parameters.values())[2:]
            parameters = tuple((parameter.name, parameter.default) for parameter in declared)
            for name in names:
                self[name] = Builtin(name, function, parameters)
            return function

        return register

    def find(self, name: str, line: int, *others: str) -> Builtin:
        """The builtin of this name. `others` are names that exist too, but are no functions."""
        if name in self:
            return self[name]
        known = sorted({*self, *others})
        near = difflib.get_close_matches(name[:40], known, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise TemplateSyntaxError(f"line {line}: there is no {self.kind} {name[:40]!r} in templates; {hint}")

    def bind(
        self, builtin: Builtin, line: int, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> list[tuple[bool, Any]]:
        """One (given, argument or default) per parameter."""
        names = [name for name, _ in builtin.parameters]
        usage = f"{self.kind} {builtin.name!r} takes ({', '.join(names)})" if names else f"{builtin.name!r} takes none"
        if len(positional) > len(names):
            raise TemplateSyntaxError(f"line {line}: too many arguments: {usage}")
        given = dict(zip(names, positional, strict=False))
        for name, argument in named.items():
            if name not in names or name in given:
                raise TemplateSyntaxError(f"line {line}: unknown or repeated argument {name[:40]!r}: {usage}")
            given[name] = argument
        bound = []
        for name, default in builtin.parameters:
            if name not in given and default is REQUIRED:
                raise TemplateSyntaxError(f"line {line}: missing argument {name!r}: {usage}")
            bound.append((name in given, given.get(name, default)))
        return bound


def whole(value: Any, what: str, low: int, high: int) -> int:
    """An argument that must be a whole number within bounds."""
    if type(value) is not int:
        raise TemplateError(f"{what} must be a whole number, not {describe(value)}")
    if not low <= value <= high:
        raise TemplateError(f"{what} must be between {low:,} and {high:,}")
    return value


def words(value: Any, what: str) -> str:
    """An argument that must be text."""
    if type(value) is not str:
        raise TemplateError(f"{what} must be text, not {describe(value)}")
    return value
