"""The events of each execution as the chains that they are: every event names the one before it.

Where the store never forgot, an epoch is one chain. A store that came back with older data goes on from an earlier
event: the chain has branches then, of which one is the history and the others were forgotten. An entry that was
delivered twice, under another id, is the same event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.chaos.evidence import Change, Evidence, Seen


@dataclass
class Chain:
    """One epoch of one execution, in the order in which the store said it."""

    execution: str
    epoch: str
    run: int
    events: list[Seen] = field(default_factory=list)
    _by_id: dict[str, Seen] = field(default_factory=dict)
    _by_seq: dict[int, list[Seen]] = field(default_factory=dict)  # more than one, where the store went back

    def add(self, event: Seen) -> None:
        others = self._by_seq.setdefault(event.seq, [])
        self._by_id[event.id] = next((other for other in others if _is_same(other, event)), event)
        if self._by_id[event.id] is event:
            self.events.append(event)
            others.append(event)

    def before(self, event: Seen) -> Seen | None:
        """Its predecessor; also one that stands under another id, because it was taken out and put back."""
        if not event.previous:
            return None
        found = self._by_id.get(event.previous)
        if found is None:
            earlier = [other for other in self._by_seq.get(event.seq - 1, ()) if other.at_ms <= event.at_ms]
            found = earlier[-1] if earlier else None
        return found

    def has_hole(self, event: Seen) -> bool:
        return bool(event.previous) and self.before(event) is None

    def path(self, to_id: str) -> list[Seen] | None:
        """From the first event to this one; None where one of them was never seen."""
        event, path = self._by_id.get(to_id), []
        while event is not None:
            path.append(event)
            if self.has_hole(event):
                return None
            event = self.before(event)
        return path[::-1] if path else None

    def goes_on_behind(self, event_id: str) -> bool:
        return any(event.previous == event_id for event in self.events)


def _is_same(one: Seen, other: Seen) -> bool:
    return (one.previous, one.at_ms, one.status, one.changes) == (
        other.previous, other.at_ms, other.status, other.changes,
    )  # fmt: skip


def chains(evidence: Evidence) -> dict[tuple[str, str], Chain]:
    found: dict[tuple[str, str], Chain] = {}
    for event in evidence.events:
        key = (event.execution, event.epoch)
        if key not in found:
            found[key] = Chain(event.execution, event.epoch, event.run)
        found[key].add(event)
    return found


def changes(events: Iterable[Seen], state: str) -> Iterator[tuple[Seen, Change]]:
    for event in events:
        for change in event.changes:
            if change.state == state:
                yield event, change
