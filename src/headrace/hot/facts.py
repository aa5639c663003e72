"""What kind of server a Valkey is, looked at from outside, for `headrace doctor`. Nothing in it is changed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.hot.wire import Address, Wire

PINGS = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """`ahead_seconds`: how far its clock is before ours. `most_bytes`: of memory, 0 without a limit."""

    address: str
    product: str
    version: str
    eviction: str
    is_appending: bool
    used_bytes: int
    most_bytes: int
    latency_seconds: float
    ahead_seconds: float

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


async def look(url: str, timeout_seconds: float) -> Facts:
    """StoreUnavailable, StoreUnsupported: it cannot be reached, or does not let us in."""
    address = Address.parse(url)
    wire = await Wire.connect(address, timeout_seconds)
    try:
        lines = bytes(await wire.call("INFO", "everything")).decode(errors="replace").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        took = sorted([await _timed(wire) for _ in range(PINGS)])
        return Facts(
            address=str(address),
            product="Valkey" if "valkey_version" in info else "Redis",
            version=info.get("valkey_version") or info.get("redis_version", "0"),
            eviction=info.get("maxmemory_policy", "noeviction"),
            is_appending=info.get("aof_enabled") == "1",
            used_bytes=int(info.get("used_memory", 0)),
            most_bytes=int(info.get("maxmemory", 0)),
            latency_seconds=took[PINGS // 2],
            ahead_seconds=await _ahead(wire),
        )
    finally:
        wire.close()


async def _timed(wire: Wire) -> float:
    began = time.perf_counter()
    await wire.call("PING")
    return time.perf_counter() - began


async def _ahead(wire: Wire) -> float:
    """Its time, less ours at the middle of the question."""
    before = time.time()
    seconds, microseconds = await wire.call("TIME")
    return int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2
