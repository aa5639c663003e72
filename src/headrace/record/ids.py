"""Ids that sort by time: a time can be looked up by them, without an index of its own."""

from __future__ import annotations

LAST_MS = (1 << 48) - 1


def first_id(ms: int) -> str:
    """The smallest UUIDv7 of a millisecond."""
    digits = f"{min(max(ms, 0), LAST_MS):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
