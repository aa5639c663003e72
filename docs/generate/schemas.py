"""JSON Schemas in words. Definitions, configs of handlers and settings all have one, so one table serves them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from docs.generate.markdown import code, listed, literal, prose, table

Schema = dict[str, Any]

HEAD = ("field", "type", "default", "meaning")

_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}
_FORMATS = {"password": "secret text", "path": "path"}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    schema: Schema
    required: bool

    @property
    def default(self) -> str:
        if self.required:
            return "required"
        value = self.schema.get("default")
        if value in (None, [], {}):
            return "none"
        return literal(value) + (_in_larger_units(value) if self.name.lower().endswith("_bytes") else "")

    @property
    def meaning(self) -> str:
        return prose(self.schema.get("description", ""))

    @property
    def row(self) -> tuple[str, str, str, str]:
        return code(self.name), type_of(self.schema), self.default, self.meaning


def fields(schema: Schema, defs: Schema | None = None, prefix: str = "") -> Iterator[Field]:
    """The fields of a mapping and, right after it, those of each mapping in it: auth, then auth.bearer."""
    defs = schema.get("$defs", {}) if defs is None else defs
    for name, given in schema.get("properties", {}).items():
        inner = _resolved(given, defs)
        yield Field(prefix + name, inner, name in schema.get("required", ()))
        for branch in _branches(inner):
            items = _resolved(branch.get("items", {}), defs)
            is_list = "properties" in items
            yield from fields(items if is_list else branch, defs, f"{prefix}{name}{'[]' * is_list}.")


def table_of(schema: Schema) -> str:
    return table(HEAD, (field.row for field in fields(schema)))


def type_of(schema: Schema) -> str:
    """The kinds of value that fit; of a single kind also its range or pattern."""
    kinds = list(dict.fromkeys(kind for branch in _branches(schema) for kind in _kinds(branch)))
    if not kinds:
        return "anything"
    return listed(kinds) + (_limits(_branches(schema)[0]) if len(kinds) == 1 else "")


def _resolved(schema: Schema, defs: Schema) -> Schema:
    """With the definitions that it refers to written out; what is said beside a reference counts."""
    if "$ref" in schema:
        schema = {**defs[schema["$ref"].rpartition("/")[2]], **schema}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            schema = {**schema, key: [_resolved(branch, defs) for branch in schema[key]]}
    return schema


def _branches(schema: Schema) -> list[Schema]:
    given = schema.get("anyOf") or schema.get("oneOf")
    given = given if given and "properties" not in schema else [schema]
    return [branch for branch in given if branch.get("type") != "null"]


def _kinds(schema: Schema) -> list[str]:
    if schema.get("enum"):
        return [literal(value) for value in schema["enum"] if value is not None]
    if schema.get("format") in _FORMATS:
        return [_FORMATS[schema["format"]]]
    types = schema.get("type", [])
    return [_KINDS[each] for each in ([types] if isinstance(types, str) else types) if each != "null"]


def _limits(schema: Schema) -> str:
    if "pattern" in schema:
        return f", {code(schema['pattern'].removeprefix('^').removesuffix('$'))}"
    low, above, high = (schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if low is not None and high is not None:
        return f", {low:,} to {high:,.0f}"
    parts = [
        f"at least {low:,}" if low is not None else "",
        f"more than {above:,}" if above is not None else "",
        f"at most {high:,.0f}" if high is not None else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def _in_larger_units(size: int) -> str:
    unit = next((unit for unit in (("MiB", 1 << 20), ("KiB", 1 << 10)) if size % unit[1] == 0), None)
    return f" ({size // unit[1]} {unit[0]})" if unit else ""
