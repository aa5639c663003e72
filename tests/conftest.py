"""What all tests share: a real server per test process, and a store on it that is empty at the start of each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.hot.store import HotStore


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@pytest.fixture(params=[1, 3], ids=["1 partition", "3 partitions"])
def partitions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def store(valkey_url: str, partitions: int) -> AsyncIterator[HotStore]:
    made = HotStore(valkey_url, partitions=partitions)
    await made._link.call("FLUSHALL")
    await made.prepare()
    yield made
    await made.aclose()
