"""`python -m bench.peers.driver PEER FOLDER`: one peer, measured; runs in the peers' virtual environment.

Every peer goes through the same loop and the same clock. The figures go to stdout, as one line of JSON. What a peer
starts is in this process's group, which the harness ends as a whole.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.hops import CHAIN_LENGTH, mean_hop_ms

CHAINS = 5
FAN_WIDTH = 1_000
CLIENTS = 50
FIRST = 5  # diamonds that load everything and tell how many to measure with
MOST = 5_000


class Peer(Protocol):
    """A peer that runs: its no-op workloads, each from the submission to the moment that the client knows the end."""

    def diamonds(self, count: int) -> None: ...

    def chain(self, length: int) -> list[int]:
        """When each node began, in ns of the clock that all processes of a machine share."""
        ...

    def fan(self, width: int) -> None: ...


Running = Callable[[Path], AbstractContextManager[Peer]]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(peer: Peer, at_least_seconds: float) -> dict[str, float]:
    peer.diamonds(FIRST)
    count = min(MOST, max(FIRST, round(at_least_seconds * 2 * FIRST / seconds(lambda: peer.diamonds(2 * FIRST)))))
    took = seconds(lambda: peer.diamonds(count))
    hop_ms = statistics.median(mean_hop_ms(peer.chain(CHAIN_LENGTH)) for _ in range(CHAINS))
    return {
        "diamonds_per_second": count / took,
        "hop_ms": hop_ms,
        "fan_1000_seconds": seconds(lambda: peer.fan(FAN_WIDTH)),
    }


@contextmanager
def process(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server or worker of a peer, of the same virtual environment, for as long as it is needed."""
    with log.open("wb") as told:
        started = subprocess.Popen(command, env={**os.environ, **environment}, stdout=told, stderr=told, cwd=log.parent)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(url: str, body: Any) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def until(question: Callable[[], object], within_seconds: float = 60.0) -> None:
    """Until it answers without an error."""
    give_up = time.monotonic() + within_seconds
    while True:
        try:
            question()
        except Exception:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.driver", description=__doc__)
    parser.add_argument("peer", help="the module in bench/peers")
    parser.add_argument("folder", type=Path, help="an empty folder for its data")
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long diamonds are run (default 5)")
    given = parser.parse_args()
    running: Running = importlib.import_module(f"bench.peers.{given.peer}").running
    with running(given.folder) as peer:
        print(json.dumps(measure(peer, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
