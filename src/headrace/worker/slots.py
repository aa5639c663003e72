"""The slots of a worker: shared by all handlers and partitions, and never more work than slots.

A fetcher reserves slots before it asks for work, so that whatever it is given can start at once.
"""

from __future__ import annotations

import asyncio

TOGETHER = 32  # fewer are not worth a call of their own


class Slots:
    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._changed = asyncio.Event()

    async def reserve(self, sharers: int) -> int:
        """Waits for a free slot; gives an even share of the free ones, at least one. Of very many it is half of all at
        most: while these begin their work, the next are being claimed."""
        while self._free <= 0:
            self._changed.clear()
            await self._changed.wait()
        share = min(-(-self._free // sharers), max(TOGETHER, self.count // 2))
        self._free -= share
        return share

    def give_back(self, count: int = 1) -> None:
        if self._free <= 0 < count:
            self._changed.set()
        self._free += count
