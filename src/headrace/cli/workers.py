"""`headrace workers` and `headrace queues`: who is there to work, and what waits for them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.cli.output import age, complain, print_json, print_table
from headrace.cli.remote import AsJson, Server, talk

if TYPE_CHECKING:
    from headrace.client import Client


def workers(json_output: AsJson = False, server: Server = None) -> None:
    """List the workers of a server, and when each was seen last.

    \b
    Exit codes: 0, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace workers
    """
    sys.exit(talk(server, lambda client: _workers(client, json_output=json_output)))


def queues(json_output: AsJson = False, server: Server = None) -> None:
    """List how much waits for each handler, and for how long.

    \b
    Exit codes: 0, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace queues
    """
    sys.exit(talk(server, lambda client: _queues(client, json_output=json_output)))


async def _workers(client: Client, *, json_output: bool) -> None:
    found = await client.workers()
    if json_output:
        return print_json({"items": found})
    rows = [
        (
            each["name"],
            "alive" if each["alive"] else "dead",
            age(each["heartbeat_age_seconds"]),
            f"{_count(each.get('running'))} of {_count(each.get('slots'))}",
            ", ".join(each["handlers"]),
        )
        for each in found
    ]
    if not rows:
        return complain("There are none: start one with `headrace worker`.")
    return print_table(("WORKER", "STATE", "SEEN", "BUSY", "HANDLERS"), rows)


async def _queues(client: Client, *, json_output: bool) -> None:
    found = await client.queues()
    if json_output:
        return print_json({"items": found})
    rows = [(each["handler"], f"{each['depth']:,}", age(each.get("oldest_age_seconds"))) for each in found]
    return print_table(("HANDLER", "WAITING", "OLDEST"), rows) if rows else complain("Nothing waits.")


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
