"""A rule looks at the evidence and says what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos.evidence import Evidence


@dataclass(frozen=True)
class Violation:
    rule: str
    says: str
    execution: str = ""
    node: str = ""

    def __str__(self) -> str:
        where = " ".join(part for part in (self.execution, self.node) if part)
        return f"{self.rule}: {self.says}" + (f" ({where})" if where else "")


Rule = Callable[[Evidence], Iterator[Violation]]
