"""Server-sent events: one execution to its end, and the live feed of the list."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.api import answers
from headrace.engine.service import Snapshot
from tests.acceptance.api.client import Api, greeting, one_note
from tests.acceptance.api.conftest import Served
from tests.ledger import read
from tests.roles import node, until


def gated(ledger: Path, gate: Path) -> dict[str, object]:
    entry = {"ledger": str(ledger)}
    return {"name": "gated", "nodes": [node("a", config={**entry, "gate": str(gate)}), node("b", "a", config=entry)]}


async def test_an_execution_is_followed_to_its_end(api: Api, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    execution_id = await api.start(gated(ledger, gate))
    await until(lambda: read(ledger), "a to run")
    seen = []
    async for event_id, kind, data in api.events(f"/v1/executions/{execution_id}/events"):
        seen.append((event_id, kind, data))
        gate.touch()
    assert seen[0][1] == "snapshot" and seen[0][2]["status"] == "RUNNING"
    assert seen[-1][1] == "end" and seen[-1][2]["status"] == "COMPLETED"
    assert all(event_id for event_id, _, _ in seen)
    changed = [each["id"] for _, kind, data in seen if kind == "change" for each in data["nodes"]]
    assert "b" in changed


async def test_an_ended_one_is_a_single_event(api: Api) -> None:
    execution_id = await api.start(greeting())
    await api.ended(execution_id)
    [(_, kind, data)] = [each async for each in api.events(f"/v1/executions/{execution_id}/events")]
    assert (kind, data["output"]) == ("end", {"text": "Hello world"})


async def test_it_is_resumed_where_it_was_left(
    api: Api, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    execution_id = await api.start(gated(ledger, gate))
    path = f"/v1/executions/{execution_id}/events"

    async def quiet() -> str | None:
        """The id of the newest event, once nothing more happens before the gate opens."""
        async for event_id, _, data in api.events(path):
            return event_id if data["nodes"][0]["status"] == "RUNNING" else None
        return None

    last = await until(quiet, "a to run")
    looked, snapshot = asyncio.Event(), api.service.snapshot

    async def seen(execution_id: str) -> Snapshot:
        found = await snapshot(execution_id)
        looked.set()
        return found

    monkeypatch.setattr(api.service, "snapshot", seen)
    following = api.events(path, **{"Last-Event-ID": last})
    first = asyncio.ensure_future(anext(following))
    await looked.wait()
    gate.touch()
    kinds = [(await first)[1], *[kind async for _, kind, _ in following]]
    assert "snapshot" not in kinds and kinds[-1] == "end"

    unknown = [kind async for _, kind, _ in api.events(path, **{"Last-Event-ID": "no such id"})]
    assert unknown == ["end"]


async def test_signs_of_life_and_a_client_that_leaves(
    api: Api, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "KEEP_ALIVE_SECONDS", 0.05)
    execution_id = await api.start(gated(ledger, tmp_path / "gate"))
    listeners = api.service.feed._listeners
    async with api.http.stream("GET", f"/v1/executions/{execution_id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                break
        assert listeners
    await until(lambda: not listeners, "the server to notice that the client has left")
    (tmp_path / "gate").touch()
    await api.ended(execution_id)


async def test_a_server_that_stops_ends_its_streams(served: Served, ledger: Path, tmp_path: Path) -> None:
    async with served() as api:
        execution_id = await api.start(one_note(ledger, gate=str(tmp_path / "gate")))
        async with api.http.stream("GET", f"/v1/executions/{execution_id}/events") as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            api.app.state.parts.stop.set()
            async with asyncio.timeout(20):
                assert [line async for line in lines][-1] == ""
        (tmp_path / "gate").touch()


async def test_the_live_feed_of_the_list(api: Api, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    before = await api.start(greeting())
    await api.ended(before)
    feed = api.events("/v1/executions/events?workflow=one-note&status=RUNNING")
    _, kind, data = await anext(feed)
    assert (kind, data) == ("snapshot", {"items": []})
    execution_id = await api.start(one_note(ledger, gate=str(gate)))
    _, kind, data = await anext(feed)
    assert kind == "change" and data["gone"] == []
    assert [(each["execution_id"], each["status"]) for each in data["items"]] == [(execution_id, "RUNNING")]
    gate.touch()
    async for _, _, data in feed:  # it has started; it has ended
        if data["gone"]:
            assert data == {"items": [], "gone": [execution_id]}
            break
    await feed.aclose()
