"""Which span of a distributed trace asked for an execution."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("executions", sa.Column("traceparent", sa.String(55)))
