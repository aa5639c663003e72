"""What handlers logged, by attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "logs",
        sa.Column("execution_id", sa.String(36), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "run", "node", "attempt", name="pk_logs"),
        sa.ForeignKeyConstraint(["execution_id"], ["executions.id"], name="fk_logs_execution_id", ondelete="CASCADE"),
    )
