"""The Lua functions of the hot store, one typed method each; the files in lua/ say what each of them does.

Every function is safe to repeat, so repeating a call after a broken connection does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from headrace.errors import StoreFull, StoreUnavailable
from headrace.hot import codec, keys, library
from headrace.hot.wire import Command, Link, Refused
from headrace.model.messages import (
    Advanced,
    Dispatch,
    Due,
    OpenSlice,
    Outcome,
    Report,
    Reservation,
    Task,
    Token,
    Verdict,
)

RESERVATION_MS = 30_000
LOADS = 3  # of the library in one call: somebody may flush it meanwhile


class Functions:
    def __init__(self, link: Link, partitions: int) -> None:
        self._link = link
        self.partitions = partitions
        self._declared = [keys.declared(partition) for partition in range(partitions)]

    def partition_of(self, execution_id: str) -> int:
        return keys.partition_of(execution_id, self.partitions)

    async def reserve(
        self, partition: int, reservations: Sequence[Reservation], *, definition_ttl_seconds: int
    ) -> list[str]:
        fields: list[object] = [RESERVATION_MS, definition_ttl_seconds]
        for one in reservations:
            fields += (
                one.execution_id, one.token, one.old_epoch, one.last_event, one.run, one.again, one.behind
            )  # fmt: skip
        return _texts(await self._call("reserve", partition, codec.encode(fields)))

    async def open(self, partition: int, slices: Sequence[OpenSlice]) -> list[str]:
        return _texts(await self._call("open", partition, *codec.open_arguments(RESERVATION_MS, slices)))

    async def dispatch(self, partition: int, items: Sequence[Dispatch], hints: Sequence[str]) -> int:
        return int(await self._call("dispatch", partition, *codec.dispatch_arguments(items, hints)))

    async def claim(
        self, partition: int, worker: str, slots: int, lease_ms: int, handlers: Sequence[str]
    ) -> tuple[list[Task], int]:
        """The tasks, and how many were looked at: fewer than slots means that the lists are empty now."""
        tasks, read = await self._send(self._claim_command(partition, worker, slots, lease_ms, handlers))
        return codec.decode_tasks(tasks), read

    async def renew(self, partition: int, worker: str, about: str, lease_ms: int, tokens: Sequence[Token]) -> list[int]:
        """The positions of the tokens that no longer fit."""
        return _from_zero(await self._call("renew", partition, codec.renew_argument(worker, about, lease_ms, tokens)))

    async def release(self, partition: int, tasks: Sequence[Task]) -> int:
        return int(await self._call("release", partition, *codec.release_arguments(tasks)))

    async def report(self, partition: int, reports: Sequence[Report]) -> list[int]:
        """The positions of the reports that came too late to count. With children, this is `complete`; a store that is
        short of memory is not asked to take them."""
        if any(report.children is not None for report in reports):
            try:
                return _from_zero(await self._call("complete", partition, *codec.report_arguments(reports)))
            except StoreFull:
                reports = [_plain(report) for report in reports]
        return _from_zero(await self._call("report", partition, *codec.report_arguments(reports)))

    async def advance(self, partition: int, verdicts: Sequence[Verdict]) -> list[Advanced]:
        """With tasks, this is `push`; a store that is short of memory is not asked to take them."""
        arguments = codec.advance_arguments(verdicts)
        if len(arguments) > 1:
            try:
                return codec.read_advanced(await self._call("push", partition, *arguments))
            except StoreFull:
                arguments = codec.advance_arguments([msgspec.structs.replace(each, tasks=()) for each in verdicts])
        return codec.read_advanced(await self._call("advance", partition, *arguments))

    async def due(self, partition: int, most: int, lease_ms: int) -> tuple[list[Due], bool]:
        return codec.decode_due(await self._call("due", partition, codec.encode((most, lease_ms))))

    async def cancel(self, execution_id: str, run: int) -> str:
        partition = self.partition_of(execution_id)
        return str((await self._call("cancel", partition, codec.encode((execution_id, run)))).decode())

    async def forget(
        self,
        partition: int,
        items: Sequence[tuple[str, str, str]],
        *,
        definition_ttl_seconds: int,
        behind: bool = False,
    ) -> list[int]:
        """Items are (execution, epoch, last event); the answer is the positions of those that are gone."""
        fields = [definition_ttl_seconds, *(field for item in items for field in (*item, behind))]
        return _from_zero(await self._call("forget", partition, codec.encode(fields)))

    async def reject(self, partition: int, handler: str, age_ms: int, most: int, outcome: str) -> int:
        return int(await self._call("reject", partition, codec.encode((handler, age_ms, most, outcome))))

    async def leave(self, partition: int, consumers: Sequence[str]) -> int:
        """Takes orchestrators that hold nothing pending off the results."""
        return int(await self._call("leave", partition, codec.encode(consumers)))

    async def unsettled(self, partition: int) -> str:
        """Empty, if work may be claimed; else which server it is that has to be compared with the record first."""
        return str((await self._call("settle", partition, codec.encode(("",)))).decode())

    async def settle(self, partition: int, server: str) -> bool:
        """From now on work may be claimed, if it is still this server: what was older than the record is gone."""
        return not (await self._call("settle", partition, codec.encode((server,)))).decode()

    async def load_library(self) -> None:
        try:
            await self._link.call("FUNCTION", "LOAD", library.source())
        except Refused as error:
            if "already exists" not in str(error):
                raise

    def _claim_command(
        self, partition: int, worker: str, slots: int, lease_ms: int, handlers: Sequence[str]
    ) -> Command:
        lists = [keys.tasks(partition, handler) for handler in handlers]
        return self._command("claim", partition, codec.encode((worker, slots, lease_ms)), more_keys=lists)

    def _command(self, name: str, partition: int, *arguments: bytes | str, more_keys: Sequence[str] = ()) -> Command:
        declared = self._declared[partition]
        return ("FCALL", library.function(name), len(declared) + len(more_keys), *declared, *more_keys, *arguments)

    async def _call(self, name: str, partition: int, *arguments: bytes | str) -> Any:
        return await self._send(self._command(name, partition, *arguments))

    async def _send(self, command: Command) -> Any:
        for _ in range(LOADS):
            try:
                return await self._link.call(*command)
            except Refused as error:
                if not is_unknown_function(error):
                    raise
            await self.load_library()
        raise StoreUnavailable("the server loses its functions again and again")


def is_unknown_function(error: Refused) -> bool:
    """The library is not loaded there: the server is new, or was wiped."""
    return "unction not found" in str(error)


def _plain(report: Report) -> Report:
    if report.children is None:
        return report
    return Report(report.token, msgspec.json.encode(Outcome(output=report.outcome)).decode())


def _texts(answers: object) -> list[str]:
    return [answer.decode() for answer in cast("list[bytes]", answers)]


def _from_zero(positions: object) -> list[int]:
    return [position - 1 for position in cast("list[int]", positions)]
