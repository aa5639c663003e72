"""`make bench-peers`: the same no-op workloads on Headrace and on other engines, one after the other, in rounds.

A diamond of five nodes (how many per second), a chain of twenty (from the start of one node to the start of the next),
and a fan 1 -> 1,000 -> 1 (from the submission to the known end). All servers are private, on loopback, and durable. An
engine that is not installed, or does not finish, is told as absent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import over_http
from bench.cluster import ROOT
from bench.hops import CHAIN_LENGTH, mean_hop_ms
from bench.peers.driver import CHAINS, FAN_WIDTH
from bench.report import RESULTS, Row, load, save, table
from headrace.embedded import EmbeddedValkey
from headrace.process import run_loop

ENVIRONMENT = ROOT / ".venv-peers"
GIVE_UP_SECONDS = 300.0
FIRST_DIAMONDS = 1_000  # they tell how many are measured, so that it takes as long as with the others

Figures = dict[str, float]
Measure = Callable[[float], Figures]


class Absent(Exception):
    """Why there are no figures."""


def headrace_on(kind: str) -> Measure:
    async def measured(seconds: float) -> Figures:
        async with over_http.service(kind) as service:
            first = await service.diamonds_alone(FIRST_DIAMONDS)
            diamonds = await service.diamonds_alone(round(seconds * first["diamonds_per_second"]))
            hops_ms = [mean_hop_ms(await service.chain(CHAIN_LENGTH)) for _ in range(CHAINS)]
            return {
                "diamonds_per_second": diamonds["diamonds_per_second"],
                "hop_ms": statistics.median(hops_ms),
                "fan_1000_seconds": await service.fan_seconds(FAN_WIDTH),
            }

    return lambda seconds: run_loop(measured(seconds))


def peer(module: str, package: str, *, valkey: bool = False, postgresql: bool = False) -> Measure:
    """A peer in its own virtual environment, with what it needs."""

    def measured(seconds: float) -> Figures:
        if not any(ENVIRONMENT.glob(f"lib/python*/site-packages/{package}")):
            raise Absent(f"{package} is not installed in {ENVIRONMENT.name}")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-peer-")))
            given = {"PEER_NODE_MODULES": str(ENVIRONMENT / "node_modules")}
            if valkey:
                given["PEER_VALKEY_SOCKET"] = str(stack.enter_context(EmbeddedValkey(folder / "valkey")).socket_path)
            if postgresql:
                given["PEER_POSTGRESQL"] = stack.enter_context(over_http.postgresql())[0]
            return _driven(module, folder, given, seconds)

    return measured


def _driven(module: str, folder: Path, given: dict[str, str], seconds: float) -> Figures:
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "bench.peers.driver", module, str(folder)]
    with (
        (folder / "driver.log").open("w+") as log,
        _group([*command, "--seconds", f"{seconds:g}"], given, log) as driver,
    ):
        try:
            told, _ = driver.communicate(timeout=GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            raise Absent(f"not finished within {GIVE_UP_SECONDS:g} s") from None
        if driver.returncode or not told:
            log.seek(0)
            raise Absent((log.read().strip().splitlines() or ["it ended without figures"])[-1])
    figures: Figures = json.loads(told.splitlines()[-1])
    return figures


@contextmanager
def _group(command: list[str], given: dict[str, str], log: object) -> Iterator[subprocess.Popen[str]]:
    """A process with all that it starts, which ends with it however that goes."""
    environment = {**os.environ, **given, "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
        start_new_session=True,  # type: ignore[call-overload]
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


ENGINES: dict[str, Measure] = {
    "Headrace over HTTP, SQLite": headrace_on("SQLite"),
    "Headrace over HTTP, PostgreSQL": headrace_on("PostgreSQL"),
    "Restate": peer("restate_peer", "restate"),
    "Celery, Valkey": peer("celery_peer", "celery", valkey=True),
    "DBOS, PostgreSQL": peer("dbos_peer", "dbos", postgresql=True),
    "DBOS, SQLite": peer("dbos_peer", "dbos"),
    "Prefect, SQLite": peer("prefect_peer", "prefect"),
}


@dataclass
class Found:
    """Of each engine its figures, round by round; or why there are none."""

    engines: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def run(names: list[str], rounds: int, seconds: float) -> Found:
    found = Found()
    for number in range(1, rounds + 1):
        for name in names:
            if name in found.absent:
                continue
            try:
                figures = ENGINES[name](seconds)
            except Absent as why:
                found.absent[name] = str(why)
                print(f"round {number}: {name}: absent: {why}", file=sys.stderr, flush=True)
                continue
            for key, value in figures.items():
                found.engines.setdefault(name, {}).setdefault(key, []).append(value)
            told = ", ".join(f"{key} {value:.2f}" for key, value in figures.items())
            print(f"round {number}: {name}: {told}; load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)
    return found


def rows(found: Found) -> list[Row]:
    made: list[Row] = [("engine", "diamonds/s", "ms per hop", "1 -> 1,000 -> 1")]
    for name in ENGINES:
        if name in found.engines:
            middle = {key: statistics.median(values) for key, values in found.engines[name].items()}
            made.append(
                (
                    name,
                    f"{middle['diamonds_per_second']:,.1f}",
                    f"{middle['hop_ms']:.2f}",
                    f"{middle['fan_1000_seconds']:.2f} s",
                )
            )
        elif name in found.absent:
            made.append((name, "absent"))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each engine is measured (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long diamonds are run (default 5)")
    parser.add_argument("--only", default="", help="engines whose names hold this")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and all that was started ends
    if not shutil.which(str(ENVIRONMENT / "bin" / "python")):
        print(f"there is no {ENVIRONMENT.name}: `make bench-peers` makes it", file=sys.stderr)
    before = load()
    found = run([name for name in ENGINES if given.only.lower() in name.lower()], given.rounds, given.seconds)
    told = {"rounds": given.rounds, "load_before": before, **asdict(found)}
    save(RESULTS / ("trial-peers" if given.only else "peers"), told, table(rows(found)))


if __name__ == "__main__":
    main()
