"""Connections to Valkey: hiredis on a transport, and nothing between them.

A `Wire` is one connection. Any number of callers use it at once: commands go out in the order of the calls and answers
come back in that order, so concurrent calls are pipelined by themselves. A general client costs three to four times as
much per call, which is most of what a hop of a workflow costs.

A `Link` keeps a wire to one server: it connects when it is used, and repeats a command after a broken connection, which
is right because every command that we send is safe to repeat. Blocking commands hold their connection, so a
`BlockingLinks` lends one out for each. A cancelled one is thrown away, because its answer would reach somebody else;
and none is repeated: the caller must know that hints may have been delivered to it and lost.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from headrace.errors import StoreFull, StoreUnavailable, StoreUnsupported

CONNECT_WITHIN_SECONDS = 5.0
REPEAT_AFTER_SECONDS = (0.05, 0.2, 0.5)

# Answers that say "not now" rather than "never".
NOT_NOW = ("LOADING", "MASTERDOWN", "READONLY", "BUSY ", "TRYAGAIN", "CLUSTERDOWN", "OOM", "MISCONF", "NOREPLICAS")
NEVER = ("NOAUTH", "WRONGPASS", "NOPERM", "FORMAT", "TRANSITION")

Argument = bytes | str | int | float
Command = tuple[Argument, ...]
Answer = TypeVar("Answer")


class Refused(Exception):
    """The server's own word that a command is wrong."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: redis://[[user]:password@]host[:port][/db], rediss://... or unix:///path[?db=n]."""

    path: str | None
    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None
    db: int

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise StoreUnsupported("the address of Valkey must begin with redis://, rediss:// or unix://")
        unix = parts.scheme == "unix"
        named_db = parse_qs(parts.query).get("db", [""])[0] or ("" if unix else parts.path.strip("/"))
        try:
            port, db = parts.port or 6379, int(named_db or 0)
        except ValueError:
            raise StoreUnsupported("the port and the database of Valkey's address must be numbers") from None
        return cls(
            path=unquote(parts.path) if unix else None,
            host=parts.hostname or "127.0.0.1",
            port=port,
            tls=parts.scheme == "rediss",
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            db=db,
        )

    def __str__(self) -> str:
        """Without what is secret."""
        return self.path or f"{self.host}:{self.port}"


