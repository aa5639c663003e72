"""Group commit: submissions that arrive while one transaction is under way share the next one.

Each caller has its answer only when the transaction that holds its submission is committed. What was accepted is then
opened in the hot store, in batches too and in the background: if that fails, the reconciler does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from headrace.engine.opener import Opener
from headrace.errors import HeadraceError, RecordUnavailable, StoreUnavailable
from headrace.record.acceptance import Acceptance, Accepted, KeyReused, Submission

TOGETHER = 100

log = structlog.get_logger(__name__)

Result = Accepted | KeyReused


class Submissions:
    def __init__(self, acceptance: Acceptance, opener: Opener) -> None:
        self._acceptance = acceptance
        self._opener = opener
        self._waiting: list[tuple[Submission, asyncio.Future[Result]]] = []
        self._to_open: list[str] = []
        self._arrived, self._accepted = asyncio.Event(), asyncio.Event()
        self._committing, self._opening = asyncio.Lock(), asyncio.Lock()

    async def submit(self, submission: Submission) -> Result:
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        self._arrived.set()
        return await answer

    def open_soon(self, execution_id: str) -> None:
        self._to_open.append(execution_id)
        self._accepted.set()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Between two batches, where it may be cancelled: a transaction that is cut off may keep SQLite locked."""
        async with self._committing, self._opening:
            yield

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._commit())
            group.create_task(self._open())

    async def _commit(self) -> None:
        while True:
            await self._arrived.wait()
            batch, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            if not batch:
                self._arrived.clear()
                continue
            async with self._committing:
                await self._commit_batch(batch)

    async def _commit_batch(self, batch: Sequence[tuple[Submission, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._acceptance.submit([submission for submission, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, RecordUnavailable):
                for one in batch:  # one that the database refuses must not stop the others
                    await self._commit_batch([one])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (submission, answer), result in zip(batch, results, strict=True):
            if isinstance(result, Accepted) and result.is_new and submission.input_text is not None:
                self.open_soon(submission.execution_id)
            if not answer.done():
                answer.set_result(result)

    async def _open(self) -> None:
        while True:
            await self._accepted.wait()
            self._accepted.clear()
            ids, self._to_open = self._to_open, []
            async with self._opening:
                await self._open_batch(ids)

    async def _open_batch(self, ids: Sequence[str]) -> None:
        try:
            await self._opener.open(ids)
        except (StoreUnavailable, RecordUnavailable) as error:
            log.warning("opening waits for the reconciler", count=len(ids), error=str(error))
        except HeadraceError:
            log.exception("opening failed", count=len(ids))
