"""Every cause is in docs/operations.md, and the page has no others."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.engine.causes import DO, Cause

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_every_cause_is_told() -> None:
    table = PAGE.read_text("utf-8").partition("## Why something does not run")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [cause.value for cause in Cause]


def test_every_cause_says_what_to_do() -> None:
    assert DO.keys() == set(Cause)
