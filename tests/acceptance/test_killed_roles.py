"""A thousand executions over HTTP while API, orchestrator and worker are killed again and again: none lost or doubled.

The clients do what a client should: they repeat a request that was not answered, with the same Idempotency-Key. The
effect ledger is a file outside the engine, to which every handler call appends.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace.hot.store import HotStore
from tests import ledger as book
from tests.databases import Postgres
from tests.roles import Process, processes, until

EXECUTIONS = 1000
CLIENTS = 50
KILLS = 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def workflow(ledger: Path) -> dict[str, Any]:
    def noted(name: str, value: Any, *parents: str) -> dict[str, Any]:
        config = {"ledger": str(ledger), "value": value}
        return {"id": name, "handler": "note", "dependencies": list(parents), "config": config}

    return {
        "name": "diamond",
        "inputs": {"n": {"type": "integer"}},
        "nodes": [
            noted("a", "{{ input.n }}"),
            noted("b", "{{ a.value + 1 }}", "a"),
            noted("c", "{{ a.value + 2 }}", "a"),
            noted("d", "{{ b.value * c.value }}", "b", "c"),
        ],
    }


class Clients:
    """They never give up: an answer that did not come is asked for again."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._client = httpx2.AsyncClient(base_url=self._url, timeout=20, limits=httpx2.Limits(max_connections=CLIENTS))

    async def call(self, method: str, path: str, **request: Any) -> httpx2.Response:
        while True:
            try:
                response = await self._client.request(method, path, **request)
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
                continue
            if response.status_code < 500:
                return response
            await asyncio.sleep(0.05)

    async def start(self, number: int) -> str:
        body = {"workflow": "diamond", "input_params": {"n": number}}
        response = await self.call("POST", "/v1/executions", json=body, headers={"Idempotency-Key": f"k{number}"})
        assert response.status_code == 202, response.text
        return str(response.json()["execution_id"])

    async def aclose(self) -> None:
        await self._client.aclose()


async def submit_all(clients: Clients) -> dict[int, str]:
    numbers = iter(range(EXECUTIONS))
    ids: dict[int, str] = {}

    async def client() -> None:
        for number in numbers:
            ids[number] = await clients.start(number)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return ids


async def kill_now_and_then(roles: dict[str, Process], start: dict[str, Callable[[], Process]]) -> None:
    """Each role in turn is killed and started again, while the work goes on."""
    for number in range(KILLS * len(start)):
        role = list(start)[number % len(start)]
        await asyncio.sleep(0.4)
        await asyncio.to_thread(roles[role].kill)
        roles[role] = start[role]()


async def run(url: str, database_url: str, folder: Path) -> None:
    ledger, port = folder / "ledger", free_port()
    with processes(url, folder) as cluster:
        shared = {"DATABASE_URL": database_url, "API_PORT": str(port), "ORCHESTRATOR_RECONCILE_INTERVAL": "1"}
        start: dict[str, Callable[[], Process]] = {
            "api": lambda: cluster.role("api", **shared),
            "orchestrator": lambda: cluster.role("orchestrator", **shared),
            "worker": lambda: cluster.worker(**shared),
        }
        await asyncio.to_thread(cluster.role("migrate", **shared).process.wait)
        roles = {role: begin() for role, begin in start.items()}
        clients = Clients(port)
        try:
            await until(lambda: _accepts(clients, workflow(ledger)), "the service to know its handlers")
            killing = asyncio.create_task(kill_now_and_then(roles, start))
            ids = await submit_all(clients)
            await killing
            await until(lambda: _all_ended(clients), "all to end", within=120)
            await _check(clients, ids, ledger)
        finally:
            await clients.aclose()


async def _accepts(clients: Clients, definition: dict[str, Any]) -> bool:
    return (await clients.call("POST", "/v1/workflow", json=definition)).status_code == 201


async def _all_ended(clients: Clients) -> bool:
    page = await clients.call("GET", "/v1/executions", params={"status": "RUNNING", "limit": 1})
    return not page.json()["items"]


async def _check(clients: Clients, ids: dict[int, str], ledger: Path) -> None:
    assert len(set(ids.values())) == EXECUTIONS, "an execution was lost or shared"

    async def look(number: int, execution_id: str) -> None:
        view = (await clients.call("GET", f"/v1/executions/{execution_id}")).json()
        assert (view["status"], view["output"]) == ("COMPLETED", {"d": {"value": (number + 1) * (number + 2)}})

    await asyncio.gather(*(look(number, execution_id) for number, execution_id in ids.items()))
    calls = Counter((call["execution"], call["node"], call["attempt"]) for call in book.read(ledger))
    assert {call[0] for call in calls} == set(ids.values()), "something ran that nobody asked for"
    assert max(calls.values()) == 1, "an attempt ran twice"
    keys = {(call["execution"], call["node"]): call["key"] for call in book.read(ledger)}
    assert len(set(keys.values())) == len(keys)
    assert all(keys[call["execution"], call["node"]] == call["key"] for call in book.read(ledger))


@pytest.fixture
async def one_partition(valkey_url: str) -> None:
    store = HotStore(valkey_url)
    await store._link.call("FLUSHALL")
    await store.aclose()


async def test_killed_roles_lose_nothing_on_sqlite(valkey_url: str, one_partition: None, tmp_path: Path) -> None:
    await run(valkey_url, f"sqlite:///{tmp_path / 'record.db'}", tmp_path)


async def test_killed_roles_lose_nothing_on_postgresql(
    valkey_url: str, one_partition: None, postgres: Postgres, tmp_path: Path
) -> None:
    name = await asyncio.to_thread(postgres.create)
    await run(valkey_url, postgres.url(name), tmp_path)
