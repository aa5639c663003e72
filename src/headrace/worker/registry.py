"""Which handlers there are: the decorator that marks a function, and the registry that a worker finds them with.

`@handler("name")` only leaves a mark: the function can be called and tested as before, and importing a module has no
effect on any registry. A worker loads modules by name (`--handlers`), where every mistake is an error, and by the
entry-point group `headrace.handlers`, where somebody else's broken package must not stop the worker.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_origin, get_type_hints

import structlog
from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from headrace.errors import HandlerNotFound, HeadraceError
from headrace.model.definition import HANDLER_NAME
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.worker.handlers import Builtins

Isolation = Literal["process"] | None
Function = TypeVar("Function", bound=Callable[..., Any])

GROUP = "headrace.handlers"
BUILTIN = "headrace.worker.handlers"
MARK = "__headrace_handler__"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may know about the attempt that it is. `deadline` is when the node's timeout will end it;
    `traceparent` is for calls to others, where traces are on."""

    execution_id: str
    node_id: str
    run: int
    attempt: int
    idempotency_key: str
    deadline: datetime | None
    log: Any
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that nodes can name. `config_model` is None when any object will do."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    isolation: Isolation
    config_model: type[BaseModel] | None
    config_schema: dict[str, Any] | None
    module: str
    where: str


def handler(name: str, *, isolation: Isolation = None) -> Callable[[Function], Function]:
    """Mark an async or sync function `(config)` or `(config, ctx)` as the handler of this name.

    A config annotated with a Pydantic model is checked before the call. A sync function runs in a thread; one with
    isolation="process" in a process of its own, which a timeout can really end.
    """
    if not HANDLER_NAME.fullmatch(name):
        raise ValueError(f"handler name {name!r} must match {HANDLER_NAME.pattern}")
    if isolation not in (None, "process"):
        raise ValueError(f"handler {name!r}: isolation must be None or 'process', not {isolation!r}")

    def mark(function: Function) -> Function:
        _takes_context(name, function)  # a wrong signature is told where it is written
        setattr(function, MARK, (name, isolation))
        return function

    return mark


class Registry:
    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._builtins: Builtins | None = None

    @classmethod
    def load(cls, modules: Sequence[str] = (), settings: Settings | None = None) -> Registry:
        """The builtin handlers, those of the modules, and those of installed packages."""
        registry = cls()
        registry._add_builtins(settings or Settings())
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.insert(0, os.getcwd())  # as `python -m` does
        for module in modules:
            registry.add_module(module)
        for entry in importlib.metadata.entry_points(group=GROUP):
            try:
                registry.add_module(entry.module)
            except HeadraceError as error:
                log.warning("handlers of an installed package left out", entry_point=entry.name, error=str(error))
        return registry

    async def aclose(self) -> None:
        """Close the connections that the builtin handlers hold. They open new ones when they are called again."""
        if self._builtins is not None:
            await self._builtins.aclose()

    def add_module(self, name: str) -> None:
        """All or none of a module's handlers."""
        found = [describe(function) for function in marked(import_handlers(name))]
        if not found:
            raise HandlerNotFound(f"module {name} has no handlers: mark functions with @handler('name')")
        for each in found:
            self._check_conflict(each)
        for each in found:
            self._handlers[each.name] = each

    def add(self, function: Callable[..., Any], *, replace: bool = False) -> Handler:
        """Add one marked function. With `replace` it may take the name of another one, as doubles in tests do."""
        added = describe(function)
        if not replace:
            self._check_conflict(added)
        self._handlers[added.name] = added
        return added

    def get(self, name: str) -> Handler:
        try:
            return self._handlers[name]
        except KeyError:
            raise HandlerNotFound(f"there is no handler {name!r}; known are {', '.join(self.names)}") from None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._handlers))

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers[name] for name in self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._handlers

    def _add_builtins(self, settings: Settings) -> None:
        from headrace.worker.handlers import Builtins

        self._builtins = Builtins(settings)
        for function in self._builtins.functions:
            self.add(function)

    def _check_conflict(self, new: Handler) -> None:
        old = self._handlers.get(new.name)
        if old is not None and old.function is not new.function:
            raise HeadraceError(f"handler {new.name!r} is defined twice: {old.where} and {new.where}")


def import_handlers(name: str) -> ModuleType:
    """Import a module by name, and say which of the things that go wrong went wrong."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and (name + ".").startswith(f"{error.name}.")
        if not absent:
            told = f"cannot import handlers from {name}: {type(error).__name__}: {error}"
        elif name.endswith(".py") or os.sep in name:
            dotted = name.removesuffix(".py").strip("./").replace(os.sep, ".")
            told = f"{name} is a file; give the name of the module, {dotted}"
        else:
            told = f"there is no module {name} on the import path or in {os.getcwd()}"
        raise HandlerNotFound(told) from error


def marked(module: ModuleType) -> list[Callable[..., Any]]:
    """The functions of a module that @handler marked, each once, in order of definition."""
    found = (value for value in vars(module).values() if isinstance(getattr(value, "__dict__", None), Mapping))
    return list({id(value): value for value in found if MARK in vars(value) and callable(value)}.values())


def describe(function: Callable[..., Any]) -> Handler:
    """All that a worker and a validator need to know about a marked function."""
    mark = getattr(function, MARK, None)
    if mark is None:
        raise HeadraceError(f"{_where(function)} is not a handler: mark it with @handler('name')")
    name, isolation = mark
    if isolation == "process" and (
        function.__module__ == "__main__" or "<locals>" in getattr(function, "__qualname__", "")
    ):
        raise HeadraceError(
            f"handler {name!r} ({_where(function)}) cannot run in a process of its own: that process imports it by "
            "name, so move it to the top level of a module that can be imported"
        )
    model = _config_model(name, function)
    return Handler(
        name=name,
        function=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        takes_context=_takes_context(name, function),
        isolation=isolation,
        config_model=model,
        config_schema=_schema(name, model),
        module=function.__module__,
        where=_where(function),
    )


def _takes_context(name: str, function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    too_many = [each for each in by_position[2:] if each.default is each.empty]
    by_keyword = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    if not by_position or too_many or by_keyword or inspect.isasyncgenfunction(function):
        raise TypeError(f"handler {name!r}: {_where(function)} must be a function (config) or (config, ctx)")
    return len(by_position) > 1


def _config_model(name: str, function: Callable[..., Any]) -> type[BaseModel] | None:
    parameter = next(iter(inspect.signature(function).parameters))
    target = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    only_this = SimpleNamespace(__annotations__={parameter: target.__annotations__.get(parameter, Any)})
    try:
        annotation = get_type_hints(only_this, target.__globals__)[parameter]
    except Exception as error:
        raise HeadraceError(
            f"handler {name!r}: the config annotation of {_where(function)} cannot be read ({error}): define or import "
            "what it names at the top level of its module, not only under TYPE_CHECKING"
        ) from error
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if annotation in (Any, object, dict, Mapping) or get_origin(annotation) in (dict, Mapping):
        return None
    raise HeadraceError(
        f"handler {name!r}: the config of {_where(function)} must be a Pydantic model, a dict or not annotated, "
        f"not {annotation!r}"
    )


def _schema(name: str, model: type[BaseModel] | None) -> dict[str, Any] | None:
    try:
        return model.model_json_schema() if model is not None else None
    except PydanticInvalidForJsonSchema:
        return None  # it has a type that JSON Schema cannot say; the worker still checks it
    except PydanticUserError as error:
        raise HeadraceError(f"handler {name!r}: its config model cannot be used: {error}") from error


def _where(function: Callable[..., Any]) -> str:
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
