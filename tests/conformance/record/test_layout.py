"""The number of partitions: said once, by one, and then the same for all."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import RecordUnsupported
from headrace.record.archive import Archive
from headrace.record.database import Database
from headrace.record.layout import agree
from headrace.record.tables import partitions
from tests.conformance.record.chains import Chain
from tests.conformance.record.rows import put, rows


async def test_the_first_says_it_and_the_others_agree(database: Database) -> None:
    await agree(database, 3)
    await agree(database, 3)
    for other in (1, 2, 4):
        with pytest.raises(RecordUnsupported, match="set REDIS_PARTITIONS=3 for every role"):
            await agree(database, other)
    assert await rows(database, partitions) == [{"number": 0, "count": 3, "cursor": "0-0"}]


async def test_of_many_that_come_first_at_once_one_is_first(database_url: str) -> None:
    databases = [Database(database_url, pool_size=1) for _ in range(8)]
    wanted = [1, 2, 3, 4, 1, 2, 3, 4]
    answers = await asyncio.gather(*map(agree, databases, wanted), return_exceptions=True)
    (first,) = await rows(databases[0], partitions)
    assert [answer is None for answer in answers] == [count == first["count"] for count in wanted]
    assert all(answer is None or isinstance(answer, RecordUnsupported) for answer in answers)
    for each in databases:
        await each.aclose()


async def test_an_archive_from_before_says_it_too(database: Database) -> None:
    """Partition 0 had no event yet; and whoever is refused leaves nothing behind."""
    before = {"number": 2, "count": 3, "cursor": "7-0"}
    await put(database, partitions, before)
    with pytest.raises(RecordUnsupported, match="made with 3"):
        await agree(database, 1)
    assert await rows(database, partitions) == [before]
    await agree(database, 3)


async def test_the_archive_moves_the_cursor_and_nothing_else(database: Database) -> None:
    await agree(database, 3)
    entry = Chain(database, "nobody", "e").next(status="R")
    await Archive(database).apply(0, 1, [entry])
    assert await rows(database, partitions) == [{"number": 0, "count": 3, "cursor": entry[0]}]
