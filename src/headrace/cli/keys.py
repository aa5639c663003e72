"""`headrace keys`: the API keys in the SQL store. A key itself is seen once, when it is made; only its hash is kept."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import complain, print_json, print_table, put
from headrace.cli.words import printable

if TYPE_CHECKING:
    from headrace.record.database import Database
    from headrace.record.keys import Key

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

app = typer.Typer(help="Make, list and revoke API keys, in the SQL store itself.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for: it stands in the audit trail.")],
    scopes: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help="read, run or admin. May be repeated.")
    ] = ["read", "run"],  # noqa: B006 (typer only reads it)
    json_output: AsJson = False,
) -> None:
    """Make an API key and print it. It is not shown again.

    \b
    Exit codes: 0, 1 the schema is not up to date, 2 bad usage, 3 the database cannot be reached.

    \b
    Example: headrace keys create ci --scope run
    """
    from headrace.cli.recorded import with_record

    async def work(database: Database) -> int:
        from headrace.record.keys import Keys

        key, secret = await Keys(database).create(name, scopes, _actor())
        if json_output:
            print_json({**_shown(key), "key": secret})
        else:
            complain(f"The key {printable(name)} ({key.id}) is made. It is shown only now: keep it.")
            put(secret)
        return 0

    sys.exit(with_record(work))


@app.command("list")
def list_keys(json_output: AsJson = False) -> None:
    """List the API keys, also the revoked ones, without their secrets.

    \b
    Exit codes: 0, 1 the schema is not up to date, 2 bad usage, 3 the database cannot be reached.

    \b
    Example: headrace keys list
    """
    from headrace.cli.recorded import with_record

    async def work(database: Database) -> int:
        from headrace.record.keys import Keys

        keys = [_shown(key) for key in await Keys(database).all()]
        if json_output:
            print_json({"items": keys})
        elif keys:
            rows = [
                (key["id"], "revoked" if key["revoked_at"] else "valid", " ".join(key["scopes"]), key["name"])
                for key in keys
            ]
            print_table(("KEY", "STATE", "SCOPES", "NAME"), rows)
        else:
            complain("There are none. API_KEYS in the environment of the API adds fixed ones.")
        return 0

    sys.exit(with_record(work))


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key.")]) -> None:
    """Revoke an API key, for good.

    \b
    Exit codes: 0, 1 there is no such key in force, 2 bad usage, 3 the database cannot be reached.

    \b
    Example: headrace keys revoke 019a8a6e-2d6c-7b0f-9d0e-3f6a1c9b2e47
    """
    from headrace.cli.recorded import with_record

    async def work(database: Database) -> int:
        from headrace.record.keys import Keys

        if not await Keys(database).revoke(key_id, _actor()):
            complain(f"headrace: there is no key {printable(key_id)} in force: `headrace keys list` shows them")
            return 1
        put(f"{printable(key_id)}: revoked")
        return 0

    sys.exit(with_record(work))


def _actor() -> str:
    """Who does this, for the audit trail."""
    import getpass

    try:
        return f"cli:{getpass.getuser()}"[:128]
    except (OSError, KeyError):
        return "cli"  # a user without a name


def _shown(key: Key) -> dict[str, Any]:
    from headrace.engine.view import timestamp

    return {
        "id": key.id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created_at": timestamp(key.created_ms),
        "revoked_at": timestamp(key.revoked_ms or 0),
    }
