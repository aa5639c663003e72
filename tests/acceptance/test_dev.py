"""`headrace dev` as a user has it: one command, and after `kill -9` it goes on where it was."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests import ledger as book
from tests.acceptance.test_killed_roles import free_port
from tests.roles import QUICK, Process, until

ROOT = Path(__file__).parents[2]
LOGGING = """
from headrace import handler


@handler("chatty")
async def chatty(config: dict, ctx) -> dict:
    ctx.log.info("about to work", city=config["city"])
    ctx.log.warning("done", secret="hunter2-hunter2")
    return {}
"""


@asynccontextmanager
async def dev(folder: Path, port: int, **environment: str) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    (folder / "chatty.py").write_text(LOGGING)
    arguments = ["headrace", "dev", "--port", str(port), "--handlers", "tests.ledger", "--handlers", "chatty"]
    quick = {name: str(value) for name, value in QUICK.items()}
    home = {"HEADRACE_HOME": str(folder / "home"), "PYTHONPATH": f"{ROOT}:{folder}"}
    process = Process(arguments, {**quick, **home, **environment}, folder / "dev.log", command_line=True)
    client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}")
    try:
        await until(lambda: _is_ready(client), "the service")
        yield process, client
    except BaseException:
        print((folder / "dev.log").read_text())
        raise
    finally:
        await client.aclose()
        process.close()


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200 and bool((await client.get("/v1/handlers")).json())
    except httpx2.TransportError:
        return False


async def started(client: httpx2.AsyncClient, *nodes: dict[str, Any]) -> str:
    async def accepted() -> str:
        body = {"definition": {"name": "test", "nodes": list(nodes)}}
        response = await client.post("/v1/executions", json=body)
        return str(response.json()["execution_id"]) if response.status_code == 202 else ""

    return await until(accepted, "its handlers to be known")


def ended(client: httpx2.AsyncClient, execution_id: str) -> Callable[[], Any]:
    async def over() -> dict[str, Any] | None:
        view: dict[str, Any] = (await client.get(f"/v1/executions/{execution_id}")).json()
        return view if view["status"] != "RUNNING" else None

    return over


async def test_it_goes_on_after_kill_9_and_stops_clean(tmp_path: Path) -> None:
    ledger, gate, port = tmp_path / "ledger", tmp_path / "gate", free_port()

    def noted(name: str, *parents: str, **config: Any) -> dict[str, Any]:
        given = {"ledger": str(ledger), "value": name, **config}
        return {"id": name, "handler": "note", "dependencies": list(parents), "config": given}

    async with dev(tmp_path, port) as (process, client):
        nodes = (noted("a"), noted("b", "a", gate=str(gate)), noted("c", "b"))
        execution_id = await started(client, *nodes)
        await until(lambda: [call["node"] for call in book.read(ledger)] == ["a", "b"], "b runs")

        async def archived() -> bool:
            node = (await client.get(f"/v1/executions/{execution_id}/nodes/a")).json()
            return bool(node["attempts"]) and node["attempts"][0]["status"] == "COMPLETED"

        await until(archived, "SQL has a")
        await asyncio.to_thread(process.kill)
    gate.touch()
    async with dev(tmp_path, port) as (process, client):
        view = await until(ended(client, execution_id), "the end")
        assert (view["status"], view["output"]) == ("COMPLETED", {"c": {"value": "c"}})
        assert Counter(call["node"] for call in book.read(ledger)) == {"a": 1, "b": 2, "c": 1}
        process.send(signal.SIGINT)
        assert await asyncio.to_thread(process.process.wait) == 0
    assert "Traceback" not in (tmp_path / "dev.log").read_text()


async def test_what_a_handler_logs_stays_with_its_attempt(tmp_path: Path) -> None:
    async with dev(tmp_path, free_port(), HEADRACE_SECRET_WORD="hunter2-hunter2") as (_, client):
        node = {"id": "a", "handler": "chatty", "config": {"city": "Rome"}}
        execution_id = await started(client, node)

        async def logged() -> list[dict[str, Any]]:
            attempts = (await client.get(f"/v1/executions/{execution_id}/nodes/a")).json()["attempts"]
            lines: list[dict[str, Any]] = attempts[0]["logs"] if attempts else []
            return lines

        lines = await until(logged, "its lines")
        assert [(line["level"], line["event"]) for line in lines] == [("info", "about to work"), ("warning", "done")]
        assert lines[0]["city"] == "Rome"
        assert "hunter2" not in str(lines)
