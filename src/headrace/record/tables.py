"""Every table of the record. The migrations make exactly this; a test compares.

Times are milliseconds since 1970, UTC. Payloads are JSON as text: nothing here looks into them. An execution's id is a
UUIDv7, so ids sort by the time of creation.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    case,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

ID = String(36)
NAME = String(64)

# The same content under the same name is the same version.
definitions = Table(
    "definitions",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("content_hash", String(64), nullable=False),
    Column("body", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("name", "version"),
    UniqueConstraint("name", "content_hash"),
)

# `epoch` and `last_event` say how far the hot store's events have been applied: an event is applied only if it has this
# epoch and follows this one. `cancelled_run` is the last run that somebody cancelled. `traceparent` came with the
# request for the last run, or with an earlier one. `done` counts nodes that are COMPLETED or SKIPPED, `failed` those
# that are FAILED; both are null from the request for a next run until it is opened. `error` is the run's first one.
executions = Table(
    "executions",
    metadata,
    Column("id", ID, primary_key=True),
    Column("definition_id", ID, ForeignKey("definitions.id"), nullable=False),
    Column("workflow", NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("status", String(9), nullable=False),
    Column("run", Integer, nullable=False),
    Column("epoch", String(24), nullable=False),
    Column("last_event", String(48), nullable=False),
    Column("cancelled_run", Integer, nullable=False),
    Column("input", Text),
    Column("error", Text),
    Column("error_node", NAME),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("traceparent", String(55)),
    Column("nodes", Integer),
    Column("done", Integer),
    Column("failed", Integer),
    Index(None, "status", "id"),
    Index(None, "workflow", "id"),
)

# What users see as an execution's error. With on_failure: continue it may have one already, and still run.
failed_with = case((executions.c.status == "FAILED", executions.c.error)).label("error")

# One row per attempt; a node that was skipped has the attempt that it never started.
attempts = Table(
    "attempts",
    metadata,
    Column("execution_id", ID, ForeignKey("executions.id", ondelete="CASCADE"), primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("state", String(9), nullable=False),
    Column("worker", String(255)),
    Column("queued_ms", BigInteger),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("due_ms", BigInteger),
    Column("output", Text),
    Column("error", Text),
    Column("reason", Text),
)

# Nodes that were asked to run again although they were COMPLETED: what they did before this run does not count.
restarts = Table(
    "restarts",
    metadata,
    Column("execution_id", ID, ForeignKey("executions.id", ondelete="CASCADE"), primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("run", Integer, nullable=False),
)

# What handlers logged through ctx.log, as a JSON list; for people to read.
logs = Table(
    "logs",
    metadata,
    Column("execution_id", ID, ForeignKey("executions.id", ondelete="CASCADE"), primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("lines", Text, nullable=False),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", ID, primary_key=True),
    Column("execution_id", ID, ForeignKey("executions.id", ondelete="CASCADE"), nullable=False),
    Column("run", Integer, nullable=False),
    Column("node", NAME, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("workflow", NAME, nullable=False),
    Column("cause", String(32), nullable=False),
    Column("error", Text, nullable=False),
    Column("status", String(8), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("execution_id", "run", "node"),
    Index(None, "status", "id"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", ID, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(32), nullable=False),
    Column("execution_id", ID),
    Column("detail", Text),
    Index(None, "execution_id", "id"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("owner", String(128), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("body_hash", String(64), nullable=False),
    Column("execution_id", ID, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index(None, "created_ms"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
)

handlers = Table(
    "handlers",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("config_schema", Text),
    Column("seen_ms", BigInteger, nullable=False),
)

# How far each partition's events have been read, and with how many partitions the ids were spread.
partitions = Table(
    "partitions",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("cursor", String(48), nullable=False),
)

# Events that could not be applied, for somebody to look at.
set_aside = Table(
    "set_aside",
    metadata,
    Column("id", ID, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("entry", String(48), nullable=False),
    Column("reason", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)
