"""Secrets in templates: text with places that only a worker can fill.

`{{ secret.NAME }}` compiles to a Reference, which goes through rendering as a piece of text and is never looked into.
References come from a template's source alone: a value of the context that reads like one is an ordinary string, so
no output and no input can ask for a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import nodes

from headrace.model.messages import Secret

SECRET: Final = "secret"  # noqa: S105
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Reference(str):
    """A secret as it is shown: in the text it stands for itself, in the list of pieces for the value."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Reference:
        made = super().__new__(cls, f"{{{{ {SECRET}.{name} }}}}")
        made.name = name
        return made


@dataclass(frozen=True, slots=True)
class Sealed:
    """A rendered text with secrets in it: as it may be shown, and the pieces from which a worker makes the real one."""

    shown: str
    pieces: tuple[str | Secret, ...]


def sealed(parts: Sequence[str]) -> str | Sealed:
    """The parts as one text, which needs no sealing if no reference is among them."""
    shown = "".join(parts)
    if not any(type(part) is Reference for part in parts):
        return shown
    pieces: list[str | Secret] = []
    text: list[str] = []
    for part in parts:
        if isinstance(part, Reference):
            pieces += ("".join(text), Secret(part.name))
            text.clear()
        else:
            text.append(part)
    pieces.append("".join(text))
    return Sealed(shown, tuple(piece for piece in pieces if piece))


def referenced(node: nodes.Node) -> str | None:
    """The NAME of an expression that is exactly `secret.NAME`."""
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == SECRET:
        return node.attr if _NAME.fullmatch(node.attr) else None
    return None


def refusal(node: nodes.Node) -> str:
    """Why this expression cannot read from `secret`."""
    name = referenced(node)
    if name is None:
        return "a secret is written {{ secret.NAME }}, with a name of letters, digits and _ that begins with no digit"
    return (
        f"secret.{name} can only be put into text as it is, by {{{{ secret.{name} }}}}: its value is known to the "
        "worker alone, so no filter, operator, condition or variable can use it; {% if %} around it can choose"
    )
