"""The pytest fixture `headrace`, found by its entry point. It imports next to nothing, for every pytest loads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import LocalEngine


@pytest.fixture(scope="session", name="headrace")
def headrace_engine() -> Iterator[LocalEngine]:
    """An engine to run workflows on: `headrace.run("workflow.yaml", {"city": "Rome"}, handlers=[...])`.

    Each process of pytest has one. Its server starts with the first run, whatever REDIS_URL says.
    """
    from headrace.testing import LocalEngine

    with LocalEngine() as engine:
        yield engine
