"""Headrace runs workflows that are directed acyclic graphs. These names are all that handlers and callers need.

They are imported when first used, so that `import headrace`, and with it the command line, stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.builder import Workflow
    from headrace.client import Client
    from headrace.errors import Fatal, Retry
    from headrace.worker.registry import Context, handler

    __version__: str

__all__ = ["Client", "Context", "Fatal", "Retry", "Workflow", "__version__", "handler"]

_HOME = {
    "Client": "headrace.client",
    "Context": "headrace.worker.registry",
    "Fatal": "headrace.errors",
    "Retry": "headrace.errors",
    "Workflow": "headrace.builder",
    "handler": "headrace.worker.registry",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("headrace")
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
