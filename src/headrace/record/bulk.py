"""A statement that is executed for many rows at once, compiled one time.

SQLAlchemy would go through the statement and each row anew, which takes longer than the database takes to write them.
So this is for statements whose values need no conversion: text, whole numbers and nothing.

PostgreSQL gets all rows in one statement, each column as an array: row by row it would begin and end as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import ARRAY, BindParameter, Connection, Insert, bindparam, column, func, select
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.visitors import replacement_traverse


class Bulk:
    """Each row gives all values, and no two are for the same row of the table. `columns`: which these are, where the
    statement does not name them itself and they are not all of the table."""

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None) -> None:
        self._statement, self._columns = statement, columns
        self._compiled: tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]] | None = None

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        by_column = connection.dialect.name == "postgresql"
        if self._compiled is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            if by_column:
                compiled = _from_arrays(self._statement, compiled.binds).compile(dialect=connection.dialect)
            self._compiled = str(compiled), itemgetter(*compiled.positiontup)
        text, values = self._compiled
        if by_column:
            connection.exec_driver_sql(text, tuple(zip(*map(values, rows), strict=True)))
        else:
            connection.exec_driver_sql(text, list(map(values, rows)))


def _from_arrays(statement: UpdateBase, binds: Mapping[str, BindParameter[Any]]) -> UpdateBase:
    """The statement with an array in the place of each value. Its type has no length: a cast would cut off what is too
    long, and the table would not refuse it."""
    arrays = (bindparam(name, type_=ARRAY(type(bind.type)())) for name, bind in binds.items())
    given = func.unnest(*arrays).table_valued(*map(column, binds)).render_derived()
    if isinstance(statement, Insert):
        return statement.from_select(list(binds), select(given))

    def as_given(element: Any, **_: Any) -> Any:
        return given.c[element.key] if isinstance(element, BindParameter) else None

    return cast(UpdateBase, replacement_traverse(statement, {}, as_given))
