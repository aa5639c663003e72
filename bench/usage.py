"""What a process has used, from outside: CPU time and resident memory, as Linux tells it in /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold blanks: from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:  # it has ended, or this is not Linux
        return []


def _family(pid: int) -> list[int]:
    """The process and its children: PostgreSQL has one for each connection."""
    others = (int(name) for name in os.listdir("/proc") if name.isdigit()) if Path("/proc").is_dir() else ()
    return [pid, *(other for other in others if (fields := _stat(other)) and int(fields[1]) == pid)]


def cpu_seconds(pid: int) -> float:
    """Of the process and of all its children, also those that have ended. This process counts alone: they are roles."""
    if pid == os.getpid():
        return time.process_time()
    mine, *children = map(_stat, _family(pid))
    ticks = sum(map(int, mine[11:15])) + sum(int(tick) for child in children for tick in child[11:13])
    return ticks / TICKS_PER_SECOND


def rss_bytes(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[21]) * PAGE_BYTES if fields else 0


class CpuTime:
    """CPU time that each role has used since this was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._before = self._now()

    def us_per(self, count: int) -> dict[str, float]:
        return {role: 1e6 * (now - self._before[role]) / count for role, now in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {role: cpu_seconds(pid) for role, pid in self._pids.items()}
