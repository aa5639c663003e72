"""What a run leaves behind, and where: the one value that harness, watcher and checker share.

All addresses here are the direct ones, behind no proxy. The files are in the run's folder, one JSON object per line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.settings import Settings


@dataclass(frozen=True)
class Run:
    folder: Path
    valkey_url: str
    database_url: str
    partitions: int
    settings: Settings  # as the roles have them: leases, retries, intervals

    @property
    def ledger(self) -> Path:
        """Every call of a handler, as the effect server saw it."""
        return self.folder / "ledger.jsonl"

    @property
    def accepted(self) -> Path:
        """Every execution whose submission was answered with 2xx, and what was asked of it afterwards."""
        return self.folder / "accepted.jsonl"

    @property
    def events(self) -> Path:
        """What the watcher saw on the event streams."""
        return self.folder / "events.jsonl"

    @property
    def faults(self) -> Path:
        """Every fault that was tried."""
        return self.folder / "faults.jsonl"

    @property
    def refused(self) -> Path:
        """How many late results a worker was told of, and when."""
        return self.folder / "refused.jsonl"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as file:
            for line in file:
                yield json.loads(line)


def append(path: Path, line: dict[str, Any]) -> None:
    """In one write, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
