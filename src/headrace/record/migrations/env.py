"""What Alembic runs for each command: our tables, on the connection that migrations/__init__.py gives."""

from __future__ import annotations

from alembic import context

from headrace.record.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
context.run_migrations()  # within the transaction of whoever called
