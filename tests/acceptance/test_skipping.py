"""on_failure: continue, when the calls that skip what is downstream are repeated or their walker is overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.engine.orchestrator import Orchestrator
from headrace.hot.store import HotStore
from headrace.model.messages import Advanced, Report, Verdict
from tests.roles import definition, node, quick_settings

CHAIN = definition(
    *(node(b, *a, handler="h") for a, b in (("", "a"), ("a", "b"), ("b", "c"), ("c", "d"))), on_failure="continue"
)
FAILED = '{"failure":{"code":"fatal","message":"broken"}}'


class Repeating(HotStore):
    """Every `advance` is sent twice and the first reply is lost: what a connection does that breaks in between."""

    async def advance(self, partition: int, verdicts: Any) -> list[Advanced]:
        await super().advance(partition, verdicts)
        return await super().advance(partition, verdicts)


class Overtaken(HotStore):
    """While this walker is under way, another one takes the hint over, skips one level further, and dies."""

    async def advance(self, partition: int, verdicts: Any) -> list[Advanced]:
        replies = await super().advance(partition, verdicts)
        for verdict, reply in zip(verdicts, replies, strict=True):
            if verdict.verdict in ("F", "K") and reply.answer:
                below = {"b": "c", "c": "d"}.get(verdict.names[0][0])
                if below:
                    await super().advance(partition, [_further(verdict, below)])
        return replies


def _further(verdict: Verdict, name: str) -> Verdict:
    return Verdict(
        verdict.entry_id, verdict.execution_id, verdict.epoch, verdict.run, verdict.node, verdict.attempt, "K",
        total=1, quiet=False, names=[(name, 1)],
    )  # fmt: skip


@pytest.mark.parametrize("kind", [Repeating, Overtaken])
async def test_everything_downstream_is_skipped(store: HotStore, kind: type[HotStore]) -> None:
    settings = quick_settings()
    mine = kind(valkey_url_of(store), partitions=store.partitions)
    orchestrator = Orchestrator(mine, settings, "o")
    execution_id = await Engine(store, settings).start(CHAIN)
    partition = store.partition_of(execution_id)
    await orchestrator.process(partition, await mine.read_hints(partition, "o", 10))
    [task], _ = await store.claim(partition, "w", 10, 60_000, ["h"])
    await store.report(partition, [Report(task.token, FAILED)])
    await orchestrator.process(partition, await mine.read_hints(partition, "o", 10))
    view = await Engine(store, settings).read(execution_id)
    assert view["status"] == "FAILED"
    assert [each["status"] for each in view["nodes"]] == ["FAILED", "SKIPPED", "SKIPPED", "SKIPPED"]
    assert await store._link.call("XLEN", f"hr:{{{partition}}}:results") == 0
    await mine.aclose()


def valkey_url_of(store: HotStore) -> str:
    return str(store.another.args[0])
