"""A whole installation for tests: API, orchestrator and worker as processes of their own, on stores of their own.

Starting one costs seconds of CPU, so tests share it: they use workflow names of their own, and leave it as it was.
"""

from __future__ import annotations

from pathlib import Path

from headrace.embedded import EmbeddedValkey
from tests.roles import Process, Processes

SECRET = "the-secret-of-this-house"
SETTINGS = {
    "WORKER_LEASE_SECONDS": "15",  # nobody dies here; what is slow is the machine
    "WORKER_HEARTBEAT_TIMEOUT": "5",
    "ORCHESTRATOR_RECONCILE_INTERVAL": "1",  # it is there for as long as the tests run, and should cost little
    "ORCHESTRATOR_ARCHIVE_INTERVAL": "0.3",
    "HEADRACE_SECRET_TOKEN": SECRET,
}


class House:
    def __init__(self, folder: Path, database_url: str) -> None:
        self.valkey = EmbeddedValkey(folder / "valkey")
        self.valkey.start()
        self.processes = Processes(self.valkey.url, folder, 1, DATABASE_URL=database_url, **SETTINGS)
        self._apis: dict[frozenset[tuple[str, str]], Process] = {}
        self.orchestrator = self.processes.orchestrator()
        self.worker = self.processes.worker()

    async def address(self, **settings: str) -> str:
        """Where an API with these settings listens. It is started when it is asked for first."""
        key = frozenset(settings.items())
        if key not in self._apis:
            self._apis[key] = self.processes.role("api", API_PORT="0", **settings)
        return str((await self._apis[key].said("listening"))["address"])

    def close(self) -> None:
        self.processes.close()
        self.valkey.stop()
