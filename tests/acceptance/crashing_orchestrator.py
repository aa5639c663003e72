"""An orchestrator that kills itself with SIGKILL at a chosen moment.

CRASH_BEFORE or CRASH_AFTER names a method of the store, CRASH_AT which call of it (from 1) is never made, or the last
one. Where `dispatch` is named, nothing is rendered ahead, so that everything goes that way.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

from headrace.cli.roles import run_orchestrator
from headrace.hot.store import HotStore
from headrace.steps.rendering import Ready, Renderer

before, after = os.environ.get("CRASH_BEFORE"), os.environ.get("CRASH_AFTER")
name, at = before or after or "", int(os.environ["CRASH_AT"])
method = getattr(HotStore, name)
calls = itertools.count(1)


async def crash_or_call(store: HotStore, *arguments: Any, **named: Any) -> Any:
    now = next(calls) == at
    if now and before:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = await method(store, *arguments, **named)
    if now and after:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def nothing(_renderer: Renderer, _node: Ready) -> None: ...


if name == "dispatch":
    setattr(Renderer, "render_ahead", nothing)  # noqa: B010 (mypy forbids to assign to a method)

setattr(HotStore, name, crash_or_call)

if __name__ == "__main__":
    raise SystemExit(run_orchestrator())
