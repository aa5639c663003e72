"""The profiles of the generated histories, and a store for the direct tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from headrace.hot.store import HotStore

# Examples are per theme of test_machine.py. The profile is not loaded, because that would bind all other tests, too.
settings.register_profile(
    "ci",
    max_examples=520,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=20_000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=60, phases=[Phase.explicit, Phase.generate])


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[HotStore]:
    """One partition, empty."""
    made = HotStore(valkey_url, block_ms=1)
    await made._link.call("FLUSHALL")
    await made.prepare()
    await made.settle(0, await made.unsettled(0))
    yield made
    await made.aclose()
