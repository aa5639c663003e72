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
        text, values = self._compiled or self._compile(connection)
        connection.exec_driver_sql(text, [values(row) for row in rows])

    def execute_in_order(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows that have the values of an insert in the order of the table."""
        text, _ = self._compiled or self._compile(connection)
        connection.exec_driver_sql(text, rows)

    def _compile(self, connection: Connection) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
        compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
        self._compiled = str(compiled), itemgetter(*compiled.positiontup)
        return self._compiled
