"""What all commands that talk to a server share: where it is, and what its refusals mean for a user and a script.

Exit codes: 0, 1 the server says no (not found, conflict, failed), 2 bad usage or settings, 3 no server that can answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import complain
from headrace.cli.words import printable

if TYPE_CHECKING:
    from headrace.client import Client, ProblemError

Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Where the API is. Default: HEADRACE_SERVER.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what the API answered, as one JSON document.")]
ExecutionId = Annotated[str, typer.Argument(metavar="ID", help="The id of the execution.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="How many to show, at most.")]
Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where the last page ended.")]

ADVICE = {
    401: "Set HEADRACE_API_KEY to a key of this server; `headrace keys create` makes one.",
    403: "Use a key with the scope that this needs, in HEADRACE_API_KEY.",
    413: "Send less, or ask the operator to raise the limit.",
    429: "Wait a little and try again.",
    503: "Wait a little and try again.",
}
USAGE, UNREACHABLE, INTERRUPTED = 2, 3, 130


def talk(server: str | None, work: Callable[[Client], Awaitable[int | None]]) -> int:
    """Does the work with a client and gives the exit code."""
    import asyncio

    from headrace.cli.startup import load_settings
    from headrace.client import Client, ProblemError, ServerUnreachable
    from headrace.errors import BadValue

    settings = load_settings()
    key = settings.headrace_api_key.get_secret_value() if settings.headrace_api_key else None

    async def run() -> int:
        async with Client(server or settings.headrace_server, key) as client:
            return await work(client) or 0

    try:
        return asyncio.run(run())
    except ProblemError as error:
        return _refused(error)
    except ServerUnreachable as error:
        complain(
            f"headrace: {printable(str(error))}",
            "Is `headrace dev` or `headrace api` running there? HEADRACE_SERVER or --server says where to look.",
        )
        return UNREACHABLE
    except (ValueError, BadValue) as error:
        complain(f"headrace: {printable(str(error))}")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _refused(error: ProblemError) -> int:
    said = error.title or error.detail
    if error.detail != said and not error.errors:
        said += f": {error.detail}"
    complain(f"headrace: {printable(said)}")
    complain(*(f"  {_place(each)}{printable(str(each.get('msg', '')))}" for each in error.errors))
    if advice := ADVICE.get(error.status):
        complain(advice)
    if error.status in (400, 401, 403, 413, 422):
        return USAGE
    return UNREACHABLE if error.status == 429 or error.status >= 500 else 1


def _place(error: dict[str, Any]) -> str:
    loc = error.get("loc")
    return f"{printable('.'.join(map(str, loc)))}: " if isinstance(loc, list) and loc else ""
