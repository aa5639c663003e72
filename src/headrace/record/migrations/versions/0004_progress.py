"""How many nodes an execution has, and how many of them are done or have failed."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

definitions = sa.table("definitions", sa.column("id"), sa.column("body"))
executions = sa.table(
    "executions",
    *map(sa.column, ("id", "definition_id", "status", "run", "nodes", "done", "failed")),
)
attempts = sa.table("attempts", *map(sa.column, ("execution_id", "run", "state")))
sizes = sa.Table(
    "definition_sizes",
    sa.MetaData(),
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("nodes", sa.Integer()),
    prefixes=["TEMPORARY"],
)


def upgrade() -> None:
    for name in ("nodes", "done", "failed"):
        op.add_column("executions", sa.Column(name, sa.Integer()))
    connection = op.get_bind()
    sizes.create(connection)
    for definition_id in connection.scalars(sa.select(definitions.c.id)).all():  # one body at a time: they may be large
        body = connection.scalars(sa.select(definitions.c.body).where(definitions.c.id == definition_id)).one()
        connection.execute(sa.insert(sizes).values(id=definition_id, nodes=len(json.loads(body)["nodes"])))
    _fill(connection)
    sizes.drop(connection)


def _fill(connection: sa.Connection) -> None:
    """Of a COMPLETED execution all nodes are done; of the others the attempts are counted."""
    row, state = executions.c, attempts.c.state
    now = attempts.c.run == row.run
    nodes = sa.select(sizes.c.nodes).where(sizes.c.id == row.definition_id).scalar_subquery()
    is_complete = row.status == "COMPLETED"
    done = _count((state == "COMPLETED") | ((state == "SKIPPED") & now))
    failed = _count((state == "FAILED") & now)
    connection.execute(
        sa.update(executions).values(
            nodes=nodes, done=sa.case((is_complete, nodes), else_=done), failed=sa.case((is_complete, 0), else_=failed)
        )
    )


def _count(which: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    query = sa.select(sa.func.count()).select_from(attempts)
    return query.where(attempts.c.execution_id == executions.c.id, which).correlate(executions).scalar_subquery()
