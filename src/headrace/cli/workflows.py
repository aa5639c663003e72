"""`headrace workflows`: the definitions that a server has."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import age, complain, print_json, print_table, put, seconds_since
from headrace.cli.remote import AsJson, Cursor, Limit, Server, talk
from headrace.cli.words import printable

if TYPE_CHECKING:
    from headrace.client import Client

app = typer.Typer(help="Look at the workflows that a server has.", no_args_is_help=True)


@app.command("list")
def list_workflows(
    limit: Limit = None, cursor: Cursor = None, json_output: AsJson = False, server: Server = None
) -> None:
    """List workflows by name, each with its newest version.

    \b
    Exit codes: 0, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace workflows list
    """
    sys.exit(talk(server, lambda client: _list(client, limit, cursor, json_output=json_output)))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the workflow.")],
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="This version. Default: the newest one.")
    ] = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Print the definition of a workflow.

    \b
    Exit codes: 0, 1 there is no such workflow or version, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace workflows show city-report --version 2
    """
    sys.exit(talk(server, lambda client: _show(client, name, version, json_output=json_output)))


async def _list(client: Client, limit: int | None, cursor: str | None, *, json_output: bool) -> None:
    page = await client.workflows(limit=limit, cursor=cursor)
    if json_output:
        return print_json(page)
    rows = [(each["name"], str(each["version"]), age(seconds_since(each["created_at"]))) for each in page["items"]]
    print_table(("WORKFLOW", "VERSION", "AGE"), rows) if rows else complain("There are none.")
    if more := page.get("next_cursor"):
        complain(f"There are more: --cursor {printable(more)}")
    return None


async def _show(client: Client, name: str, version: int | None, *, json_output: bool) -> None:
    from headrace.model.yaml_writer import write

    found = await (client.workflow(name) if version is None else client.version(name, version))
    if json_output:
        return print_json(found)
    complain(printable(f"{found['name']} v{found['version']}"))
    return put(printable(write(found["definition"]).rstrip()))
