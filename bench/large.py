"""What takes too long for `make bench`: 100,000 nodes in a DAG, live executions in 2 GiB of Valkey, a long history."""

from __future__ import annotations

from bench import over_http, shapes
from bench.cluster import Cluster
from bench.engine_alone import DIAMOND_NODES, Figures, note, seconds

ROUNDS = 3
DAG_SIZES = (10_000, 100_000)
LIVE_BYTES = 2 << 30
PARK_TOGETHER = 10_000
HISTORY = (0, 10_000, 50_000)


async def dags(engine: Cluster, scale: float) -> Figures:
    """Layered at random. The definition is there after the first time, which does not count."""
    figures: Figures = {}
    graphs = {size: shapes.random_layers(round(size * scale)) for size in DAG_SIZES}
    for graph in graphs.values():
        await engine.run(graph)
    for _ in range(ROUNDS):
        for size, graph in graphs.items():
            note(figures, **{f"dag_seconds {size}": await seconds(engine.run(graph))})
    return figures


async def live(engine: Cluster, scale: float) -> Figures:
    """Executions that wait for their first node, until Valkey is full; diamonds beside none and beside all of them."""
    figures: Figures = {}
    diamonds = round(2_000 * scale)
    empty, count, held = await engine.memory_bytes(), 0, 0
    await _beside(engine, figures, "none", diamonds)
    while held < LIVE_BYTES * scale:
        await engine.start(shapes.parked(), PARK_TOGETHER)
        count += PARK_TOGETHER
        held = await engine.memory_bytes()
    await engine.rewritten()
    await _beside(engine, figures, "full", diamonds)
    note(figures, live_executions=count, live_bytes=held, bytes_per_live_execution=(held - empty) / count)
    return figures


async def _beside(engine: Cluster, figures: Figures, name: str, diamonds: int) -> None:
    for _ in range(ROUNDS):
        took = await seconds(engine.run(shapes.diamond(), diamonds))
        note(figures, **{f"us_per_node live {name}": 1e6 * took / (diamonds * DIAMOND_NODES)})


async def history(kind: str, scale: float) -> Figures:
    """Over HTTP, with so many executions in SQL that have ended."""
    figures: Figures = {}
    ended = 0
    async with over_http.service(kind) as service:
        empty = await service.sql_bytes()
        for wanted in HISTORY:
            await service.submit(shapes.diamond().name, round(wanted * scale) - ended)
            await service.archived()
            ended = round(wanted * scale)
            for _ in range(ROUNDS):
                found = await service.diamonds(round(3_000 * scale))
                us = 1e6 / found["diamonds_per_second"] / DIAMOND_NODES
                note(figures, **{f"us_per_node history {wanted}": us})
                ended += round(3_000 * scale)
        note(figures, sql_bytes_per_execution=(await service.sql_bytes() - empty) / ended)
    return figures
