"""The events of one execution as the hot store writes them: each names its epoch and the one before."""

from __future__ import annotations

import itertools

import msgspec

from headrace.model.messages import Change, Event, Failure
from headrace.record.archive import Applied, Archive
from headrace.record.database import Database

_numbers = itertools.count(1)


def failure(code: str, message: str = "why", *, retryable: bool = False) -> str:
    return msgspec.json.encode(Failure(code, message, retryable=retryable)).decode()


class Chain:
    def __init__(self, database: Database, execution_id: str, epoch: str, *, run: int = 1, partition: int = 0) -> None:
        self._archive = Archive(database)
        self._execution_id, self._epoch, self._run = execution_id, epoch, run
        self._partition = partition
        self.last = ""

    def next(self, *changes: Change, status: str = "", error: str = "", at_ms: int = 1) -> tuple[str, Event]:
        """The next entry of the outbox, not yet delivered to anybody."""
        event = Event(self._execution_id, self._epoch, self._run, 0, self.last, at_ms, status, error, changes)
        self.last = f"{next(_numbers)}-0"
        return self.last, event

    async def add(self, *changes: Change, status: str = "", error: str = "", at_ms: int = 1) -> Applied:
        """... and applied."""
        return await self._archive.apply(
            self._partition, 1, [self.next(*changes, status=status, error=error, at_ms=at_ms)]
        )
