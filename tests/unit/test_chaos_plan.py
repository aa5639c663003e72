"""The fault machine's plan and load follow from the seed, and leave nothing out."""

from __future__ import annotations

import itertools

import pytest

from headrace.model.validation import validate
from tests.chaos.crash_points import CRASH_POINTS
from tests.chaos.dags import MOST_NODES
from tests.chaos.faults import FAULTS
from tests.chaos.load import orders
from tests.chaos.oracle import expect
from tests.chaos.plan import plan


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_plan_is_the_same_for_the_same_seed_alone(database: str) -> None:
    assert plan(7, 120, database) == plan(7, 120, database)
    assert plan(7, 120, database) != plan(8, 120, database)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_three_minutes_have_every_fault_and_every_crash_point(database: str) -> None:
    planned = plan(1, 180, database)
    assert {one.fault for one in planned} == {
        name for name, fault in FAULTS.items() if fault.database in ("", database)
    }
    assert {one.target for one in planned if one.fault == "crash"} == {str(point) for point in CRASH_POINTS}
    assert all(0 <= one.at < 180 for one in planned)


def test_a_plan_can_be_narrowed_to_faults_and_crash_points() -> None:
    planned = plan(1, 60, "sqlite", ["flushall", "worker:claim.after"])
    assert {one.kind for one in planned} == {"flushall", "crash worker:claim.after"}


def test_a_long_run_has_the_sql_server_away_for_a_minute() -> None:
    away = [one.parameters["seconds"] for one in plan(1, 600, "postgresql") if one.fault == "postgres_stopped"]
    assert max(away) == 60


def test_the_load_is_the_same_for_the_same_seed_alone() -> None:
    first, again, other = (list(itertools.islice(orders(seed), 100)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_load_is_valid_small_for_the_most_part_and_mostly_succeeds() -> None:
    wanted = list(itertools.islice(orders(1), 500))
    for order in wanted:
        validate(order.definition, handlers=None)
    sizes = [len(order.definition["nodes"]) for order in wanted]
    assert min(sizes) == 1
    assert 100 < max(sizes) <= MOST_NODES
    assert sum(expect(order.definition).status == "COMPLETED" for order in wanted) > 0.9 * len(wanted)
