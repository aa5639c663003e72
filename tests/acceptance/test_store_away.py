"""Valkey goes away and comes back, under roles that go on running."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.engine.engine import Engine
from headrace.errors import StoreUnavailable
from headrace.hot.store import HotStore
from headrace.worker.registry import Registry
from tests import ledger as book
from tests.roles import InProcess, definition, node, quick_settings, until


def noted(ledger: Path, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"ledger": str(ledger), "value": value, **more}


async def test_a_killed_server_comes_back_on_its_append_only_file(
    registry: Registry, ledger: Path, tmp_path: Path
) -> None:
    """Everything that was acknowledged more than a second before is there, and the roles find the server again."""
    gate = tmp_path / "gate"
    graph = definition(
        node("A", config=noted(ledger, 1)),
        node("B", "A", config=noted(ledger, "{{ A.value + 1 }}", gate=str(gate))),
        node("C", "B", config=noted(ledger, "{{ B.value + 1 }}")),
    )
    server = EmbeddedValkey(tmp_path / "valkey")
    server.start()
    store = HotStore(server.url, block_ms=500)
    await store.prepare()
    async with InProcess(store, quick_settings(WORKER_LEASE_SECONDS=60)) as roles:
        roles.orchestrator()
        roles.worker(registry)
        ids = await roles.engine.start_many(graph, [{} for _ in range(20)])
        await until(lambda: len(book.read(ledger)) == 40, "every B runs")
        await store._link.call("CONFIG", "SET", "appendfsync", "always")
        await store._link.call("SET", "written", "1")  # and with it all that came before
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        gate.touch()
        await until(lambda: len(book.read(ledger, "done")) == 40, "the handlers end while nobody can be told")
        with pytest.raises(StoreUnavailable):
            await Engine(store, quick_settings()).start(graph)
        server.start()
        for execution_id in ids:
            view = await roles.ended(execution_id)
            assert view["output"] == {"C": {"value": 3}}
    await store.aclose()
    server.stop()
    assert Counter(call["node"] for call in book.read(ledger)) == {"A": 20, "B": 20, "C": 20}


async def test_functions_and_groups_that_vanish_are_made_again(
    roles: InProcess, registry: Registry, ledger: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    roles.orchestrator()
    roles.worker(registry)
    execution_id = await roles.engine.start(
        definition(node("A", config=noted(ledger, 1, gate=str(gate))), node("B", "A", config=noted(ledger)))
    )
    await until(lambda: book.read(ledger), "A runs")
    await roles.store._link.call("FUNCTION", "FLUSH")
    gate.touch()
    assert (await roles.ended(execution_id))["status"] == "COMPLETED"
    await roles.store._link.call("FLUSHALL")
    again = await roles.engine.start(definition(node("A", config=noted(ledger, 1))))
    assert (await roles.ended(again))["status"] == "COMPLETED"
