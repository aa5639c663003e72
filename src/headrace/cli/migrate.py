"""`headrace migrate`: the schema of the SQL store, up to date. Any number may run at once: they wait for each other."""

from __future__ import annotations

from headrace.cli.output import complain, put
from headrace.cli.recorded import with_record
from headrace.record.database import Database
from headrace.record.facts import is_known
from headrace.record.migrations import current, newest, upgrade


def migrate(*, only_check: bool) -> int:
    return with_record(_check if only_check else _migrate, needs_schema=False, makes_file=not only_check)


async def _check(database: Database) -> int:
    found = await current(database)
    if found == newest():
        put(f"The schema is up to date: revision {found}.")
        return 0
    if found and not is_known(found):
        return _too_new(found)
    complain(f"headrace: the schema is at {_named(found)}, and {newest()} is needed: run `headrace migrate`")
    return 1


async def _migrate(database: Database) -> int:
    before = await current(database)
    if before and not is_known(before):
        return _too_new(before)
    await upgrade(database)
    if before == newest():
        put(f"The schema is up to date: revision {before}.")
    else:
        put(f"The schema went from {_named(before)} to revision {newest()}.")
    return 0


def _too_new(found: str) -> int:
    complain(f"headrace: the schema is at revision {found}, which is newer than this version: upgrade Headrace")
    return 1


def _named(revision: str | None) -> str:
    return f"revision {revision}" if revision else "nothing (an empty database)"
