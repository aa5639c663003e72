"""The hot store's streams: hints, events, cancellations, bells of the task lists, and what handlers logged.

Blocking reads have connections of their own, whose timeout lies above their BLOCK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import structlog

from headrace.hot import codec, keys
from headrace.hot.functions import Functions, is_unknown_function
from headrace.hot.wire import Address, Argument, BlockingLinks, Command, Link, Refused
from headrace.model.messages import Event, Hint, Task, Token

MOST_ENTRIES = 1000  # in one answer
BLOCK_MARGIN_SECONDS = 10.0
MOST_LOGS = 10_000

log = structlog.get_logger(__name__)


class Streams(Functions):
    def __init__(self, url: str, partitions: int, socket_timeout: float, block_ms: int) -> None:
        self.block_ms = block_ms
        address = Address.parse(url)
        super().__init__(Link(address, socket_timeout), partitions)
        patience = block_ms / 1000 + BLOCK_MARGIN_SECONDS
        self._blocking = BlockingLinks(lambda: Link(address, patience, repeats=False))

    async def aclose(self) -> None:
        await self._blocking.aclose()
        await self._link.aclose()

    # ---- hints

    async def read_hints(self, partition: int, consumer: str, most: int) -> list[tuple[str, Hint]]:
        """Blocks for new hints; they stay pending for this consumer until `advance` or `dispatch` acknowledges them."""
        answer = await self._grouped(
            partition, True, "XREADGROUP", "GROUP", keys.RESULTS_GROUP, consumer, "COUNT", most,
            "BLOCK", self.block_ms, "STREAMS", self._key("results", partition), ">",
        )  # fmt: skip
        return _hints(answer[0][1]) if answer else []

    async def own_pending_hints(self, partition: int, consumer: str, after: str, most: int) -> list[tuple[str, Hint]]:
        """What this consumer has read and not acknowledged."""
        answer = await self._grouped(
            partition, False, "XREADGROUP", "GROUP", keys.RESULTS_GROUP, consumer, "COUNT", most,
            "STREAMS", self._key("results", partition), after,
        )  # fmt: skip
        return _hints(answer[0][1]) if answer else []

    async def take_over_hints(self, partition: int, consumer: str, idle_ms: int, most: int) -> list[tuple[str, Hint]]:
        """Hints that another consumer read long ago and did not finish with: it died, or it is stuck."""
        answer = await self._grouped(
            partition, False, "XAUTOCLAIM", self._key("results", partition), keys.RESULTS_GROUP, consumer, idle_ms,
            "0-0", "COUNT", most,
        )  # fmt: skip
        return _hints(answer[1]) if answer else []

    async def drop_idle_consumers(self, partition: int, idle_ms: int) -> None:
        """Forgets orchestrators that are gone and have nothing pending."""
        answer = await self._grouped(
            partition, False, "XINFO", "CONSUMERS", self._key("results", partition), keys.RESULTS_GROUP
        )
        found = [dict(zip(one[::2], one[1::2], strict=True)) for one in answer or ()]
        gone = [one[b"name"].decode() for one in found if one[b"idle"] > idle_ms]
        if gone:
            await self.leave(partition, gone)

    # ---- the other streams

    async def wait_for_tasks(self, partition: int, handlers: Sequence[str], heard: dict[str, str]) -> None:
        """Blocks until the bell of one of the handlers rings, or did since it was last `heard`, where that is noted.

        Who claims only after hearing, and waits only after finding nothing, misses no task."""
        _note_bells(await self._blocking.call(*self._listen(partition, handlers, heard)), heard)

    async def claim_when_called(
        self, partition: int, worker: str, slots: int, lease_ms: int, handlers: Sequence[str], *, heard: dict[str, str]
    ) -> tuple[list[Task], int]:
        """`wait_for_tasks` and then `claim`, sent together: the server claims in the moment in which the bell rings,
        without a round trip in between. To give it up would lose what it claims; `ring` ends it."""
        listen = self._listen(partition, handlers, heard)
        claim = self._claim_command(partition, worker, slots, lease_ms, handlers)
        try:
            rung, (tasks, read) = await self._blocking.call_both(listen, claim)
        except Refused as error:
            if not is_unknown_function(error):
                raise
            return await self.claim(partition, worker, slots, lease_ms, handlers)
        _note_bells(rung, heard)
        return codec.decode_tasks(tasks), read

    def _listen(self, partition: int, handlers: Sequence[str], heard: dict[str, str]) -> Command:
        bells = [keys.bell(partition, handler) for handler in handlers]
        after = [heard.get(bell, "0-0") for bell in bells]
        return ("XREAD", "BLOCK", self.block_ms, "STREAMS", *bells, *after)

    async def ring(self, partition: int, handler: str) -> None:
        """Wakes whoever waits for tasks of this handler."""
        await self._link.call("XADD", keys.bell(partition, handler), "MAXLEN", 1, "*", "t", "")

    async def read_control(self, partition: int, after: str) -> tuple[str, list[tuple[str, str]]]:
        """Blocks until cancellations come: (id to go on from, [(execution, epoch)])."""
        entries = await self._read("control", partition, after, MOST_ENTRIES, block=True)
        cancelled = [(execution_id, epoch) for _, (_, text) in entries for execution_id, epoch in [_pair(text)]]
        return (entries[-1][0].decode() if entries else after), cancelled

    async def last_control(self, partition: int) -> str:
        newest = await self._link.call("XREVRANGE", self._key("control", partition), "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

    async def read_events(
        self, partition: int, after: str, most: int = MOST_ENTRIES, *, block: bool = True
    ) -> list[tuple[str, Event]]:
        entries = await self._read("events", partition, after, most, block=block)
        return [(entry_id.decode(), event) for entry_id, fields in entries for event in codec.read_events(fields)]

    async def last_event(self, partition: int) -> str:
        newest = await self._link.call("XREVRANGE", self._key("events", partition), "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

    async def trim_events(self, partition: int, through: str) -> None:
        """Drops the events up to and including this one."""
        ms, seq = through.split("-")
        await self._link.call("XTRIM", self._key("events", partition), "MINID", "=", f"{ms}-{int(seq) + 1}")

    async def keep_logs(self, partition: int, logged: Sequence[tuple[Token, str]]) -> None:
        """What handlers logged, until the archiver takes it; of too much the oldest goes."""
        command = ("XADD", self._key("logs", partition), "MAXLEN", "~", MOST_LOGS, "*")
        await self._link.call_all(
            [(*command, "@", "|".join(map(str, codec.token_fields(token))), "l", text) for token, text in logged]
        )

    async def read_logs(self, partition: int, most: int) -> list[tuple[str, Token, str]]:
        entries = await self._link.call("XRANGE", self._key("logs", partition), "-", "+", "COUNT", most)
        found: list[tuple[str, Token, str]] = []
        for entry_id, (_, token, _, text) in entries:
            execution_id, epoch, run, node, attempt = token.decode().split("|")
            found.append((entry_id.decode(), Token(execution_id, epoch, int(run), node, int(attempt)), text.decode()))
        return found

    async def drop_logs(self, partition: int, through: str) -> None:
        ms, seq = through.split("-")
        await self._link.call("XTRIM", self._key("logs", partition), "MINID", "=", f"{ms}-{int(seq) + 1}")

    # ---- inside

    def _key(self, name: str, partition: int) -> str:
        return keys.prefix(partition) + name

    async def _read(self, name: str, partition: int, after: str, most: int, *, block: bool) -> list[Any]:
        command = ("XREAD", "COUNT", most, *(("BLOCK", self.block_ms) if block else ()))
        link = self._blocking if block else self._link
        answer = await link.call(*command, "STREAMS", self._key(name, partition), after)
        return answer[0][1] if answer else []

    async def _grouped(self, partition: int, block: bool, *command: Argument) -> Any:
        """A command on the results group; where that is gone (the store was wiped), it is made and nothing is there."""
        try:
            return await (self._blocking if block else self._link).call(*command)
        except Refused as error:
            if not str(error).startswith(("NOGROUP", "ERR no such key")):
                raise
        await self.make_group(partition)
        return None

    async def make_group(self, partition: int) -> None:
        try:
            await self._link.call(
                "XGROUP", "CREATE", self._key("results", partition), keys.RESULTS_GROUP, "0", "MKSTREAM"
            )
        except Refused as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _note_bells(answer: Any, heard: dict[str, str]) -> None:
    for bell, entries in answer or ():
        heard[bell.decode()] = entries[-1][0].decode()


def _pair(raw: bytes) -> tuple[str, str]:
    execution_id, epoch = raw.decode().split("|")
    return execution_id, epoch


def _hints(entries: Iterable[Any]) -> list[tuple[str, Hint]]:
    """Several of them share an entry. What another version wrote in its own way stays pending, for those who can read
    it."""
    found: list[tuple[str, Hint]] = []
    for entry_id, fields in entries:
        try:
            found += [(entry_id.decode(), hint) for hint in codec.read_hints(fields)]
        except (ValueError, IndexError):
            log.exception("hints cannot be read", entry=entry_id.decode())
    return found
