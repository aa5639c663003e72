"""As in production: several processes of each role, on a Valkey with a password and a PostgreSQL that others run.

Nothing fails here but what is told to, so every node must run exactly as often as its definition says, whichever
process has it; and when one orchestrator and one worker are told to stop, the others go on.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace.embedded import find_server
from headrace.hot.store import HotStore
from tests import ledger as book
from tests.acceptance.test_killed_roles import free_port
from tests.databases import Postgres, migrate
from tests.roles import GIVE_UP_SECONDS, Process, node, processes, until

PASSWORD = "p@ss:w/rd-of-valkey"
QUOTED = "p%40ss%3Aw%2Frd-of-valkey"
WIDTH = 50
EACH = 30  # executions of each shape in each of two waves
FANS = 4  # of the wide one
SLOTS = 16  # of a worker
HELD = SLOTS + 8  # more than one worker can have under way
CLIENTS = 20

# The server ends with the pytest that started it, however that ends.
SERVER = '"$@" </dev/null & server=$!; read -r never; kill "$server"; wait "$server"'


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    port = free_port()
    options = {"bind": "127.0.0.1", "port": str(port), "requirepass": PASSWORD, "dir": str(folder), "appendonly": "yes"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    server = subprocess.Popen(
        ["/bin/sh", "-c", SERVER, "headrace-valkey", str(find_server()), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(port)
        yield f"redis://:{QUOTED}@127.0.0.1:{port}/0"
    finally:
        server.communicate(timeout=60)


def _wait_for(port: int) -> None:
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError(f"nothing listens on port {port}")


@dataclass(frozen=True)
class Shape:
    """A definition, and what becomes of it with the input n."""

    nodes: list[dict[str, Any]]
    status: str
    output: Callable[[int], Any]
    calls: dict[str, int]  # node -> how often its handler is called
    each: int = EACH


def shapes(ledger: Path) -> dict[str, Shape]:
    def noted(name: str, value: str, *parents: str, handler: str = "note", **more: Any) -> dict[str, Any]:
        return node(name, *parents, handler=handler, config={"ledger": str(ledger), "value": value, **more})

    leaves = [f"leaf{number}" for number in range(WIDTH)]
    added = " + ".join(f"{leaf}.value" for leaf in leaves)
    first = noted("a", "{{ input.n }}")
    return {
        "chain": Shape(
            [first, noted("b", "{{ a.value + 1 }}", "a"), noted("c", "{{ b.value + 1 }}", "b")],
            "COMPLETED",
            lambda n: {"c": {"value": n + 2}},
            dict.fromkeys("abc", 1),
        ),
        "diamond": Shape(
            [
                first,
                noted("b", "{{ a.value + 1 }}", "a"),
                noted("c", "{{ a.value + 2 }}", "a"),
                noted("d", "{{ b.value * c.value }}", "b", "c"),
            ],
            "COMPLETED",
            lambda n: {"d": {"value": (n + 1) * (n + 2)}},
            dict.fromkeys("abcd", 1),
        ),
        "fan": Shape(
            [
                first,
                *(noted(leaf, f"{{{{ a.value + {number} }}}}", "a") for number, leaf in enumerate(leaves)),
                noted("sum", f"{{{{ {added} }}}}", *leaves),
            ],
            "COMPLETED",
            lambda n: {"sum": {"value": WIDTH * n + sum(range(WIDTH))}},
            dict.fromkeys(("a", *leaves, "sum"), 1),
            FANS,
        ),
        "retried": Shape(
            [first, noted("b", "{{ a.value }}", "a", handler="fail", fails=2, after=0.05)],
            "COMPLETED",
            lambda n: {"b": {"value": n}},
            {"a": 1, "b": 3},
        ),
        "broken": Shape(
            [
                noted("bad", "", handler="break"),
                noted("after", "", "bad"),
                first,
                noted("b", "{{ a.value + 1 }}", "a"),
            ],
            "FAILED",
            lambda n: {"b": {"value": n + 1}},
            {"bad": 1, "a": 1, "b": 1},
        ),
    }


def definition(name: str, shape: Shape) -> dict[str, Any]:
    inputs = {"n": {"type": "integer"}}
    return {"name": name, "inputs": inputs, "nodes": shape.nodes, "on_failure": "continue"}


@dataclass
class Fleet:
    store: HotStore
    orchestrators: list[Process]
    workers: list[Process]
    http: httpx2.AsyncClient

    async def start(self, name: str, n: int) -> str:
        answer = await self.http.post("/v1/executions", json={"workflow": name, "input_params": {"n": n}})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["execution_id"])

    async def read(self, execution_id: str) -> Any:
        return (await self.http.get(f"/v1/executions/{execution_id}")).json()

    async def know(self, *definitions: dict[str, Any]) -> bool:
        """Whether all are accepted; not before workers have offered the handlers."""
        answers = [await self.http.post("/v1/workflow", json=each) for each in definitions]
        return all(answer.status_code == 201 for answer in answers)

    async def both_orchestrate(self, *, have_read: bool) -> bool:
        """Both orchestrators are there and, if this is asked, have taken results to apply."""
        pids: set[int] = set()
        for partition in range(self.store.partitions):
            key = f"hr:{{{partition}}}:results"
            for consumer in await self.store._link.call("XINFO", "CONSUMERS", key, "orchestrators"):
                told = {bytes(consumer[i]).decode(): consumer[i + 1] for i in range(0, len(consumer), 2)}
                if told["inactive"] >= 0 or not have_read:
                    pids |= {int(pid) for pid in re.findall(r":(\d+):", bytes(told["name"]).decode())}
        return pids == {each.pid for each in self.orchestrators}

    async def none_runs(self) -> bool:
        page = await self.http.get("/v1/executions", params={"status": "RUNNING", "limit": 1})
        return not page.json()["items"]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_two_of_each(postgres: Postgres, partitions: int, tmp_path: Path) -> None:
    name = await asyncio.to_thread(postgres.create)
    url = postgres.url(name)
    await asyncio.to_thread(migrate, url)
    settings = {"DATABASE_URL": url, "WORKER_LEASE_SECONDS": "30", "WORKER_CONCURRENCY": str(SLOTS)}
    with (
        valkey(tmp_path) as valkey_url,
        processes(valkey_url, tmp_path, partitions, **settings) as started,
    ):
        orchestrators = [started.orchestrator() for _ in range(2)]
        workers = [started.worker() for _ in range(2)]
        api = started.role("api", API_PORT="0")
        store = HotStore(valkey_url, partitions=partitions)
        address = (await api.said("listening"))["address"]
        limits = httpx2.Limits(max_connections=CLIENTS)
        async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as http:
            await work(Fleet(store, orchestrators, workers, http), tmp_path)
        await store.aclose()
    assert "Traceback" not in started.logs()
    assert PASSWORD not in started.logs() and QUOTED not in started.logs()


async def work(fleet: Fleet, folder: Path) -> None:
    ledger, gate = folder / "ledger", folder / "gate"
    known = shapes(ledger)
    held = {"ledger": str(ledger), "value": "{{ input.n }}", "gate": str(gate)}
    known["held"] = Shape([node("held", config=held)], "COMPLETED", lambda n: {"held": {"value": n}}, {"held": 1}, HELD)
    await until(lambda: fleet.know(*(definition(*each) for each in known.items())), "handlers to be known")
    await until(lambda: fleet.both_orchestrate(have_read=False), "both orchestrators")
    ids: dict[str, tuple[str, int]] = {}

    async def wave(*names: str) -> None:
        jobs = [(name, n) for name in names for n in range(known[name].each)]
        for execution_id, job in zip(await asyncio.gather(*(fleet.start(*job) for job in jobs)), jobs, strict=True):
            ids[execution_id] = job

    await wave(*(name for name in known if name != "held"))
    await until(lambda: fleet.both_orchestrate(have_read=True), "both orchestrators to work")
    await wave("held")
    await until(lambda: len(held_by(ledger)) == HELD, "handlers to be under way")
    assert set(held_by(ledger)) == {each.pid for each in fleet.workers}
    for stopping in (fleet.orchestrators[0], fleet.workers[0]):
        stopping.send(signal.SIGTERM)
    await wave(*(name for name in known if name != "held"))
    gate.touch()
    for stopping in (fleet.orchestrators[0], fleet.workers[0]):
        assert await asyncio.to_thread(stopping.process.wait, GIVE_UP_SECONDS) == 0
    await until(fleet.none_runs, "all to end", within=120)
    await check(fleet, ids, known, ledger)


def held_by(ledger: Path) -> list[int]:
    return [call["pid"] for call in book.read(ledger) if call["node"] == "held"]


async def check(fleet: Fleet, ids: dict[str, tuple[str, int]], known: dict[str, Shape], ledger: Path) -> None:
    async def look(execution_id: str, name: str, n: int) -> None:
        view = await fleet.read(execution_id)
        assert (view["status"], view["output"]) == (known[name].status, known[name].output(n)), view

    await asyncio.gather(*(look(execution_id, *job) for execution_id, job in ids.items()))
    expected = {
        (execution_id, called, attempt): 1
        for execution_id, (name, _) in ids.items()
        for called, count in known[name].calls.items()
        for attempt in range(1, count + 1)
    }
    assert Counter((call["execution"], call["node"], call["attempt"]) for call in book.read(ledger)) == expected


def test_a_password_that_is_wrong_is_not_told(tmp_path: Path) -> None:
    with valkey(tmp_path) as url, processes(url.replace("rd-of", "wrong"), tmp_path) as started:
        assert started.worker().process.wait(timeout=GIVE_UP_SECONDS) == 3
        assert "WRONGPASS" in started.logs() and "wrong-valkey" not in started.logs()
