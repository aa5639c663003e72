"""The fields of one untrusted mapping, read one at a time, with words for whatever is wrong with them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeVar

from headrace.model.findings import Findings, Loc
from headrace.model.payload import dotted, shown

T = TypeVar("T")

# What other tools call the fields of a definition, a node and a retry_config.
_SAME_AS: Final = {
    **dict.fromkeys(("steps", "tasks", "jobs"), "nodes"),
    **dict.fromkeys(("depends_on", "needs", "depends", "after", "upstream", "parents"), "dependencies"),
    **dict.fromkeys(("type", "uses", "task", "action", "kind", "function"), "handler"),
    **dict.fromkeys(("with", "args", "params", "parameters", "arguments"), "config"),
    **dict.fromkeys(("retry", "retries", "retry_policy"), "retry_config"),
    "timeout": "timeout_seconds",
    "name": "id",
    "attempts": "max_retries",
    "backoff": "exponential_base",
}


class Fields:
    """What is wrong with the fields goes into the findings, and reads as absent."""

    def __init__(
        self, value: object, loc: Loc, findings: Findings, *, names: Collection[str], what: str, node: str | None = None
    ) -> None:
        self.loc, self.node, self._findings = loc, node, findings
        self._readable = isinstance(value, dict)
        self._values: Mapping[Any, Any] = value if isinstance(value, dict) else {}
        if not self._readable:
            findings.add("wrong_type", f"{what} must be a mapping, not {kind_of(value)}", loc, node)
        elif not self._values.keys() <= (known := set(names)):
            node_id = self._values.get("id")
            for name in [name for name in self._values if name not in known]:
                text = name if isinstance(name, str) else repr(name)
                hint = f": did you mean {same}?" if (same := _SAME_AS.get(text)) in names else ""
                message = f"{what} has no field {shown(text)}{hint or findings.did_you_mean(text, names)}"
                findings.add(
                    "unknown_field", message, (*loc, text), node or (node_id if type(node_id) is str else None)
                )

    def _wrong(self, code: str, name: str, message: str) -> None:
        loc = (*self.loc, name)
        self._findings.add(code, f"{name if self.node else dotted(loc)} {message}", loc, self.node)

    def take(self, name: str, kind: type[T], expected: str, *, required: bool = False) -> T | None:
        value = self._values.get(name)
        if type(value) is kind:
            return value
        if value is not None:
            hint = f": write [{shown(value, 40)}]" if kind is list and isinstance(value, str) else ""
            self._wrong("wrong_type", name, f"must be {expected}, not {kind_of(value)}{hint}")
        elif required and self._readable:
            self._wrong("missing_field", name, "is missing")
        return None

    def text(self, name: str, pattern: re.Pattern[str] | None = None, expected: str = "") -> str:
        """A text, required where it has a pattern. One that does not match is reported, and given all the same."""
        value = self.take(name, str, "text", required=pattern is not None)
        if value is None or not self._findings.add_flaws(value, (*self.loc, name), self.node):
            return ""
        if pattern is not None and not pattern.fullmatch(value):
            message = f"is {shown(value) or 'empty'}, but must be {expected}{_repaired(value, pattern)}"
            self._wrong("bad_name", name, message)
        return value

    def choice(self, name: str) -> Literal["fail_fast", "continue"]:
        value = self.take(name, str, "fail_fast or continue")
        if value not in (None, "fail_fast", "continue"):
            self._wrong("bad_choice", name, f"must be fail_fast or continue, not {shown(value)}")
        return "continue" if value == "continue" else "fail_fast"

    def number(
        self, name: str, *, most: float, least: float | None = None, above: float | None = None, whole: bool = False
    ) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not int and (whole or type(value) is not float):
            self._wrong("wrong_type", name, f"must be a {'whole ' * whole}number, not {kind_of(value)}")
        elif isinstance(value, float) and not math.isfinite(value):
            self._wrong("out_of_range", name, f"must be a finite number, not {value}")
        elif (least is not None and value < least) or (above is not None and value <= above):
            self._wrong("out_of_range", name, f"must be {f'at least {least:g}' if above is None else 'more than 0'}")
        elif value > most:
            self._wrong("out_of_range", name, f"must be at most {most:,.0f}")
        else:
            return float(value)
        return None


def _repaired(name: str, pattern: re.Pattern[str]) -> str:
    """The nearest name that fits, to end a message with, if there is one."""
    dashes, underlines = re.sub(r"[^a-z0-9_]+", "-", name[:100].lower()), re.sub(r"[^A-Za-z0-9_]+", "_", name[:100])
    fitting = [text for text in (dashes.strip("-"), underlines) if pattern.fullmatch(text)]
    return f": did you mean {fitting[0]}?" if fitting else ""


def kind_of(value: object) -> str:
    """A value as a writer of YAML or JSON would call it; of a text also what it says, for `yes` and `30s` are texts."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'the text "{shown(value, 40)}"'
    names: dict[type, str] = {dict: "a mapping", list: "a list", bool: "true or false", int: "a number"}
    return names.get(type(value), "a number" if isinstance(value, float) else f"a {type(value).__name__}")
