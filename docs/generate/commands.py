"""The commands as the command line itself describes them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from docs.generate.markdown import code, fence, prose, table, wrapped

from headrace.cli.main import app


def _flat(commands: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group by their whole names: executions list."""
    for name, each in commands.items():
        if hasattr(each, "commands"):
            yield from _flat(each.commands, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", each


COMMANDS: dict[str, Any] = dict(_flat(typer.main.get_command(app).commands))  # type: ignore[attr-defined]


def _overview() -> str:
    rows = (
        (f"[{code(name)}](#headrace-{name.replace(' ', '-')})", _paragraphs(each)[0]) for name, each in COMMANDS.items()
    )
    return table(("command", "does"), rows)


def _commands() -> str:
    return "\n\n".join(f"### headrace {name}\n\n{_command(name, each)}" for name, each in COMMANDS.items())


def _command(name: str, command: Any) -> str:
    """Usage, what it does, arguments and options, and at the end exit codes and an example."""
    usage = " ".join(("headrace", name, *map(_usage, sorted(command.params, key=_is_argument))))
    paragraphs = _paragraphs(command)
    parts = [fence(usage), *map(_shown, paragraphs[:-2])]
    if command.params:
        rows = ((code(_written(each)), prose(each.help)) for each in command.params)
        parts.append(table(("argument or option", "meaning"), rows))
    return "\n\n".join((*parts, *map(_shown, paragraphs[-2:])))


def _paragraphs(command: Any) -> list[str]:
    return [part.strip("\b\n ") for part in inspect.cleandoc(command.help).split("\n\n")]


def _shown(paragraph: str) -> str:
    if paragraph.startswith("Example: "):
        return fence(paragraph.removeprefix("Example: "), "sh")
    return fence(paragraph, "yaml") if paragraph.startswith("#") else wrapped(prose(paragraph))


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _written(parameter: Any) -> str:
    metavar = parameter.metavar or ""
    return metavar if _is_argument(parameter) else f"{parameter.opts[0]} {metavar}".strip()


def _usage(parameter: Any) -> str:
    written = _written(parameter)
    many = "…" if parameter.nargs == -1 or getattr(parameter, "multiple", False) else ""
    return f"{written}{many}" if parameter.required else f"[{written}]{many}"


BLOCKS = {"overview of the commands": _overview, "commands": _commands}
