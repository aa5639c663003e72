"""`headrace dlq`: nodes that failed for good, and what becomes of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import age, complain, print_json, print_table, put, seconds_since
from headrace.cli.remote import AsJson, Cursor, Limit, Server, talk
from headrace.cli.words import one_line, printable

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.rest.answers import Failure, Triggered

app = typer.Typer(help="Look at dead letters: nodes that failed for good. Retry or drop them.", no_args_is_help=True)


@app.command("list")
def list_letters(  # noqa: PLR0917 (a command has as many options as it needs)
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="OPEN, RETRIED, DROPPED or ALL. Default: OPEN.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(metavar="NAME", help="Of this workflow.")] = None,
    limit: Limit = None,
    cursor: Cursor = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """List dead letters, newest first.

    \b
    Exit codes: 0, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace dlq list --workflow city-report
    """
    wanted = {"status": status and status.upper(), "workflow": workflow}
    sys.exit(talk(server, lambda client: _list(client, wanted, limit, cursor, json_output=json_output)))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the dead letter.")],
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Show a dead letter: the task, the error, its cause.

    \b
    Exit codes: 0, 1 there is no such dead letter, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace dlq show 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """
    sys.exit(talk(server, lambda client: _show(client, letter_id, json_output=json_output)))


@app.command()
def retry(
    letter_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The ids of dead letters.")] = None,
    workflow: Annotated[str | None, typer.Option(metavar="NAME", help="All open ones of this workflow.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All open ones.")] = False,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Resume the executions that dead letters came from.

    Many letters of one execution are one retry of it.

    \b
    Exit codes: 0, 1 a letter is not there or an execution does not allow it, 2 bad usage,
    3 the server cannot be reached.

    \b
    Example: headrace dlq retry --workflow city-report
    """
    if sum((bool(letter_ids), workflow is not None, everything)) != 1:
        raise typer.BadParameter("give ids, --workflow NAME or --all")
    sys.exit(talk(server, lambda client: _retry(client, letter_ids, workflow, json_output=json_output)))


@app.command()
def drop(
    letter_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The ids of dead letters.")],
    server: Server = None,
) -> None:
    """Put dead letters away for good. Their executions stay failed.

    \b
    Exit codes: 0, 1 a letter is not there, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace dlq drop 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """

    async def ask(client: Client) -> None:
        for letter_id in letter_ids:
            await client.drop_dead_letter(letter_id)
            put(f"{printable(letter_id)}: dropped")

    sys.exit(talk(server, ask))


async def _list(
    client: Client, wanted: dict[str, str | None], limit: int | None, cursor: str | None, *, json_output: bool
) -> None:
    page = await client.dead_letters(**wanted, limit=limit, cursor=cursor)
    if json_output:
        return print_json(page)
    rows = [
        (
            each["id"],
            age(seconds_since(each["created_at"])),
            f"{each['workflow']}.{each['node']}",
            each["execution_id"],
            _said(each["error"]),
        )
        for each in page["items"]
    ]
    headings = ("DEAD LETTER", "AGE", "WORKFLOW.NODE", "EXECUTION", "ERROR")
    print_table(headings, rows, cuts_last=True) if rows else complain("There are none.")
    if more := page.get("next_cursor"):
        complain(f"There are more: --cursor {printable(more)}")
    return None


async def _show(client: Client, letter_id: str, *, json_output: bool) -> None:
    letter = await client.dead_letter(letter_id)
    if json_output:
        return print_json(letter)
    put(
        printable(letter["id"]),
        printable(f"execution {letter['execution_id']}, run {letter['run']}"),
        printable(f"workflow {letter['workflow']}, node {letter['node']}, {letter['created_at']}"),
        printable(f"{letter['cause']}: {_said(letter['error'])}"),
    )
    put("", "task:")
    return print_json(letter["task"])


async def _retry(client: Client, letter_ids: list[str] | None, workflow: str | None, *, json_output: bool) -> int:
    if letter_ids and len(letter_ids) == 1:
        one = await client.retry_dead_letter(letter_ids[0])
        print_json(one) if json_output else _print_resumed(one)
        return 0
    answer = await client.retry_dead_letters(letter_ids, workflow=workflow)
    latest = answer
    while latest["more"] and latest["retried"]:  # a call takes a bounded number of them
        latest = await client.retry_dead_letters(letter_ids, workflow=workflow)
        answer["retried"] += latest["retried"]
        answer["refused"] += latest["refused"]
        answer["more"] = latest["more"]
    if json_output:
        print_json(answer)
    else:
        for each in answer["retried"]:
            _print_resumed(each)
        complain(*(f"refused: {one_line(', '.join(map(str, each.values())))}" for each in answer["refused"]))
    return 1 if answer["refused"] else 0


def _print_resumed(answer: Triggered) -> None:
    put(printable(f"{answer['execution_id']}: run {answer['run']} starts"))


def _said(error: Failure) -> str:
    return f"{error.get('type') or error['code']}: {error['message']}"
