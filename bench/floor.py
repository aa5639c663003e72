"""The floor: the same messages through the same Valkey by a bare Python loop over streams, without an engine.

Two processes, as with the engine: one sends tasks and reads results, the other reads tasks and sends results. The
messages have the fields and sizes of the engine's own, those of a diamond's node; nobody looks into them. Each is
acknowledged and deleted. *Batched* keeps a thousand under way in pipelines of 200, *single* one at a time.
"""

from __future__ import annotations

import multiprocessing
import time
from secrets import token_urlsafe

import msgspec
import redis
from uuid_utils import uuid7

from headrace.model.messages import Task

BATCH = 200
UNDER_WAY = 1000
TASKS, RESULTS, GROUP = "floor:tasks", "floor:results", "g"

_TOKEN = f"{uuid7()}|{token_urlsafe(9)}|1|middle|1"
_TASK = Task(str(uuid7()), token_urlsafe(9), 1, "middle", 1, "noop", '{"config":{"at":1234567890123456}}', "0" * 32)
MESSAGES = {
    TASKS: ("@", _TOKEN, "m", msgspec.msgpack.encode(_TASK)),
    RESULTS: ("@", f"{_TOKEN}|{'0' * 64}|0|0", "o", '{"output":"{\\"at\\":1234567890123456}"}'),
}


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, protocol=2, socket_timeout=30)


def _take(client: redis.Redis, stream: str) -> list[bytes]:
    answer = client.execute_command(  # type: ignore[no-untyped-call]
        "XREADGROUP", "GROUP", GROUP, "c", "COUNT", BATCH, "BLOCK", 5000, "STREAMS", stream, ">"
    )
    return [entry_id for entry_id, _ in answer[0][1]] if answer else []


def _pass_on(client: redis.Redis, taken: str, ids: list[bytes], given: str, count: int) -> None:
    pipeline = client.pipeline(transaction=False)
    if ids:
        pipeline.execute_command("XACK", taken, GROUP, *ids)  # type: ignore[no-untyped-call]
        pipeline.execute_command("XDEL", taken, *ids)  # type: ignore[no-untyped-call]
    for _ in range(count):
        pipeline.execute_command("XADD", given, "*", *MESSAGES[given])  # type: ignore[no-untyped-call]
    pipeline.execute()


def _worker(url: str, count: int) -> None:
    client = _client(url)
    done = 0
    while done < count:
        ids = _take(client, TASKS)
        _pass_on(client, TASKS, ids, RESULTS, len(ids))
        done += len(ids)


def _round(url: str, count: int, under_way: int) -> float:
    client = _client(url)
    client.delete(TASKS, RESULTS)
    for stream in (TASKS, RESULTS):
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    worker = multiprocessing.get_context("spawn").Process(target=_worker, args=(url, count + 1))
    worker.start()
    _pass_on(client, RESULTS, [], TASKS, 1)  # the worker is up once this one is back
    while not (ids := _take(client, RESULTS)):
        if not worker.is_alive():
            raise RuntimeError("the floor's worker has ended")
    _pass_on(client, RESULTS, ids, TASKS, 0)
    started = time.perf_counter()
    sent = min(under_way, count)
    _pass_on(client, RESULTS, [], TASKS, sent)
    done = 0
    while done < count:
        ids = _take(client, RESULTS)
        done += len(ids)
        more = min(len(ids), count - sent)
        sent += more
        _pass_on(client, RESULTS, ids, TASKS, more)
    took = time.perf_counter() - started
    worker.join()
    client.delete(TASKS, RESULTS)
    client.close()
    return took


def batched_per_second(url: str, count: int = 20_000) -> float:
    return count / _round(url, count, UNDER_WAY)


def single_round_trip_ms(url: str, count: int = 1_000) -> float:
    return 1000 * _round(url, count, 1) / count
