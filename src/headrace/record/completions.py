"""Completions that stand: a node keeps the output of an earlier run, unless it was restarted in a run since then.

Whoever reads results over several runs asks here, so that opening, rebuilding, showing and counting never differ.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Join, and_, func

from headrace.record.tables import attempts, restarts

ATTEMPTS: Final[Join] = attempts.outerjoin(
    restarts,
    and_(restarts.c.execution_id == attempts.c.execution_id, restarts.c.node == attempts.c.node),
)
STANDS: Final[ColumnElement[bool]] = and_(
    attempts.c.state == "COMPLETED", attempts.c.run >= func.coalesce(restarts.c.run, 0)
)
