"""The benchmark's own arithmetic, and that what it changes in its scratch copies is still where it was."""

from __future__ import annotations

import os
import time

import pytest
from bench import guards, inside, judge, shapes
from bench.hops import hops_ms, mean_hop_ms, quantiles
from bench.report import as_markdown, as_text
from bench.scratch import DoesNotApply, Edit, edited
from bench.usage import CpuTime, cpu_seconds, rss_bytes


@pytest.mark.parametrize("edits", [*guards.GUARDS.values(), inside.EDITS], ids=[*guards.GUARDS, "inside"])
def test_scratch_copies_follow_the_source(edits: tuple[Edit, ...]) -> None:
    with edited(edits) as source:
        for edit in edits:
            text = (source / "headrace" / edit.file).read_text()
            assert edit.new in text


def test_an_edit_of_text_that_is_gone_does_not_apply() -> None:
    with (
        pytest.raises(DoesNotApply, match=r"settings\.py: was never there"),
        edited([Edit("settings.py", "was never there", "")]),
    ):
        pass


def test_hops() -> None:
    began_ns = [0, 1_000_000, 2_000_000, 9_000_000]
    assert hops_ms(began_ns) == [1.0, 1.0, 7.0]
    assert mean_hop_ms(began_ns) == 3.0
    assert quantiles(range(1, 1001), "hop") == {"hop p50": 501, "hop p99": 991, "hop p99.9": 1000}


def test_random_layers_are_layers() -> None:
    nodes = shapes.random_layers(500).nodes
    depth: dict[str, int] = {}
    for node in nodes:
        parents = {depth[parent] for parent in node.dependencies}
        assert len(parents) <= 1  # all in the layer above
        depth[node.id] = max(parents, default=-1) + 1
    assert len(nodes) == 500
    assert max(depth.values()) == 19


def test_goals_are_held_against_the_median() -> None:
    rows = {
        name: (ratio, met)
        for name, _, ratio, _, met in judge._flat({"us size 10": 100, "us size 20": 140}, "us size", "nodes")
    }
    assert rows == {"10 nodes": ("", ""), "20 nodes": ("1.40 x the first", "NO")}
    assert judge.middle({"a": [1, 9, 2]}) == {"a": 2}


def test_tables() -> None:
    rows = [("", "median"), ("diamonds", "1,500 /s")]
    assert as_text(rows) == "            median\ndiamonds  1,500 /s"
    assert as_markdown(rows) == "|  | median |\n| --- | ---: |\n| diamonds | 1,500 /s |"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="usage is read from /proc")
def test_usage_of_this_process() -> None:
    since = CpuTime({"me": os.getpid()})
    while since.us_per(1)["me"] == 0:
        sum(range(10_000))
    assert cpu_seconds(os.getpid()) <= time.process_time()
    assert cpu_seconds(os.getppid()) > 0
    assert rss_bytes(os.getpid()) > 1 << 20