class Wire(asyncio.Protocol):
    """One connection. `timeout_seconds` bounds the wait for any answer; past it the connection is given up."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._error: Exception | None = None

    @classmethod
    async def connect(cls, address: Address, timeout_seconds: float) -> Wire:
        loop = asyncio.get_running_loop()

        def make() -> Wire:
            return cls(timeout_seconds)

        try:
            async with asyncio.timeout(CONNECT_WITHIN_SECONDS):
                if address.path is not None:
                    _, wire = await loop.create_unix_connection(make, address.path)
                else:
                    secure = ssl.create_default_context() if address.tls else None
                    _, wire = await loop.create_connection(make, address.host, address.port, ssl=secure)
                try:
                    await wire._introduce(address)
                except BaseException:
                    wire.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise StoreUnavailable(f"cannot reach Valkey at {address}: {error or 'no answer'}") from error
        return wire

    async def _introduce(self, address: Address) -> None:
        if address.password is not None:
            login = (address.username, address.password) if address.username else (address.password,)
            await self.call("AUTH", *login)
        if address.db:
            await self.call("SELECT", address.db)

    @property
    def is_open(self) -> bool:
        return self._error is None

    def call(self, *command: Argument) -> asyncio.Future[Any]:
        """The answer to come. An error that the server answers is raised by the future."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._error is not None or self._transport is None:
            answer.set_exception(StoreUnavailable("the connection to Valkey is closed"))
            return answer
        self._waiting.append((answer, self._loop.time()))
        self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look)
        return answer

    def close(self) -> None:
        self._end(StoreUnavailable("the connection to Valkey was closed"))

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                waiting, _ = self._waiting.popleft()
                if waiting.done():
                    continue  # its caller was cancelled
                if isinstance(answer, hiredis.ReplyError):
                    waiting.set_exception(_refusal(str(answer)))
                else:
                    waiting.set_result(answer)
        except (hiredis.ProtocolError, IndexError) as error:
            self._end(StoreUnavailable(f"Valkey's answer makes no sense: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(StoreUnavailable(f"the connection to Valkey broke: {exc or 'closed by the server'}"))

    def _look(self) -> None:
        """Gives the connection up when its oldest call has waited too long."""
        self._watch = None
        if not self._waiting:
            return
        left = self._waiting[0][1] + self._timeout - self._loop.time()
        if left <= 0:
            self._end(StoreUnavailable(f"Valkey did not answer within {self._timeout:g} s"))
        else:
            self._watch = self._loop.call_later(left, self._look)

    def _end(self, error: Exception) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        for waiting, _ in self._waiting:
            if not waiting.done():
                waiting.set_exception(StoreUnavailable(str(error)))
        self._waiting.clear()


def _refusal(message: str) -> Exception:
    if message.startswith(NOT_NOW):
        kind = StoreFull if message.startswith("OOM") else StoreUnavailable
        return kind(f"Valkey is not ready: {message}")
    if message.startswith(NEVER):
        return StoreUnsupported(f"Valkey refuses: {message}")
    return Refused(message)


class Link:
    """A connection that is there when it is needed."""

    def __init__(self, address: Address, timeout_seconds: float, *, repeats: bool = True) -> None:
        self._address = address
        self._timeout = timeout_seconds
        self._pauses = REPEAT_AFTER_SECONDS if repeats else ()
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[Wire] | None = None

    async def call(self, *command: Argument) -> Any:
        for pause in self._pauses:
            wire = self._wire
            try:
                if wire is None or not wire.is_open:
                    wire = await self._connect()
                return await wire.call(*command)
            except StoreUnavailable:
                if wire is not None and wire.is_open:
                    raise  # the server's answer, not a broken connection
            await asyncio.sleep(pause)
        return await (await self._connect()).call(*command)

    async def call_all(self, commands: list[Command]) -> list[Any]:
        """Several commands in one round trip."""
        return list(await asyncio.gather(*(self.call(*command) for command in commands)))

    async def call_both(self, first: Command, second: Command) -> tuple[Any, Any]:
        """Two commands sent together: if the first one blocks, the server turns to the second in the moment in which it
        no longer does. Neither is repeated."""
        wire = await self._connect()
        earlier, later = wire.call(*first), wire.call(*second)
        try:
            answer = await later
        finally:
            if earlier.done() and not earlier.cancelled():
                earlier.exception()  # where both have one, it is the same
        return earlier.result(), answer

    async def _connect(self) -> Wire:
        """Concurrent callers share one attempt."""
        if self._wire is not None and self._wire.is_open:
            return self._wire
        if self._connecting is None:
            self._connecting = asyncio.create_task(Wire.connect(self._address, self._timeout))
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: asyncio.Task[Wire]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._wire = task.result()

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._wire is not None:
            self._wire.close()

    async def aclose(self) -> None:
        self.close()
        await asyncio.sleep(0)  # the transport closes with the next turn of the loop


class BlockingLinks:
    """Connections for commands that block, each used by one caller at a time."""

    def __init__(self, make: Callable[[], Link]) -> None:
        self._make = make
        self._idle: list[Link] = []
        self._used: set[Link] = set()

    async def call(self, *command: Argument) -> Any:
        return await self._borrow(lambda link: link.call(*command))

    async def call_both(self, first: Command, second: Command) -> tuple[Any, Any]:
        return await self._borrow(lambda link: link.call_both(first, second))

    async def _borrow(self, use: Callable[[Link], Awaitable[Answer]]) -> Answer:
        link = self._idle.pop() if self._idle else self._make()
        self._used.add(link)
        try:
            answer = await use(link)
        except BaseException:
            link.close()
            raise
        else:
            self._idle.append(link)
            return answer
        finally:
            self._used.discard(link)

    async def aclose(self) -> None:
        for link in (*self._idle, *self._used):
            link.close()
        await asyncio.sleep(0)  # the transports close with the next turn of the loop
