"""/metrics over HTTP: what really happened is what is counted, and a store that is away only leaves its part out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace.engine.metrics import METRICS, Metrics
from headrace.engine.recording import Recording
from headrace.engine.role import orchestrate
from headrace.engine.service import Service
from headrace.hot.store import HotStore
from headrace.record.database import Database
from headrace.record.queries import Queries
from tests.acceptance.api.client import Api, one_note
from tests.acceptance.api.conftest import Served
from tests.ledger import read
from tests.roles import node, quick_settings, until

NOWHERE = "127.0.0.1:1"


async def scraped(api: Api) -> dict[str, float]:
    answer = await api.http.get("/metrics")
    assert answer.status_code == 200
    return flat(text_string_to_metric_families(answer.text))


def flat(families: Iterable[Metric]) -> dict[str, float]:
    """Name, with the values of its labels, -> value."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def shows(api: Api, **expected: float) -> dict[str, float]:
    """Waits until all of these are so; spaces are written as __."""
    wanted = {f"headrace_{name.replace('__', ' ')}": value for name, value in expected.items()}

    async def shown() -> dict[str, float]:
        found = await scraped(api)
        return found if wanted.items() <= found.items() else {}

    return await until(shown, f"metrics to show {wanted}")


async def test_everything_on_the_list_is_shown_and_nothing_else(api: Api) -> None:
    families = list(text_string_to_metric_families((await api.http.get("/metrics")).text))
    exposed = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in families}
    ours = {name: each for name, each in exposed.items() if not name.startswith("headrace_http_")}
    assert ours.keys() == METRICS.keys()
    for name, each in ours.items():
        assert (each.type, each.documentation) == (METRICS[name].kind, METRICS[name].meaning)
        labels = {label for sample in each.samples for label in sample.labels} - {"le"}
        assert labels <= {METRICS[name].label}


async def test_outcomes_are_counted_once_and_timed(api: Api, ledger: Path) -> None:
    config = {"ledger": str(ledger)}
    broken = {
        "name": "broken",
        "on_failure": "continue",
        "nodes": [
            node("again", handler="fail", config={**config, "fails": 1}),
            node("bad", handler="break", config=config),
            node("after", "bad", config=config),
        ],
    }
    await api.ended(await api.start(broken))
    for _ in range(3):
        await api.ended(await api.start(one_note(ledger)))
    found = await shows(
        api,
        executions_ended_total__COMPLETED=3,
        executions_ended_total__FAILED=1,
        executions_ended_total__CANCELLED=0,
        node_outcomes_total__completed=4,
        node_outcomes_total__failed=1,
        node_outcomes_total__retried=1,
        node_outcomes_total__skipped=1,
        dead_letters=1,
        executions_running=0,
        archive_lag_seconds__0=0,
        lost_leases_total=0,
        late_results_total=0,
    )
    assert found["headrace_attempt_seconds_count"] == found["headrace_attempt_seconds_bucket +Inf"] == 6
    assert found["headrace_execution_seconds_count"] == 4
    assert 0 < found["headrace_execution_seconds_sum"] < 600


async def test_work_and_workers(api: Api, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    execution = await api.start(one_note(ledger, gate=str(gate)))
    found = await shows(api, executions_running=1, workers_alive=1, slots_in_use=1, queue_depth__note=0)
    assert found["headrace_slots"] == quick_settings().worker_concurrency
    gate.touch()
    await api.ended(execution)
    await shows(api, executions_running=0, slots_in_use=0)


async def test_a_late_result_is_counted(served: Served, store: HotStore, ledger: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with served(WORKER_LEASE_SECONDS=60, WORKER_HEARTBEAT_INTERVAL=30) as api:  # so that no heartbeat stops it
        execution = await api.start(one_note(ledger, gate=str(gate)))
        await until(lambda: read(ledger), "the handler to begin")
        await store._link.call("FLUSHALL")
        gate.touch()
        await shows(api, late_results_total=1)
        await api.ended(execution)


async def test_waiting_tasks_lost_leases_and_a_lagging_archive(
    served: Served, store: HotStore, database: Database, ledger: Path
) -> None:
    await store.offer({"note": "null"})
    async with served(works=False) as api:
        await api.start(one_note(ledger))
        await until(lambda: store.queues(0), "the task")
        found = await until(lambda: _lagging(api), "the archive to lag, for nobody archives")
        assert found["headrace_queue_depth note"] == 1
        assert found["headrace_queue_oldest_age_seconds note"] > 0
        claimed, _ = await store.claim(0, "nobody", 1, 1, ["note"])
        assert len(claimed) == 1
        stop, settings = asyncio.Event(), quick_settings(RETRY_MAX_RETRIES=0)
        async with asyncio.TaskGroup() as group:
            recording = Recording(database, store, settings, "o1")
            group.create_task(orchestrate(store, settings, "o1", stop, recording))
            await shows(api, lost_leases_total=1, archive_lag_seconds__0=0)
            stop.set()


async def _lagging(api: Api) -> dict[str, float]:
    found = await scraped(api)
    return found if found["headrace_archive_lag_seconds 0"] > 0 else {}


async def test_without_valkey_the_rest_is_shown(database: Database) -> None:
    away = HotStore(f"redis://{NOWHERE}")
    metrics = Metrics(Service(database, away, quick_settings()), Queries(database), away)
    await metrics.refresh()
    found = flat(metrics.collect())
    assert (found["headrace_store_up valkey"], found["headrace_store_up sql"]) == (0, 1)
    assert found["headrace_executions_running"] == 0
    assert "headrace_workers_alive" not in found and "headrace_archive_lag_seconds 0" not in found
    await away.aclose()


async def test_without_sql_the_rest_is_shown(store: HotStore) -> None:
    away = Database(f"postgresql://{NOWHERE}/nobody")
    metrics = Metrics(Service(away, store, quick_settings()), Queries(away), store)
    await metrics.refresh()
    found = flat(metrics.collect())
    assert (found["headrace_store_up valkey"], found["headrace_store_up sql"]) == (1, 0)
    assert found["headrace_workers_alive"] == 0
    assert "headrace_executions_running" not in found and "headrace_archive_lag_seconds 0" not in found
    await away.aclose()
