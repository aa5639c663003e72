"""`headrace executions` and `headrace why`: what runs on a server, and how it stands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import age, complain, print_json, print_table, put, seconds_since
from headrace.cli.remote import AsJson, Cursor, ExecutionId, Limit, Server, talk
from headrace.cli.words import duration, one_line, printable

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.rest.answers import Execution, Failure, Node, NodeDetail, Reason

MOST_NODES_SHOWN = 100
AT_THE_END = ("COMPLETED", "SKIPPED", "CANCELLED", "PENDING")  # where not all nodes are shown

app = typer.Typer(help="Look at executions on a server, and act on them.", no_args_is_help=True)


@app.command("list")
def list_executions(  # noqa: PLR0917 (a command has as many options as it needs)
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="PENDING, RUNNING, COMPLETED, FAILED or CANCELLED.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(metavar="NAME", help="Of this workflow.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Made at this time or later, RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Made before this time, RFC 3339.")] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="TEXT", help="Part of the id, the workflow or the error.")
    ] = None,
    limit: Limit = None,
    cursor: Cursor = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """List executions, newest first.

    \b
    Exit codes: 0, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace executions list --status FAILED --workflow city-report
    """
    wanted = {"status": status and status.upper(), "workflow": workflow, "since": since, "until": until, "q": query}
    sys.exit(talk(server, lambda client: _list(client, wanted, limit, cursor, json_output=json_output)))


@app.command()
def show(
    execution_id: ExecutionId,
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="One node, with config, output, attempts.")] = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Show how an execution stands, or one node of it.

    \b
    Exit codes: 0, 1 there is no such execution or node, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace executions show 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """
    sys.exit(talk(server, lambda client: _show(client, execution_id, node, json_output=json_output)))


@app.command()
def watch(execution_id: ExecutionId, json_output: AsJson = False, server: Server = None) -> None:
    """Follow an execution to its end.

    Ctrl-C stops watching; the execution goes on.

    \b
    Exit codes: 0 completed, 1 failed, cancelled or not there, 2 bad usage, 3 the server cannot be
    reached, 130 after Ctrl-C.

    \b
    Example: headrace executions watch 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """
    from headrace.cli.watch import watch as follow

    sys.exit(talk(server, lambda client: follow(client, execution_id, json_output=json_output)))


@app.command()
def cancel(execution_id: ExecutionId, json_output: AsJson = False, server: Server = None) -> None:
    """Cancel a running execution, and stop what is running of it.

    \b
    Exit codes: 0, 1 it is not running or not there, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace executions cancel 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """

    async def ask(client: Client) -> None:
        answer = await client.cancel(execution_id)
        print_json(answer) if json_output else put(f"{printable(execution_id)}: cancelling")

    sys.exit(talk(server, ask))


