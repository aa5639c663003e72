"""Group commit: submissions that arrive while one transaction is under way share the next one.

Each caller has its answer only when the transaction that holds its submission is committed. What was accepted is then
opened in the hot store, in batches too and in the background: if that fails, the reconciler does it. Its place there is
reserved before, so that one transaction is enough; a hot store that is away, or slow, is not waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from headrace.engine.opener import Opener, new_token
from headrace.errors import HeadraceError, RecordUnavailable, StoreUnavailable
from headrace.record.acceptance import Acceptance, Accepted, KeyReused, Submission
from headrace.record.openings import Wanted

TOGETHER = 100
RESERVED_WITHIN_SECONDS = 0.5
AWAY_SECONDS = 2.0  # for how long a store that was away is not asked

log = structlog.get_logger(__name__)

Result = Accepted | KeyReused


class Submissions:
    def __init__(self, acceptance: Acceptance, opener: Opener) -> None:
        self._acceptance = acceptance
        self._opener = opener
        self._waiting: list[tuple[Submission, asyncio.Future[Result]]] = []
        self._to_open: dict[str, str] = {}
        self._reserved: dict[str, tuple[Wanted, str]] = {}
        self._inputs: dict[str, str] = {}
        self._away_until = 0.0
        self._arrived, self._accepted = asyncio.Event(), asyncio.Event()
        self._committing, self._opening = asyncio.Lock(), asyncio.Lock()

    async def submit(self, submission: Submission) -> Result:
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        self._arrived.set()
        return await answer

    def open_soon(self, execution_id: str, token: str = "") -> None:
        """`token`: of a reservation that may have been made."""
        self._to_open[execution_id] = token
        self._accepted.set()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Between two batches, with all opened that was accepted. Here it may be cancelled: a transaction that is cut
        off may keep SQLite locked."""
        async with self._committing, self._opening:
            await self._open_accepted()
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
        started = (submission.execution_id for submission, _ in batch if submission.input_text is not None)
        tokens = {execution_id: new_token() for execution_id in started}
        await self._accept(batch, tokens, await self._reserve(tokens))

    async def _reserve(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Gives those that are known to be reserved."""
        if not tokens or time.monotonic() < self._away_until:
            return {}
        try:
            async with asyncio.timeout(RESERVED_WITHIN_SECONDS):
                return await self._opener.reserve(tokens)
        except (StoreUnavailable, TimeoutError):
            self._away_until = time.monotonic() + AWAY_SECONDS
            return {}

    async def _accept(
        self,
        batch: Sequence[tuple[Submission, asyncio.Future[Result]]],
        tokens: Mapping[str, str],
        epochs: Mapping[str, str],
    ) -> None:
        try:
            results = await self._acceptance.submit([submission for submission, _ in batch], epochs)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, RecordUnavailable):
                for one in batch:  # one that the database refuses must not stop the others
                    await self._accept([one], tokens, epochs)
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (submission, answer), result in zip(batch, results, strict=True):
            if isinstance(result, Accepted) and result.is_new and submission.input_text is not None:
                name = submission.execution_id
                if name in epochs:
                    self._reserved[name] = _fresh(submission, result.definition_id), epochs[name]
                    self._inputs[name] = submission.input_text
                    self._accepted.set()
                else:
                    self.open_soon(name, tokens[name])
            if not answer.done():
                answer.set_result(result)

    async def _open(self) -> None:
        while True:
            await self._accepted.wait()
            async with self._opening:
                await self._open_accepted()

    async def _open_accepted(self) -> None:
        self._accepted.clear()
        ids, self._to_open = self._to_open, {}
        fresh, self._reserved = self._reserved, {}
        inputs, self._inputs = self._inputs, {}
        if fresh:
            await _opened(self._opener.open_reserved(fresh, inputs), len(fresh))
        if ids:
            await _opened(self._opener.open(ids), len(ids))


def _fresh(one: Submission, definition_id: str) -> Wanted:
    return Wanted(one.execution_id, 1, "", "", False, definition_id, one.created_ms, 0, one.traceparent)


async def _opened(opening: Awaitable[object], count: int) -> None:
    try:
        await opening
    except (StoreUnavailable, RecordUnavailable) as error:
        log.warning("opening waits for the reconciler", count=count, error=str(error))
    except HeadraceError:
        log.exception("opening failed", count=count)
