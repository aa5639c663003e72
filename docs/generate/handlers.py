"""The builtin handlers with the fields of their configs, and what handlers of users get and may raise."""

from __future__ import annotations

import re
from collections.abc import Callable

from docs.generate.markdown import table
from docs.generate.schemas import Schema, table_of

from headrace.settings import Settings
from headrace.worker import outcomes
from headrace.worker.handlers import Builtins
from headrace.worker.registry import describe

_class = re.compile(r"\b(Retry|Fatal|SystemExit|Exception|\w+Error)\b")

BUILTINS = {each.name: each for each in map(describe, Builtins(Settings.model_construct()).functions)}


def errors() -> list[tuple[str, str]]:
    """The table in the docstring of `outcomes`: what a handler raises, and whether it is tried again."""
    rows: list[tuple[str, str]] = []
    begun = ""
    for line in re.findall(r"^ {4}(\S.*)$", outcomes.__doc__ or "", re.MULTILINE):
        raised, *retried = re.split(r"\s{2,}", line, maxsplit=1)
        begun = f"{begun} {raised}".strip()
        if retried:
            rows.append((begun, retried[0]))
            begun = ""
    return rows


def _block(schema: Schema) -> Callable[[], str]:
    return lambda: table_of(schema)


BLOCKS = {
    **{f"config of {each.name}": _block(each.config_schema) for each in BUILTINS.values() if each.config_schema},
    "errors": lambda: table(("raised", "tried again"), ((_class.sub(r"`\g<0>`", each), why) for each, why in errors())),
}
