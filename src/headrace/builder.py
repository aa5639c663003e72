"""Workflows written in Python: `Workflow` collects nodes and gives the definition that the same YAML would give.

What a node gives is known only when it runs. So `Workflow.node` answers with a `Reference`, which knows its place alone
and turns into a template wherever it is written: in a config or in an f-string. Dependencies are read from the
templates, those written by hand included. There is no second way into the engine: all else is left to validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NoReturn

from headrace.errors import TemplateError
from headrace.model import yaml_writer
from headrace.model.definition import Definition
from headrace.model.plan import template_strings
from headrace.model.validation import references, validate

_REPR_END: Final = "!r }}"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r"})
_begins_syntax: Final = re.compile(r"[{$]+(?=[%#]|\Z)|[{$]*\{\{[{$]*")  # at the end too: a reference may follow


class Reference:
    """A place in the output of a node, in the inputs or among the secrets: `weather.body["items"][0].name`.

    Every attribute and item of it is a field, so it has no methods. A name that Python cannot write is an item.
    """

    __slots__ = ("__headrace_path__",)

    def __init__(self, path: str) -> None:
        self.__headrace_path__ = path

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"to read a field called {name}, write it as an item: [{name!r}]")
        return Reference(f"{self.__headrace_path__}.{name}") if name.isascii() and name.isidentifier() else self[name]

    def __getitem__(self, key: str | int) -> Reference:
        if type(key) is int:
            return Reference(f"{self.__headrace_path__}[{key}]")
        if type(key) is not str:
            raise TypeError(f"the items of a reference are texts and whole numbers, not {key!r}")
        return Reference(f"{self.__headrace_path__}['{key.translate(_ESCAPES)}']")

    def __str__(self) -> str:
        return f"{{{{ {self.__headrace_path__} }}}}"

    def __repr__(self) -> str:
        # Not a template, so that `node` sees an f-string's !r instead of writing the wrong thing into a config.
        return f"{{{{ {self.__headrace_path__}{_REPR_END}"

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"{self} cannot be formatted with {spec!r}, for its value is not known yet: "
                "write the template by hand, with a filter"
            )
        return str(self)

    def __no_value__(self, *_: object) -> NoReturn:
        raise TypeError(
            f"{self} has no value while the workflow is built, so it cannot be compared, tested or iterated over: "
            "do that in a template or in a handler"
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __no_value__
    __iter__ = __len__ = __contains__ = __int__ = __float__ = __no_value__
    __hash__ = None  # type: ignore[assignment]


def literal(text: str) -> str:
    """The text as a template that gives exactly this text, for data in which `{{` may stand."""
    return _begins_syntax.sub(lambda found: f"{{{{ '{found[0]}' }}}}", text)


class Workflow:
    """A definition in the making. The fields are those of a definition file; what is left out is not written."""

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: Literal["fail_fast", "continue"] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self.input = Reference("input")
        self.secret = Reference("secret")
        self._fields = _given(
            name=name,
            description=description,
            inputs=_written(inputs),
            on_failure=on_failure,
            timeout_seconds=timeout_seconds,
        )
        self._nodes: list[dict[str, Any]] = []

    def node(
        self,
        node_id: str,
        handler: str,
        /,
        *,
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[Reference | str] = (),
        timeout_seconds: float | None = None,
        retry_config: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> Reference:
        """Add a node. `dependencies` are only those that its config does not read, as references or ids."""
        fields = _given(
            id=node_id,
            handler=handler,
            dependencies=[each if isinstance(each, str) else _root(each) for each in dependencies],
            config=_written(config),
            timeout_seconds=timeout_seconds,
            retry_config=_written(retry_config),
            description=description,
        )
        self._nodes.append(fields)
        return Reference(node_id)

    def to_dict(self) -> dict[str, Any]:
        """The document that a definition file would hold. Nothing is checked."""
        order = {node["id"]: position for position, node in enumerate(self._nodes)}
        document = {**self._fields, "nodes": [_with_dependencies(node, order) for node in self._nodes]}
        return dict(_written(document))

    def definition(self) -> Definition:
        """The validated definition, or InvalidDefinition with all problems. Handlers are checked where it runs."""
        return validate(self.to_dict(), handlers=None)

    def to_yaml(self) -> str:
        """The definition file. What is not valid is not written."""
        self.definition()
        return yaml_writer.write(self.to_dict())


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _written(value: Any) -> Any:
    """A value as YAML would give it: references as templates, tuples as lists, and nothing shared with the caller."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, str) and _REPR_END in value:
        raise TypeError(f"{value!r}: a reference cannot be written with !r: use the filter tojson")
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return value


def _root(reference: Reference) -> str:
    return re.split(r"[.\[]", reference.__headrace_path__, maxsplit=1)[0]


def _with_dependencies(node: dict[str, Any], order: Mapping[str, int]) -> dict[str, Any]:
    """The node with what its templates read added to its dependencies, in the order of the workflow."""
    read: set[str] = set()
    for _, source in template_strings(node.get("config")):
        found = references(source)
        if not isinstance(found, TemplateError):  # validation says what is wrong with it
            read.update(path[0] for path in found)
    inferred = sorted((name for name in read if name in order and name != node["id"]), key=order.__getitem__)
    dependencies = list(dict.fromkeys((*node["dependencies"], *inferred)))
    return _given(**{**node, "dependencies": dependencies or None})
