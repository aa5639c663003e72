"""The handlers that are always there.

`input` and `output` do nothing: what they give on was checked and rendered before. The others talk to the network with
clients that belong to one worker, so they are made from its settings, and closed when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.worker.registry import handler

if TYPE_CHECKING:
    from headrace.settings import Settings


@handler("input")
async def give_input(config: dict[str, Any]) -> dict[str, Any]:
    """Its config is the execution's input_params, checked and with defaults filled at trigger."""
    return config


@handler("output")
async def give_output(config: dict[str, Any]) -> dict[str, Any]:
    """Its config, rendered, is its output and a part of the execution's."""
    return config


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class Builtins:
    """One worker's builtin handlers, and the connections that they hold."""

    def __init__(self, settings: Settings) -> None:
        from headrace.worker.handlers.http import call_external_service
        from headrace.worker.handlers.llm import llm_service
        from headrace.worker.outbound import Outbound

        outbound = Outbound(allow_private=settings.http_allow_private, allowed_hosts=settings.http_allowed_hosts)
        llm = llm_service(settings)
        self.functions: Sequence[Callable[..., Any]] = (
            give_input,
            give_output,
            call_external_service(outbound),
            llm.handler,
        )
        self._closables: Sequence[_Closable] = (outbound, llm)

    async def aclose(self) -> None:
        for each in self._closables:
            await each.aclose()
