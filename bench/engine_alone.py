"""The engine without HTTP and without a record: speed, latency and growth, and the floor beside them.

All of it in rounds that are interleaved, because machines are shared and noisy. Latency is measured while the driver
looks for ends ten times a second, as an archiver does: one that follows every event would take the roles' cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

from bench import floor, shapes
from bench.cluster import Cluster
from bench.hops import CHAIN_LENGTH, hops_ms, quantiles
from bench.usage import CpuTime
from headrace.model.definition import Definition

DIAMOND_NODES = 5
FAN_WIDTHS = (1_000, 10_000)
DAG_SIZES = (10, 100, 1_000, 10_000)
LIVE_EXECUTIONS = (0, 10_000, 100_000)
PARKED_DIAMONDS = 5_000
LIVE_ROUNDS = 3
LOOK_SECONDS = 0.1
TICK_SECONDS = 0.05

Figures = dict[str, list[float]]


def note(figures: Figures, **values: float) -> None:
    for name, value in values.items():
        figures.setdefault(name, []).append(value)


async def seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


@asynccontextmanager
async def looking_seldom(engine: Cluster) -> AsyncIterator[None]:
    engine.look_seconds = LOOK_SECONDS
    try:
        yield
    finally:
        engine.look_seconds = 0.0


async def diamonds(engine: Cluster, figures: Figures, count: int) -> float:
    """Per second; with it, the CPU time per node of every process."""
    cpu = CpuTime(engine.pids)
    rate = count / await seconds(engine.run(shapes.diamond(), count))
    note(figures, diamonds_per_second=rate)
    note(figures, **{f"cpu_us_per_node {role}": us for role, us in cpu.us_per(count * DIAMOND_NODES).items()})
    return rate


async def _hops_ms(engine: Cluster, ids: Sequence[str]) -> list[float]:
    """From the start of a handler to the start of the next one's, of chains that are under way."""
    hops: list[float] = []
    names = [f"n{i}" for i in range(CHAIN_LENGTH)]
    ended = await engine.finished(ids, keep=True)
    for execution_id in ids:
        texts = await engine.store.outputs(execution_id, names, most_bytes=1 << 30)
        hops += hops_ms([json.loads((texts or {})[name])["at"] for name in names])
    await engine.forget(ended)
    return hops


async def hops_idle_ms(engine: Cluster, count: int) -> list[float]:
    """One chain at a time."""
    chain = shapes.chain(CHAIN_LENGTH)
    async with looking_seldom(engine):
        return [hop for _ in range(count) for hop in await _hops_ms(engine, await engine.start(chain, 1))]


async def hops_loaded_ms(engine: Cluster, count: int, diamonds_per_second: float) -> list[float]:
    """A chain begins twenty times a second, and so many diamonds come in a steady stream."""
    chain, diamond = shapes.chain(CHAIN_LENGTH), shapes.diamond()
    chains: list[str] = []
    load: list[str] = []
    async with looking_seldom(engine):
        began = time.perf_counter()
        for tick in range(1, count + 1):
            chains += await engine.start(chain, 1)
            due = round(diamonds_per_second * tick * TICK_SECONDS) - len(load)
            load += await engine.start(diamond, due)
            await asyncio.sleep(began + tick * TICK_SECONDS - time.perf_counter())
        found = await _hops_ms(engine, chains)
        await engine.finished(load)
    return found


async def speed(engine: Cluster, rounds: int, scale: float) -> Figures:
    """The floor, diamonds, hops, fans and growth over the size of a DAG."""
    figures: Figures = {}
    fans = {width: shapes.fan(round(width * scale)) for width in FAN_WIDTHS}
    sizes = {size: shapes.layers(size) for size in DAG_SIZES if size <= 10_000 * scale}
    await engine.run(shapes.diamond(), 50)  # everything is loaded
    for _ in range(rounds):
        note(figures, floor_per_second=floor.batched_per_second(engine.url, round(20_000 * scale)))
        rate = await diamonds(engine, figures, round(3_000 * scale))
        note(figures, floor_ms=floor.single_round_trip_ms(engine.url, round(1_000 * scale)))
        note(figures, **quantiles(await hops_idle_ms(engine, round(40 * scale)), "hop_ms idle"))
        note(figures, **quantiles(await hops_loaded_ms(engine, round(50 * scale), rate / 2), "hop_ms half load"))
        for width, fan in fans.items():
            note(figures, **{f"fan_seconds {width}": await seconds(engine.run(fan))})
        for size, definition in sizes.items():
            note(figures, **{f"us_per_node size {size}": await _us_per_node(engine, definition, round(10_000 * scale))})
    return figures


async def _us_per_node(engine: Cluster, definition: Definition, total: int) -> float:
    """So many nodes in all, in executions of this definition."""
    count = max(1, total // len(definition.nodes))
    return 1e6 * await seconds(engine.run(definition, count)) / (count * len(definition.nodes))


async def beside_live(engine: Cluster, scale: float) -> Figures:
    """Time per node beside executions that live and wait; and what one of those takes in Valkey."""
    figures: Figures = {}
    live, empty = 0, await engine.memory_bytes()
    for wanted in LIVE_EXECUTIONS:
        await engine.start(shapes.parked(), round(wanted * scale) - live)
        live = round(wanted * scale)
        for _ in range(LIVE_ROUNDS):
            us = await _us_per_node(engine, shapes.diamond(), round(10_000 * scale))
            note(figures, **{f"us_per_node live {wanted}": us})
    full = await engine.memory_bytes()
    diamonds = round(PARKED_DIAMONDS * scale)
    await engine.start(shapes.parked_diamond(), diamonds)
    while (await engine.store.queues(0))[shapes.NOBODY] < live + diamonds:  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(LOOK_SECONDS)
    note(figures, bytes_per_live_execution=(full - empty) / max(live, 1))
    note(figures, bytes_per_live_diamond=(await engine.memory_bytes() - full) / max(diamonds, 1))
    return figures
