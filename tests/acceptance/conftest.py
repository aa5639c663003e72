from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.hot.store import HotStore
from headrace.worker.registry import Registry
from tests.roles import InProcess, Processes, processes


@pytest.fixture
def registry() -> Registry:
    return Registry.load(["tests.ledger"])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
async def roles(store: HotStore) -> AsyncIterator[InProcess]:
    """No role yet: the test starts what it needs."""
    async with InProcess(store) as started:
        yield started


@pytest.fixture
async def engine(roles: InProcess, registry: Registry) -> InProcess:
    """One orchestrator and one worker."""
    roles.orchestrator()
    roles.worker(registry)
    return roles


@pytest.fixture
def cluster(valkey_url: str, tmp_path: Path, partitions: int, store: HotStore) -> Iterator[Processes]:
    """Roles as separate processes, on an empty store."""
    with processes(valkey_url, tmp_path, partitions) as started:
        yield started
