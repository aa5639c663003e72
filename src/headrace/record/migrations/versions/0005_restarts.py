"""From which run on the earlier results of a node do not count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "restarts",
        sa.Column("execution_id", sa.String(36), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "node", name="pk_restarts"),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name="fk_restarts_execution_id", ondelete="CASCADE"
        ),
    )
