"""What is wrong with a document, collected while it is read.

One answer names every problem, but it stays bounded: a hostile document has millions of them, and looking for what a
misspelt name could mean is not cheap.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

from headrace.errors import Problem
from headrace.model import payload
from headrace.model.payload import dotted

Loc = tuple[str | int, ...]

MAX_PROBLEMS = 1_000


class Findings:
    """The problems found so far. Beyond MAX_PROBLEMS they are only counted, for a hostile document has millions."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._more = 0
        self._hints = 50

    def add(self, code: str, message: str, loc: Loc = (), node: str | None = None, part: str = "") -> None:
        self.extend((Problem(code, message, loc, node, part=part),))

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if len(self._problems) < MAX_PROBLEMS:
                self._problems.append(problem)
            else:
                self._more += 1

    def add_flaws(self, value: object, loc: Loc, node: str | None = None) -> bool:
        """Add what is not JSON in the value; whether there was nothing."""
        if payload.is_plain(value):
            return True
        for flaw in islice(payload.flaws(value, loc), 100):
            quote = ": put quotes around it if it is meant as text" if flaw.message.startswith("is a ") else ""
            place = dotted(flaw.loc[2:] if node else flaw.loc) or "the value"
            self.add("not_json", f"{place} {flaw.message}{quote}", flaw.loc, node)
        return False

    def did_you_mean(self, name: str, candidates: Iterable[str]) -> str:
        """A suggestion to end a message with, or nothing. Only the first problems get one: looking is not cheap."""
        self._hints -= 1
        if self._hints < 0 or len(name) > 100:
            return ""
        near = (candidate for candidate in candidates if abs(len(candidate) - len(name)) <= 3)
        by_lower = {candidate.lower(): candidate for candidate in islice(near, 2_000)}
        close = difflib.get_close_matches(name.lower(), by_lower, n=1)
        return f": did you mean {by_lower[close[0]]}?" if close else ""

    def all(self) -> list[Problem]:
        if not self._more:
            return list(self._problems)
        return [*self._problems, Problem("too_many_problems", f"and {self._more:,} more problems")]
