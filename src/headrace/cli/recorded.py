"""What the commands share that work on the SQL store itself, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import logs
from headrace.cli.output import complain
from headrace.cli.remote import UNREACHABLE, USAGE
from headrace.cli.startup import Usage, load_settings
from headrace.errors import BadValue, RecordUnavailable
from headrace.settings import Settings

if TYPE_CHECKING:  # `headrace doctor` needs no SQL where there is no database yet
    from headrace.record.database import Database


def with_record(
    work: Callable[[Database], Awaitable[int]], *, needs_schema: bool = True, makes_file: bool = False
) -> int:
    """Does the work and gives the exit code. `needs_schema`: the work needs the tables as this version has them.

    A SQLite file that is not there is made where that is wanted, and never by merely looking."""
    from headrace.record.migrations import current, newest

    logs.configure("warning")
    settings = load_settings()
    file = sqlite_file(settings)
    if file and not makes_file and not file.exists():
        complain(f"headrace: there is no database {file} yet: `headrace migrate` makes it")
        return 1

    async def run() -> int:
        async with opened(settings) as database:
            if needs_schema and await current(database) != newest():
                complain("headrace: the database's schema is not up to date: run `headrace migrate` first")
                return 1
            return await work(database)

    try:
        if file:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return asyncio.run(run())
    except (RecordUnavailable, OSError) as error:
        complain(f"headrace: {error}", "DATABASE_URL says which database; without it, it is under HEADRACE_HOME.")
        return UNREACHABLE
    except (Usage, BadValue) as error:
        complain(f"headrace: {error}")
        return USAGE


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Database]:
    from headrace.record.database import Database

    try:
        database = Database(settings.sql_url, pool_size=1)
    except Exception:  # whatever a driver makes of it; its words may have the password in them
        raise Usage(
            "DATABASE_URL cannot be used: write postgresql://user:password@host:port/name or sqlite:///path"
        ) from None
    try:
        yield database
    finally:
        await database.aclose()


def sqlite_file(settings: Settings) -> Path | None:
    """The file of the record, if it is one."""
    scheme, _, path = settings.sql_url.partition(":///")
    return Path(path.partition("?")[0]) if scheme.startswith("sqlite") else None
