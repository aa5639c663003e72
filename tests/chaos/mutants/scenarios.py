"""Where the mutants are weak: short runs that aim at one spot each, with a load in which much goes wrong by itself.

A scenario is fair: the engine as it is breaks no rule in it. The runner shows that before it believes in any catch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos import dags
from tests.chaos.load import Order

Blow = tuple[str, Mapping[str, Any]]  # the name of a fault, and its parameters; `after`: seconds later than the others


@dataclass(frozen=True)
class Scenario:
    """Rounds of blows, `pause` seconds apart, while the load runs; those of a round fall together. The load stops after
    the last one, and not before `seconds` are over."""

    rounds: tuple[tuple[Blow, ...], ...] = ()
    pause: float = 0.7
    seconds: float = 5.0


def crashes(*points: str, times: int) -> Scenario:
    rounds = [
        (("crash", {"target": point, "count": 1 + i % 3, "seat": i / times}),) for i in range(times) for point in points
    ]
    return Scenario(tuple(rounds), pause=0.2)


def repeated(queue: str, *more: Blow, later: float) -> tuple[tuple[Blow, ...], ...]:
    """Messages of both partitions that come again, at once and somewhat later."""
    return tuple(
        (
            *more,
            *(
                ("duplicated", {"target": queue, "partition": each, "most": 10, "seconds": i % 2 * later, "order": i})
                for each in (0, 1)
            ),
        )
        for i in range(6)
    )


def stopped(seconds: float) -> tuple[Blow, ...]:
    """All workers at once, so that tasks pile up."""
    return tuple(("role_stopped", {"target": f"worker-{number}", "seconds": seconds}) for number in (1, 2, 3))


LEASE_AND_MORE = 2.5
# SQL hears of nothing, two workers sleep, the store is lost, and they wake up when everything was opened anew.
LOST_UNARCHIVED: tuple[Blow, ...] = (
    ("sqlite_locked", {"seconds": 1.4}),
    ("role_stopped", {"target": "worker-1", "seconds": LEASE_AND_MORE, "after": 0.7}),
    ("role_stopped", {"target": "worker-2", "seconds": LEASE_AND_MORE, "after": 0.8}),
    ("flushall", {"after": 1.2}),
)
# Tasks wait while their executions fail or are cancelled, and what has ended is still there when the workers wake up.
WORK_PILED_UP: tuple[Blow, ...] = (
    *(("archiver_delayed", {"target": "events", "partition": each, "seconds": 5.0}) for each in (0, 1)),
    *((name, {**given, "after": after}) for after in (0.5, 2.0, 3.5) for name, given in stopped(1.2)),
)
SCENARIOS: dict[str, Scenario] = {
    "calm": Scenario(seconds=8.0),
    "work piled up": Scenario((WORK_PILED_UP,) * 2, pause=0.5),
    "crash at dispatch": crashes("orchestrator:dispatch.before", times=14),
    "crash at due": crashes("orchestrator:due.after", times=14),
    "crash at reading": crashes("orchestrator:read_hints.after", times=8),
    "crash at claim": crashes("worker:claim.after", times=10),
    "crash at opening": crashes("api:open.before", "api:epoch_commit.after", times=4),
    "crash at archiving": crashes("orchestrator:archive_commit.before", "orchestrator:archive_commit.after", times=6),
    "crash at submitting": crashes("api:submit_commit.after", times=6),
    "store lost": Scenario(((("flushall", {}),),) * 5, pause=4.0),
    "store lost unarchived": Scenario((LOST_UNARCHIVED,) * 4, pause=1.0),
    "store older": Scenario(((("aof_cut", {"away_seconds": 0.0}),),) * 4, pause=2.0),
    "workers killed": Scenario(tuple((("role_killed", {"target": f"worker-{n}"}),) for n in (1, 2, 3, 1)), pause=1.0),
    "workers stopped": Scenario((stopped(LEASE_AND_MORE),) * 2, pause=1.5),
    "workers replaced": Scenario(((("upgrade", {"order": 1, "pause": 0.2}),),) * 2, pause=0.5),
    "results twice": Scenario(repeated("results", later=0.4), pause=0.3),
    "tasks twice": Scenario(repeated("tasks:step", *stopped(0.8), later=1.0), pause=0.8),
    "events twice": Scenario(repeated("events", later=0.4), pause=0.3),
}


def orders(seed: int) -> Iterator[Order]:
    """Small graphs, and in most of them something fails, is slow, is retried or cancelled."""
    rng = random.Random(f"directed {seed}")
    number = 0
    while True:
        number += 1
        shape = rng.choice(dags.SHAPES)
        nodes = [_node(rng, i, above) for i, above in enumerate(shape(rng, rng.randint(3, 9)))]
        made: dict[str, Any] = {"name": f"directed-{number}", "nodes": nodes}
        made["on_failure"] = rng.choice(("fail_fast", "continue"))
        if rng.random() < 0.4:
            rng.choice(nodes)["config"]["fatal_runs"] = 1
        cancel_after = rng.uniform(0.0, 1.5) if rng.random() < 0.25 else None
        retry_by = rng.choice(("retry", "retry", "none"))
        yield Order(number, made, with_key=rng.random() < 0.8, cancel_after=cancel_after, retry_by=retry_by)


def _node(rng: random.Random, number: int, parents: list[int]) -> dict[str, Any]:
    names = [f"n{parent}" for parent in parents]
    inputs = {name: f"{{{{ {name}.value }}}}" for name in names}
    config: dict[str, Any] = {"salt": rng.randrange(1 << 30), "inputs": inputs}
    chance = rng.random()
    if chance < 0.12:
        config["fails"] = rng.randint(1, 2)
    elif chance < 0.18:
        config |= {"fails": 2, "seconds": 1.5}
    elif chance < 0.35:
        config["seconds"] = round(rng.uniform(0.3, 2.5), 2)  # a lease is 1.5 s
    return {
        "id": f"n{number}", "handler": "step", "dependencies": names, "config": config, "retry_config": dags.RETRIES,
    }  # fmt: skip
