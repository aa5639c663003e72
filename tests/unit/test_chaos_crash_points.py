"""The fault machine's crash points: each of them exists in the engine, kills the process, and at the right moment."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.crash_points import CRASH_POINTS, STEPS, CrashPoint, Orders, find

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def hits() -> dict[str, dict[str, object]]:
    command = [sys.executable, "-m", "tests.chaos.rehearsal"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, dict[str, object]] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize("point", CRASH_POINTS, ids=str)
def test_every_point_is_hit_before_or_after_its_step(point: CrashPoint, hits: dict[str, dict[str, object]]) -> None:
    assert hits[str(point)] == {"status": -signal.SIGKILL, "took_effect": point.when == "after"}


def test_every_step_is_a_coroutine_of_the_engine() -> None:
    steps = {step for steps in STEPS.values() for step in steps}
    for target in {target for step in steps for target in (step.target, step.also) if target}:
        owner, name = find(target)
        assert inspect.iscoroutinefunction(getattr(owner, name)), target


def test_orders_reach_the_role_through_shared_memory(tmp_path: Path) -> None:
    ours, theirs = Orders(tmp_path / "orders"), Orders(tmp_path / "orders")
    ours.arm("claim.before", 3)
    ours.skew_seconds = -3600.0
    theirs.passes("claim.before")
    theirs.passes("claim.after")
    assert (theirs.armed, theirs.skew_seconds) == ("claim.before", -3600.0)
    theirs.disarm()
    assert (ours.armed, ours.skew_seconds) == ("", -3600.0)
