"""Assembles the Lua library: what is generated from the model, what the functions share, one file per function.

Names carry the format of the stored state and a hash of the source, because function names are global in a server:
during a rolling upgrade two versions live side by side, and each process calls exactly the code that it was built with.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files

from headrace.hot.keys import DECLARED, RESULTS_GROUP
from headrace.model.state import EXECUTION_TRANSITIONS, NODE_TRANSITIONS, ExecutionState, NodeState

FORMAT = "1"
SHARED = ("prelude", "records", "outbox", "children")

# `allow-oom`: under memory pressure the server refuses a function without it, even one that only deletes. Only what
# brings new work in may be refused.
FUNCTIONS = {
    "reserve": ("allow-oom",),
    "open": (),
    "dispatch": (),
    "claim": ("allow-oom",),
    "renew": ("allow-oom",),
    "release": ("allow-oom",),
    "report": ("allow-oom",),
    "complete": (),
    "advance": ("allow-oom",),
    "push": (),
    "due": ("allow-oom",),
    "cancel": ("allow-oom",),
    "forget": ("allow-oom",),
    "reject": ("allow-oom",),
    "leave": ("allow-oom",),
    "settle": ("allow-oom",),
}


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in pairs) + "}"


def _moves(states: Iterable[str], transitions: Iterable[tuple[str, str, str]]) -> str:
    allowed = {state: sorted({to for _, source, to in transitions if source == state}) for state in states}
    return _table((state, _table((to, "true") for to in targets)) for state, targets in allowed.items())


def _generated() -> str:
    declared = ", ".join(f"'{name}'" for name in DECLARED)
    return "\n".join(
        (
            f"local FORMAT = '{FORMAT}'",
            f"local DECLARED = {{{declared}}}",
            f"local RESULTS_GROUP = '{RESULTS_GROUP}'",
            f"local NODE = {_table((state.name, repr(state.value)) for state in NodeState)}",
            f"local EXECUTION = {_table((state.name, repr(state.value)) for state in ExecutionState)}",
            f"local NODE_MOVES = {_moves([s.value for s in NodeState], NODE_TRANSITIONS)}",
            f"local EXECUTION_MOVES = {_moves([s.value for s in ExecutionState], EXECUTION_TRANSITIONS)}",
        )
    )


def _register(version: str, name: str, flags: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{flag}'" for flag in flags)
    return f"redis.register_function{{function_name = 'hr{version}_{name}', callback = {name}, flags = {{{listed}}}}}"


@cache
def _assembled() -> tuple[str, str]:
    folder = files("headrace.hot") / "lua"
    parts = [_generated(), *((folder / f"{name}.lua").read_text() for name in (*SHARED, *FUNCTIONS))]
    body = "\n".join(parts)
    version = f"{FORMAT}_{sha256(body.encode()).hexdigest()[:8]}"
    registered = "\n".join(_register(version, name, flags) for name, flags in FUNCTIONS.items())
    return version, f"#!lua name=headrace_{version}\n{body}\n{registered}\n"


def source() -> str:
    """The whole library, as FUNCTION LOAD takes it."""
    return _assembled()[1]


def function(name: str) -> str:
    """The name under which the server knows a function of this library."""
    return f"hr{_assembled()[0]}_{name}"


if __name__ == "__main__":
    print(source(), end="")
