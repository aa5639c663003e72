"""The schema's history, one file per revision. `upgrade` brings a database up to date; any number may call it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from headrace.record.database import Database

if TYPE_CHECKING:  # Alembic takes long to import, and almost always there is nothing to upgrade
    from alembic.config import Config

HERE = Path(__file__).parent
LOCK = 7_164_903_871  # of PostgreSQL: whoever comes second waits for the first, and finds nothing left to do


def configuration(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["connection"] = connection
    return config


def revisions() -> list[str]:
    """All of them, oldest first: the name of a file begins with its revision."""
    return sorted(file.name.partition("_")[0] for file in (HERE / "versions").glob("[0-9]*.py"))


def newest() -> str:
    return revisions()[-1]


async def upgrade(database: Database, revision: str = "head") -> None:
    from alembic import command

    def run(connection: Connection) -> None:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        command.upgrade(configuration(connection), revision)

    async with database.patient() as patient, patient.write() as connection:
        await connection.run_sync(run)


async def current(database: Database) -> str | None:
    """The revision that the database has; None if it is empty."""

    def read(connection: Connection) -> str | None:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found

    async with database.read() as connection:
        return await connection.run_sync(read)
