"""The hot store: its functions, its streams, and here the plain reads and writes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from headrace.errors import StoreUnsupported
from headrace.hot import codec, keys
from headrace.hot.streams import Streams
from headrace.hot.wire import Argument
from headrace.model.messages import Execution, Record, Token

OLDEST_SERVER = (7, 0)
SLICE = 1000  # names in one command
REPLY_BYTES = 4 << 20  # about what one reply may hold


class HotStore(Streams):
    def __init__(self, url: str, *, partitions: int = 1, socket_timeout: float = 10.0, block_ms: int = 5000) -> None:
        self.another = partial(
            HotStore, url, partitions=partitions, socket_timeout=socket_timeout, block_ms=block_ms
        )  # connections belong to an event loop: a thread with its own needs a store of its own
        super().__init__(url, partitions, socket_timeout, block_ms)

    async def prepare(self) -> None:
        """Refuses a server that we must not run on, and makes what has to be there."""
        info = _info(await self._link.call("INFO"))
        version = info.get("valkey_version") or info.get("redis_version", "0.0")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
            raise StoreUnsupported(f"the server is version {version}; Headrace needs Valkey or Redis 7.0 or newer")
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise StoreUnsupported(
                f"the server's maxmemory-policy is {policy}, which may delete running workflows: set it to noeviction"
            )
        await self.load_library()
        await self._agree_on_partitions()
        for partition in range(self.partitions):
            await self.make_group(partition)

    async def _agree_on_partitions(self) -> None:
        """The first says how many there are: a worker, which has no record, would find nothing with another number."""
        meta = self._key("meta", 0)
        await self._link.call("HSETNX", meta, "partitions", self.partitions)
        known = int(await self._link.call("HGET", meta, "partitions") or self.partitions)  # wiped meanwhile
        if known != self.partitions:
            raise StoreUnsupported(
                f"REDIS_PARTITIONS is {self.partitions}, and the server is used with {known}: set it to {known} for "
                'every role. To change it, follow "Partitions" in docs/operations.md.'
            )

    async def put_definition(self, partition: int, content_hash: str, text: str, ttl_seconds: int) -> None:
        """Kept for a while; `open` makes it stay for as long as an execution uses it."""
        key = keys.definition(partition, content_hash)
        if not await self._link.call("SET", key, text, "EX", ttl_seconds, "NX"):
            await self._link.call("EXPIRE", key, ttl_seconds, "GT")

    async def definition(self, partition: int, content_hash: str) -> bytes | None:
        found: bytes | None = await self._link.call("GET", keys.definition(partition, content_hash))
        return found

    async def definition_bytes(self, partition: int, content_hash: str) -> int:
        return int(await self._link.call("STRLEN", keys.definition(partition, content_hash)))

    async def has_definition(self, partition: int, content_hash: str) -> bool:
        return bool(await self._link.call("EXISTS", keys.definition(partition, content_hash)))

    async def drop_definition(self, partition: int, content_hash: str) -> None:
        await self._link.call("DEL", keys.definition(partition, content_hash))

    async def execution(self, execution_id: str) -> Execution | None:
        key = keys.execution(self.partition_of(execution_id), execution_id)
        values = await self._link.call("HMGET", key, *codec.EXECUTION_FIELDS)
        return codec.read_execution(values)

    async def executions(self, ids: Sequence[str]) -> list[Execution | None]:
        """Several of one round trip's length each; those of a format that is not ours are refused by the functions."""
        found: list[Execution | None] = []
        for start in range(0, len(ids), SLICE):
            commands: list[tuple[Argument, ...]] = [
                ("HMGET", keys.execution(self.partition_of(one), one), *codec.EXECUTION_FIELDS)
                for one in ids[start : start + SLICE]
            ]
            found += map(codec.read_execution, await self._link.call_all(commands))
        return found

    async def records(self, execution_id: str, names: Sequence[str]) -> list[Record]:
        key = keys.execution(self.partition_of(execution_id), execution_id)
        found: list[Record] = []
        for start in range(0, len(names), SLICE):
            raw = await self._link.call("HMGET", key, *names[start : start + SLICE])
            found += map(codec.read_record, raw)
        return found

    async def records_of_many(self, wanted: Sequence[tuple[str, Sequence[str]]]) -> list[list[Record]]:
        """Of several executions, in one round trip; the caller bounds how many names that are in all."""
        commands: list[tuple[Argument, ...]] = [
            ("HMGET", keys.execution(self.partition_of(one), one), *names) for one, names in wanted
        ]
        return [[codec.read_record(raw) for raw in values] for values in await self._link.call_all(commands)]

    async def timer_times(self, timers: Sequence[tuple[str, Token]]) -> list[int]:
        """When timers of this kind ("L" lease, "T" retry, "X" deadline) and attempt are due, in ms; 0: no timer."""
        commands: list[tuple[Argument, ...]] = [
            (
                "ZSCORE",
                self._key("timers", self.partition_of(token.execution_id)),
                "|".join((kind, *map(str, codec.token_fields(token)))),
            )
            for kind, token in timers
        ]
        found: list[int] = []
        for start in range(0, len(commands), SLICE):
            found += [int(float(score or 0)) for score in await self._link.call_all(commands[start : start + SLICE])]
        return found

    async def orchestrated_ms(self, partition: int) -> int:
        """When an orchestrator last looked at the partition's timers; 0: never."""
        return int(await self._link.call("HGET", self._key("meta", partition), "due") or 0)

    async def outputs(self, execution_id: str, names: Sequence[str], *, most_bytes: int) -> dict[str, str] | None:
        """The outputs that are there, fetched in slices that grow while outputs are small; None: more than allowed."""
        key = keys.execution(self.partition_of(execution_id), execution_id)
        found: dict[str, str] = {}
        size, start, step = 0, 0, 32
        while start < len(names):
            wanted = names[start : start + step]
            values: list[bytes | None] = await self._link.call("HMGET", key, *map(keys.output_field, wanted))
            for name, value in zip(wanted, values, strict=True):
                if value is not None:
                    size += len(value)
                    found[name] = value.decode()
            if size > most_bytes:
                return None
            start += step
            step = max(1, min(SLICE, REPLY_BYTES * start // max(size, 1)))
        return found

    async def outputs_of_many(
        self, wanted: Sequence[tuple[str, Sequence[str]]], *, most_bytes: int
    ) -> list[dict[str, str]]:
        """Outputs of several executions in few round trips. Past `most_bytes` the rest is left out."""
        found: list[dict[str, str]] = []
        size, step = 0, 32
        while len(found) < len(wanted) and size <= most_bytes:
            some = wanted[len(found) : len(found) + step]
            commands: list[tuple[Argument, ...]] = [
                (
                    "HMGET",
                    keys.execution(self.partition_of(execution_id), execution_id),
                    *map(keys.output_field, names),
                )
                for execution_id, names in some
            ]
            for (_, names), values in zip(some, await self._link.call_all(commands), strict=True):
                there = {name: value.decode() for name, value in zip(names, values, strict=True) if value is not None}
                size += sum(map(len, there.values()))
                found.append(there)
            step = max(1, min(SLICE, REPLY_BYTES * len(found) // max(size, 1)))
        return found + [{} for _ in range(len(wanted) - len(found))]

    async def workers(self, partition: int) -> dict[str, tuple[int, str]]:
        """Worker -> (time of its last heartbeat in ms, what it told about itself)."""
        flat = await self._link.call("HGETALL", self._key("workers", partition))
        found: dict[str, tuple[int, str]] = {}
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            seen_ms, _, about = value.decode().partition("|")
            found[name.decode()] = (int(seen_ms), about)
        return found

    async def offer(self, schemas: Mapping[str, str]) -> None:
        """What handlers a worker brings, each with the JSON Schema of its config: definitions are checked by it."""
        if schemas:
            await self._link.call(
                "HSET", self._key("handlers", 0), *(part for pair in schemas.items() for part in pair)
            )

    async def offered(self) -> dict[str, str]:
        flat = await self._link.call("HGETALL", self._key("handlers", 0))
        return {name.decode(): text.decode() for name, text in zip(flat[::2], flat[1::2], strict=True)}

    async def drop_worker(self, partition: int, worker: str) -> None:
        await self._link.call("HDEL", self._key("workers", partition), worker)

    async def queues(self, partition: int) -> dict[str, int]:
        """Handler -> number of waiting tasks."""
        names = await self._link.call("SMEMBERS", self._key("queues", partition))
        handlers = sorted(name.decode() for name in names)
        depths = await self._link.call_all([("LLEN", keys.tasks(partition, handler)) for handler in handlers])
        return dict(zip(handlers, depths, strict=True))

    async def queue_ages(self, partition: int) -> dict[str, tuple[int, int]]:
        """Handler -> (number of waiting tasks, since when the first of them waits, in ms, or 0)."""
        depths = await self.queues(partition)
        heads = await self._link.call_all([("LINDEX", keys.tasks(partition, handler), 0) for handler in depths])
        first = [codec.decode_task(head) if head else None for head in heads]
        packed = await self._link.call_all(
            [("HGET", keys.execution(partition, task.execution_id), task.node) for task in first if task]
        )
        since = iter(codec.read_record(one).queued_ms for one in packed)
        return {
            handler: (depth, next(since) if task else 0)
            for (handler, depth), task in zip(depths.items(), first, strict=True)
        }

    async def hold(self, partition: int, duty: str, holder: str, ms: int) -> bool:
        """Whether this holder has a periodic duty now. It only keeps two from doing the same: either one may."""
        key = self._key(f"duty:{duty}", partition)
        if await self._link.call("SET", key, holder, "NX", "PX", ms):
            return True
        if await self._link.call("GET", key) != holder.encode():
            return False
        await self._link.call("PEXPIRE", key, ms)
        return True

    async def count_request(self, client: str, window: int, window_seconds: int) -> tuple[int, int]:
        """One more of this client in this window of time: how many there are now, and were in the window before."""
        key = self._key(f"rate:{client}:", self.partition_of(client))
        now, _, before = await self._link.call_all(
            [
                ("INCR", f"{key}{window}"),
                ("EXPIRE", f"{key}{window}", 2 * window_seconds),
                ("GET", f"{key}{window - 1}"),
            ]
        )
        return now, int(before or 0)

    async def uncount_request(self, client: str, window: int) -> None:
        await self._link.call("DECR", self._key(f"rate:{client}:{window}", self.partition_of(client)))

    async def count(self, partition: int, counts: Mapping[str, int]) -> None:
        """Adds to the sums that /metrics shows."""
        key = self._key("metrics", partition)
        await self._link.call_all([("HINCRBY", key, name, by) for name, by in counts.items()])

    async def counted(self, partition: int) -> dict[str, int]:
        flat = await self._link.call("HGETALL", self._key("metrics", partition))
        return {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}

    async def held_executions(self, partition: int, cursor: str, most: int = SLICE) -> tuple[str, list[str]]:
        """Ids of executions that the store has, page by page: (cursor of the next page, ids); it ends with "0"."""
        prefix = keys.execution(partition, "")
        pattern = prefix.replace("{", "\\{").replace("}", "\\}") + "*"
        after, found = await self._link.call("SCAN", cursor, "MATCH", pattern, "COUNT", most)
        return after.decode(), [key.decode().removeprefix(prefix) for key in found]

    async def now_ms(self) -> int:
        """The server's clock: the only one that decides anything."""
        seconds, microseconds = await self._link.call("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000


def _info(raw: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in raw.decode().splitlines())
    return {name: value for name, separator, value in lines if separator}
