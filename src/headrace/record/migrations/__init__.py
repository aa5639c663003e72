"""The schema's history, one file per revision. `upgrade` brings a database up to date; any number may call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from headrace.record.database import Database

LOCK = 7_164_903_871  # of PostgreSQL: whoever comes second waits for the first, and finds nothing left to do


def configuration(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def newest() -> str:
    return str(ScriptDirectory.from_config(configuration()).get_current_head())


async def upgrade(database: Database, revision: str = "head") -> None:
    def run(connection: Connection) -> None:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        command.upgrade(configuration(connection), revision)

    async with database.patient() as patient, patient.write() as connection:
        await connection.run_sync(run)


async def current(database: Database) -> str | None:
    """The revision that the database has; None if it is empty."""

    def read(connection: Connection) -> Any:
        return MigrationContext.configure(connection).get_current_revision()

    async with database.read() as connection:
        found: str | None = await connection.run_sync(read)
        return found
