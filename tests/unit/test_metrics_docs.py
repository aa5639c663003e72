"""docs/reference/metrics.md names every metric that there is, and none that there is not."""

from __future__ import annotations

import re

from docs.generate.pages import PAGES, filled
from prometheus_client import CollectorRegistry

from headrace.api.front import HttpMetrics
from headrace.engine.metrics import METRICS

PAGE = (PAGES / "metrics.md").read_text("utf-8")
ROW = re.compile(r"^\| `(headrace_\w+)` +\| (\w+) +\| .*? +\| (.+) \|$", re.MULTILINE)


def known() -> set[tuple[str, str, str]]:
    """Name, type and meaning of each."""
    registry = CollectorRegistry()
    HttpMetrics(registry)
    of_http = {
        (f"{each.name}_total" if each.type == "counter" else each.name, each.type, each.documentation)
        for each in registry.collect()
    }
    return of_http | {(name, each.kind, each.meaning) for name, each in METRICS.items()}


def test_the_generated_part_is_up_to_date() -> None:
    assert filled(PAGE) == PAGE, "docs/reference/metrics.md is out of date: run `make docs`"


def test_every_metric_has_one_row() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == len(set(rows))
    assert set(rows) == known()


def test_the_page_speaks_of_no_other_metric() -> None:
    names = {name for name, _, _ in known()}
    assert set(re.findall(r"headrace_\w+", PAGE)) == names


def test_names_and_kinds_fit() -> None:
    for name, each in METRICS.items():
        assert re.fullmatch(r"headrace_[a-z_]+", name)
        assert name.endswith("_total") == (each.kind == "counter"), name
        assert each.meaning.endswith(".")
