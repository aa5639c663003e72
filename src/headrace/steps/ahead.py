"""Renders what will most likely be ready once a node is complete, before the store has said so.

It spares a round trip where the guess is right: the tasks go along with the result. A guess that is wrong does no harm,
for the store takes a task only where its node is ready.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.messages import Dispatch, Hint, Token
from headrace.steps.plans import LoadedPlan
from headrace.steps.rendering import Ready, Renderer

MOST_ARRIVED = 50_000


class Ahead:
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._arrived: dict[tuple[str, str, int], int] = {}  # parents that were seen to complete; see _is_last

    def tasks(
        self, of: Hint | Token, plan: LoadedPlan, children: Sequence[int], *, are_ready: bool = False
    ) -> list[Dispatch | None]:
        """Of each of these children of a node that is complete: its task, or None if it cannot be told. `are_ready`:
        it is known that some of them are."""
        counts = plan.graph.parent_counts
        tasks: list[Dispatch | None] = []
        for child in children:
            likely = are_ready or counts[child] == 1 or self._is_last(of, child, counts[child])
            tasks.append(self._renderer.render_ahead(ready(of, plan, child)) if likely else None)
        return tasks

    def _is_last(self, of: Hint | Token, child: int, parents: int) -> bool:
        """Whether all parents of the child have now been seen here to complete. A guess: hints may come twice, and
        others see some of them."""
        key = (of.execution_id, of.epoch, child)
        seen = self._arrived.pop(key, 0) + 1
        if seen < parents:
            if len(self._arrived) >= MOST_ARRIVED:
                del self._arrived[next(iter(self._arrived))]  # others see the rest of its parents
            self._arrived[key] = seen
        return seen >= parents


def ready(of: Hint | Token, plan: LoadedPlan, child: int, attempt: int = 1) -> Ready:
    return Ready(of.execution_id, of.epoch, of.run, attempt, plan, child)
