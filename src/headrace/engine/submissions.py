"""Group commit: submissions that arrive while one transaction is under way share the next one.

Each caller has its answer only when the transaction that holds its submission is committed. What was accepted is then
opened in the hot store, in batches too and in the background: if that fails, the reconciler does it.

A start is reserved in the hot store before the transaction, which then writes its epoch too. No answer depends on that:
if the store does not answer at once, opening begins with the reservation, after the transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from headrace.engine.opener import Begun, Opener
from headrace.errors import HeadraceError, RecordUnavailable, StoreUnavailable
from headrace.record.acceptance import Acceptance, Accepted, KeyReused, Submission
from headrace.record.openings import Wanted

TOGETHER = 100
RESERVED_WITHIN_SECONDS = 0.25
PAUSE_SECONDS = 5.0

log = structlog.get_logger(__name__)

Result = Accepted | KeyReused


class Submissions:
    def __init__(self, acceptance: Acceptance, opener: Opener) -> None:
        self._acceptance = acceptance
        self._opener = opener
        self._waiting: list[tuple[Submission, asyncio.Future[Result]]] = []
        self._to_open: list[str] = []
        self._begun: list[Begun] = []
        self._away_until = 0.0
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
                await self._commit_batch(batch, await self._reserve([one for one, _ in batch]))

    async def _reserve(self, submissions: Sequence[Submission]) -> dict[str, str]:
        """The epochs of those that are to run, or of none while the store is away."""
        ids = [one.execution_id for one in submissions if one.input_text is not None]
        if not ids or time.monotonic() < self._away_until:
            return {}
        try:
            async with asyncio.timeout(RESERVED_WITHIN_SECONDS):
                return await self._opener.reserve_new(ids)
        except (HeadraceError, TimeoutError) as error:
            log.warning("submissions are not reserved", error=str(error) or "no answer")
            self._away_until = time.monotonic() + PAUSE_SECONDS
            return {}

    async def _commit_batch(
        self, batch: Sequence[tuple[Submission, asyncio.Future[Result]]], epochs: Mapping[str, str]
    ) -> None:
        try:
            results = await self._acceptance.submit([submission for submission, _ in batch], epochs)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, RecordUnavailable):
                for one in batch:  # one that the database refuses must not stop the others
                    await self._commit_batch([one], epochs)
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (submission, answer), result in zip(batch, results, strict=True):
            if isinstance(result, Accepted) and result.is_new and submission.input_text is not None:
                if epoch := epochs.get(submission.execution_id):
                    self._begun.append(Begun(_wanted(submission, result), epoch, submission.input_text))
                    self._accepted.set()
                else:
                    self.open_soon(submission.execution_id)
            if not answer.done():
                answer.set_result(result)

    async def _open(self) -> None:
        while True:
            await self._accepted.wait()
            self._accepted.clear()
            ids, self._to_open = self._to_open, []
            begun, self._begun = self._begun, []
            async with self._opening:
                if begun:
                    await _try(self._opener.open_begun(begun), len(begun))
                if ids:
                    await _try(self._opener.open(ids), len(ids))


async def _try(opening: Awaitable[object], count: int) -> None:
    try:
        await opening
    except (StoreUnavailable, RecordUnavailable) as error:
        log.warning("opening waits for the reconciler", count=count, error=str(error))
    except HeadraceError:
        log.exception("opening failed", count=count)


def _wanted(submission: Submission, accepted: Accepted) -> Wanted:
    """As SQL has it now, were it not for the epoch: it is not open under any yet."""
    return Wanted(
        submission.execution_id,
        run=1,
        epoch="",
        last_event="",
        is_cancelled=False,
        definition_id=accepted.definition_id,
        created_ms=submission.created_ms,
        started_ms=0,
        traceparent=submission.traceparent,
    )
