"""Restate: a handler per diamond, chain or fan, a durable step (`ctx.run_typed`) per node, asked over its ingress.

Steps need the fewest messages; a node as a service of its own would go through the server each time. Server with its
defaults, in a folder of its own; the services behind Hypercorn with the settings of the guide for production
(https://docs.restate.dev/develop/python/serving), steps side by side as in
https://docs.restate.dev/develop/python/concurrent-tasks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import restate

from bench.peers.driver import CLIENTS, free_port, post, process, until

WORKERS = 2  # processes of Hypercorn: as many as there are cores

peer = restate.Service("Peer")


async def noop() -> int:
    return time.monotonic_ns()


@peer.handler("diamond")
async def diamond(ctx: restate.Context) -> int:
    await ctx.run_typed("top", noop)
    await restate.gather(*(ctx.run_typed(name, noop) for name in ("left", "middle", "right")))
    return await ctx.run_typed("bottom", noop)


@peer.handler("chain")
async def chain(ctx: restate.Context, length: int) -> list[int]:
    return [await ctx.run_typed(f"n{i}", noop) for i in range(length)]


@peer.handler("fan")
async def fan(ctx: restate.Context, width: int) -> int:
    await ctx.run_typed("top", noop)
    await restate.gather(*(ctx.run_typed(f"n{i}", noop) for i in range(width)))
    return await ctx.run_typed("bottom", noop)


app = restate.app([peer])


class Peer:
    def __init__(self, port: int) -> None:
        self._port = port

    def diamonds(self, count: int) -> None:
        turns = iter(range(count))

        def client() -> None:
            connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
            for _ in turns:
                connection.request("POST", "/Peer/diamond")
                answer = connection.getresponse()
                if answer.status != 200:
                    raise RuntimeError(answer.read().decode())
                answer.read()
            connection.close()

        with ThreadPoolExecutor(CLIENTS) as pool:
            for future in [pool.submit(client) for _ in range(CLIENTS)]:
                future.result()

    def chain(self, length: int) -> list[int]:
        found: list[int] = json.loads(post(f"http://127.0.0.1:{self._port}/Peer/chain", length))
        return found

    def fan(self, width: int) -> None:
        post(f"http://127.0.0.1:{self._port}/Peer/fan", width)


@contextmanager
def running(folder: Path) -> Iterator[Peer]:
    ingress, admin, node, service = (free_port() for _ in range(4))
    given = {
        "RESTATE_BASE_DIR": str(folder / "data"),
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    config = folder / "hypercorn.toml"
    config.write_text(
        f'bind = "127.0.0.1:{service}"\nh2_max_concurrent_streams = 2147483647\n'
        f"keep_alive_max_requests = 2147483647\nkeep_alive_timeout = 2147483647\nworkers = {WORKERS}\n"
        'worker_class = "uvloop"\n'
    )
    server = [str(Path(os.environ["PEER_NODE_MODULES"], ".bin", "restate-server"))]
    hypercorn = [sys.executable, "-m", "hypercorn", "--config", str(config), "bench.peers.restate_peer:app"]
    with process(server, folder / "server.log", **given), process(hypercorn, folder / "services.log"):
        deployment = {"uri": f"http://127.0.0.1:{service}"}
        until(lambda: post(f"http://127.0.0.1:{admin}/deployments", deployment))
        found = Peer(ingress)
        until(lambda: found.chain(1))
        yield found
