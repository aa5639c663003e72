"""An orchestrator that kills itself with SIGKILL at a chosen moment.

CRASH_BEFORE names a method of the store, CRASH_AT which call of it (from 1) is never made.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

from headrace.cli.roles import run_orchestrator
from headrace.hot.store import HotStore

name, at = os.environ["CRASH_BEFORE"], int(os.environ["CRASH_AT"])
method = getattr(HotStore, name)
calls = itertools.count(1)


async def crash_or_call(store: HotStore, *arguments: Any, **named: Any) -> Any:
    if next(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return await method(store, *arguments, **named)


setattr(HotStore, name, crash_or_call)

if __name__ == "__main__":
    raise SystemExit(run_orchestrator())
