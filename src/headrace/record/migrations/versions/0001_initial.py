"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID, NAME, MS = sa.String(36), sa.String(64), sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "definitions",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_ms", MS, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_definitions"),
        sa.UniqueConstraint("name", "version", name="uq_definitions_name_version"),
        sa.UniqueConstraint("name", "content_hash", name="uq_definitions_name_content_hash"),
    )
    op.create_table(
        "executions",
        sa.Column("id", ID, nullable=False),
        sa.Column("definition_id", ID, nullable=False),
        sa.Column("workflow", NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(9), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.String(24), nullable=False),
        sa.Column("last_event", sa.String(48), nullable=False),
        sa.Column("cancelled_run", sa.Integer(), nullable=False),
        sa.Column("input", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("error_node", NAME),
        sa.Column("created_ms", MS, nullable=False),
        sa.Column("started_ms", MS),
        sa.Column("finished_ms", MS),
        sa.PrimaryKeyConstraint("id", name="pk_executions"),
        sa.ForeignKeyConstraint(["definition_id"], ["definitions.id"], name="fk_executions_definition_id"),
    )
    op.create_index("ix_executions_status_id", "executions", ["status", "id"])
    op.create_index("ix_executions_workflow_id", "executions", ["workflow", "id"])
    op.create_table(
        "attempts",
        sa.Column("execution_id", ID, nullable=False),
        sa.Column("node", NAME, nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("worker", sa.String(255)),
        sa.Column("queued_ms", MS),
        sa.Column("started_ms", MS),
        sa.Column("finished_ms", MS),
        sa.Column("due_ms", MS),
        sa.Column("output", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.PrimaryKeyConstraint("execution_id", "node", "run", "attempt", name="pk_attempts"),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name="fk_attempts_execution_id", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", ID, nullable=False),
        sa.Column("execution_id", ID, nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("node", NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("workflow", NAME, nullable=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("status", sa.String(8), nullable=False),
        sa.Column("created_ms", MS, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dead_letters"),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name="fk_dead_letters_execution_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("execution_id", "run", "node", name="uq_dead_letters_execution_id_run_node"),
    )
    op.create_index("ix_dead_letters_status_id", "dead_letters", ["status", "id"])
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at_ms", MS, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("execution_id", ID),
        sa.Column("detail", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_execution_id_id", "audit", ["execution_id", "id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("body_hash", sa.String(64), nullable=False),
        sa.Column("execution_id", ID, nullable=False),
        sa.Column("created_ms", MS, nullable=False),
        sa.PrimaryKeyConstraint("owner", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_ms", "idempotency_keys", ["created_ms"])
    op.create_table(
        "api_keys",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("created_ms", MS, nullable=False),
        sa.Column("revoked_ms", MS),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("hash", name="uq_api_keys_hash"),
    )
    op.create_table(
        "handlers",
        sa.Column("name", NAME, nullable=False),
        sa.Column("config_schema", sa.Text()),
        sa.Column("seen_ms", MS, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_handlers"),
    )
    op.create_table(
        "partitions",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("cursor", sa.String(48), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_partitions"),
    )
    op.create_table(
        "set_aside",
        sa.Column("id", ID, nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("entry", sa.String(48), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at_ms", MS, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_set_aside"),
    )
