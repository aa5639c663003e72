"""A statement that is executed for many rows at once, compiled one time.

SQLAlchemy would go through the statement and each row anew, which takes longer than the database takes to write them.
So this is for statements whose values need no conversion: text, whole numbers and nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql.dml import UpdateBase


class Bulk:
    """Each row gives all values. `columns`: which these are, where the statement does not name them itself and they are
    not all of the table."""

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None) -> None:
        self._statement, self._columns = statement, columns
        self._compiled: tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]] | None = None

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._compiled is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            self._compiled = str(compiled), itemgetter(*compiled.positiontup)
        text, values = self._compiled
        connection.exec_driver_sql(text, list(map(values, rows)))
