"""The handlers that are always there. Neither does anything: what they give on was checked and rendered before."""

from __future__ import annotations

from typing import Any

from headrace.worker.registry import handler


@handler("input")
async def give_input(config: dict[str, Any]) -> dict[str, Any]:
    """Its config is the execution's input_params, checked and with defaults filled at trigger."""
    return config


@handler("output")
async def give_output(config: dict[str, Any]) -> dict[str, Any]:
    """Its config, rendered, is its output and a part of the execution's."""
    return config
