"""Server-sent events: one execution to its end, and the live feed of the list."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.api import answers
from headrace.engine.reading import Snapshot
from tests.acceptance.api.client import Api, Client, Remote, frames, greeting, one_note
from tests.acceptance.api.conftest import Served
from tests.ledger import read
from tests.roles import node, until


def gated(ledger: Path, gate: Path, name: str = "gated") -> dict[str, object]:
    entry = {"ledger": str(ledger)}
    return {"name": name, "nodes": [node("a", config={**entry, "gate": str(gate)}), node("b", "a", config=entry)]}


@pytest.mark.calls("GET /v1/executions/{execution_id}/events")
async def test_an_execution_is_followed_to_its_end(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    execution_id = await remote.start(gated(ledger, gate, remote.name))
    await until(lambda: read(ledger), "a to run")
    seen = []
    async for event_id, kind, data in remote.events(f"/v1/executions/{execution_id}/events"):
        seen.append((event_id, kind, data))
        gate.touch()
    assert seen[0][1] == "snapshot" and seen[0][2]["status"] == "RUNNING"
    assert seen[-1][1] == "end" and seen[-1][2]["status"] == "COMPLETED"
    assert all(event_id for event_id, _, _ in seen)
    changed = [(each["id"], each["status"]) for _, kind, data in seen if kind == "change" for each in data["nodes"]]
    assert [status for name, status in changed if name == "b"][:2] == ["QUEUED", "RUNNING"]


async def test_an_ended_one_is_a_single_event(remote: Remote) -> None:
    execution_id = await remote.start(greeting(remote.name))
    await remote.ended(execution_id)
    [(_, kind, data)] = [each async for each in remote.events(f"/v1/executions/{execution_id}/events")]
    assert (kind, data["output"]) == ("end", {"text": "Hello world"})


async def newest_id(api: Client, path: str, ledger: Path) -> str:
    """The id of the newest event, once a runs: then nothing more happens before the gate opens."""
    await until(lambda: read(ledger), "a to run")
    following = api.events(path)
    event_id, _, data = await anext(following)
    await following.aclose()
    assert data["nodes"][0]["status"] == "RUNNING"
    return event_id


async def test_it_is_resumed_where_it_was_left(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    execution_id = await remote.start(gated(ledger, gate, remote.name))
    path = f"/v1/executions/{execution_id}/events"
    last = await newest_id(remote, path, ledger)
    async with remote.http.stream("GET", path, headers={"Last-Event-ID": last}) as answer:
        await remote.get(f"/v1/executions/{execution_id}")  # the server has looked before, and found nothing to say
        gate.touch()
        kinds = [kind async for _, kind, _ in frames(answer)]
    assert "snapshot" not in kinds and kinds[0] == "change" and kinds[-1] == "end"

    unknown = [kind async for _, kind, _ in remote.events(path, **{"Last-Event-ID": "no such id"})]
    assert unknown == ["end"]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_nothing_is_lost_between_the_last_look_and_the_next_event(
    api: Api, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    execution_id = await api.start(gated(ledger, gate))
    path = f"/v1/executions/{execution_id}/events"
    last = await newest_id(api, path, ledger)
    looked, snapshot = asyncio.Event(), api.service.reader.snapshot

    async def seen(execution_id: str) -> Snapshot:
        found = await snapshot(execution_id)
        looked.set()
        return found

    monkeypatch.setattr(api.service.reader, "snapshot", seen)
    following = api.events(path, **{"Last-Event-ID": last})
    first = asyncio.ensure_future(anext(following))
    await looked.wait()
    gate.touch()
    kinds = [(await first)[1], *[kind async for _, kind, _ in following]]
    assert "snapshot" not in kinds and kinds[-1] == "end"


@pytest.mark.parametrize("kind", ["sqlite"])
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


@pytest.mark.parametrize("kind", ["sqlite"])
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


@pytest.mark.calls("GET /v1/executions/events")
async def test_the_live_feed_of_the_list(remote: Remote, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    before = await remote.start(greeting(f"{remote.name}-other"))
    await remote.ended(before)
    feed = remote.events(f"/v1/executions/events?workflow={remote.name}&status=RUNNING")
    _, kind, data = await anext(feed)
    assert (kind, data) == ("snapshot", {"items": []})
    execution_id = await remote.start(one_note(ledger, remote.name, gate=str(gate)))
    _, kind, data = await anext(feed)
    assert kind == "change" and data["gone"] == []
    assert [(each["execution_id"], each["status"]) for each in data["items"]] == [(execution_id, "RUNNING")]
    assert data["items"][0]["progress"] == {"done": 0, "total": 1, "failed": 0}
    gate.touch()
    async for _, _, data in feed:  # it has started; it has ended
        if data["gone"]:
            assert data == {"items": [], "gone": [execution_id]}
            break
    await feed.aclose()