@app.command()
def retry(
    execution_id: ExecutionId,
    from_nodes: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="NODE", help="Run this node and all after it again. May be repeated."),
    ] = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Start the next run of a failed or cancelled execution.

    Nodes that are complete keep their outputs; all others start again. With --from, the nodes that
    you name and all that come after them start again, also in an execution that is complete.

    \b
    Exit codes: 0, 1 its state does not allow it or it is not there, 2 bad usage, 3 the server cannot
    be reached.

    \b
    Example: headrace executions retry 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47 --from summary
    """

    async def ask(client: Client) -> None:
        answer = await client.retry(execution_id, from_nodes=from_nodes or ())
        print_json(answer) if json_output else put(f"{printable(execution_id)}: run {answer['run']} starts")

    sys.exit(talk(server, ask))


def why(
    execution_id: ExecutionId,
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="Only this node.")] = None,
    json_output: AsJson = False,
    server: Server = None,
) -> None:
    """Say why each unfinished node of an execution is not running.

    \b
    Exit codes: 0, 1 there is no such execution or node, 2 bad usage, 3 the server cannot be reached.

    \b
    Example: headrace why 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47 summary
    """
    sys.exit(talk(server, lambda client: _why(client, execution_id, node, json_output=json_output)))


async def _list(
    client: Client, wanted: dict[str, str | None], limit: int | None, cursor: str | None, *, json_output: bool
) -> None:
    page = await client.page(**wanted, limit=limit, cursor=cursor)
    if json_output:
        return print_json(page)
    rows = [
        (
            each["execution_id"],
            each["status"],
            age(seconds_since(each["created_at"])),
            f"{each['workflow']} v{each['version']}",
        )
        for each in page["items"]
    ]
    print_table(("EXECUTION", "STATUS", "AGE", "WORKFLOW"), rows) if rows else complain("There are none.")
    if more := page.get("next_cursor"):
        complain(f"There are more: --cursor {printable(more)}")
    return None


async def _show(client: Client, execution_id: str, name: str | None, *, json_output: bool) -> None:
    if name is not None:
        node = await client.node(execution_id, name)
        return print_json(node) if json_output else _print_node(node)
    execution = await client.get(execution_id)
    return print_json(execution) if json_output else _print_execution(execution)


def _print_execution(execution: Execution) -> None:
    run = f", run {execution['run']}" if execution["run"] > 1 else ""
    put(
        printable(execution["execution_id"]),
        printable(f"{execution['workflow']} v{execution['version']}: {execution['status']}{run}"),
        f"created {_time(execution['created_at'])}{_took(execution)}",
    )
    if error := execution.get("error"):
        node = f"node {error['node']}: " if error.get("node") else ""
        put(printable(f"{node}{_said(error)}"))
    nodes = _of_interest(execution["nodes"])
    rows = [
        (each["id"], each["status"], str(each["attempt"] or ""), _took(each, "{}"), each["handler"], _remark(each))
        for each in nodes
    ]
    put("")
    print_table(("NODE", "STATUS", "ATTEMPT", "TOOK", "HANDLER", "REMARK"), rows, cuts_last=True)
    if left := len(execution["nodes"]) - len(nodes):
        put(f"… and {left:,} more nodes: --json has all of them")
    if execution["output"]:
        put("")
        print_json(execution["output"])


def _of_interest(nodes: Sequence[Node]) -> Sequence[Node]:
    if len(nodes) <= MOST_NODES_SHOWN:
        return nodes
    return sorted(nodes, key=lambda node: node["status"] in AT_THE_END)[:MOST_NODES_SHOWN]


def _print_node(node: NodeDetail) -> None:
    reason = f" ({node['reason']})" if node.get("reason") else ""
    put(printable(f"{node['id']}: {node['status']}{reason}, handler {node['handler']}"))
    if node["attempts"]:
        rows = [
            (
                str(each.get("run", "")),
                str(each["attempt"]),
                each["status"],
                _took(each, "{}"),
                each.get("worker") or "",
                _said(each.get("error")),
            )
            for each in node["attempts"]
        ]
        put("")
        print_table(("RUN", "ATTEMPT", "STATUS", "TOOK", "WORKER", "ERROR"), rows, cuts_last=True)
    for title, value in (("config", node["config"]), ("output", node["output"])):
        if value is not None:
            put("", f"{title}:")
            print_json(value)


async def _why(client: Client, execution_id: str, node: str | None, *, json_output: bool) -> None:
    answer = await client.why(execution_id)
    if json_output:
        return print_json(answer)
    reasons = [each for each in answer["nodes"] if node in (None, each["node"])]
    if reasons:
        return put(*(line for each in reasons for line in _reason(each)))
    if node is not None:
        found = await client.node(execution_id, node)
        return put(printable(f"{found['id']}: {found['status']}"))
    return put(printable(f"Nothing waits: the execution is {(await client.get(execution_id))['status']}."))


def _reason(each: Reason) -> list[str]:
    """What to do is told where there is something to do."""
    said, do = f"{one_line(each['node'] or 'the execution')}: {one_line(each['why'])}", each.get("do", "")
    return [said, f"  {one_line(do)}."] if do and not do.startswith("Nothing") else [said]


def _said(error: Failure | None) -> str:
    return f"{error.get('type') or error['code']}: {error['message']}" if error else ""


def _remark(node: Node) -> str:
    return _said(node.get("error")) or node.get("reason") or ""


def _time(text: str | None) -> str:
    return printable((text or "").replace("T", " ").replace("Z", " UTC"))


def _took(each: Any, form: str = ", took {}") -> str:
    began, ended = seconds_since(each.get("started_at")), seconds_since(each.get("finished_at"))
    if began is None:
        return ""
    return form.format(duration(max(0.0, began - (ended or 0.0)), 2)) if ended is not None else ""
