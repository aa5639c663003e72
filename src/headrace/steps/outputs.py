"""The outputs that a role has seen lately, decoded.

Within an epoch a node has at most one output, so what is cached never changes. The cache only saves reads: whatever is
not in it is fetched from the hot store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from headrace.model import payload

Key = tuple[str, str, str]  # execution, epoch, node
ENTRY_BYTES = 700  # of an entry besides its text: keys, the decoded value, its place in the order


class OutputCache:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        self.get = self._held.get  # the value and about how large it is as text

    def put(self, key: Key, text: str) -> Any:
        value = payload.decode(text)
        if key in self._held:
            self._bytes -= self._held.pop(key)[1] + ENTRY_BYTES
        self._held[key] = (value, len(text))
        self._bytes += len(text) + ENTRY_BYTES
        while self._bytes > self._most_bytes:
            _, (_, dropped) = self._held.popitem(last=False)
            self._bytes -= dropped + ENTRY_BYTES
        return value
