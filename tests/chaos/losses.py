"""When the hot store forgot, and what that excuses: nothing that SQL knew, and nothing long before or after.

Promised is (docs/how-we-test-it.md): what SQL has archived stands. A node that completed in the hot store and was not
archived when the store forgot runs again, as a next attempt under the same idempotency key. A store that came back with
older data is compared with SQL before it hands out anything; what SQL did not know yet, it may hand out a second time.
"""

from __future__ import annotations

from tests.chaos.evidence import Evidence, Fault

FORGETS_ALL = frozenset({"flushall", "empty_folder", "aof_damaged"})
FORGETS_LAST = frozenset({"valkey_killed", "aof_cut", "aof_damaged"})  # what it had said in its last moments
FORGETS = FORGETS_ALL | FORGETS_LAST
NOT_ARCHIVING = frozenset(
    {"postgres_stopped", "postgres_killed", "sqlite_locked", "sqlite_full", "archiver_delayed"}
)  # for as long as they last

SLACK_SECONDS = 1.0  # between what a fault's record says and what it does
ARCHIVED_WITHIN_SECONDS = 2.0  # usually it is a tenth of a second
DISTURBED_WITHIN_SECONDS = 10.0  # with other faults about: the archiver's duty passes on 5 s after its holder died


class Losses:
    def __init__(self, evidence: Evidence) -> None:
        self._forgets = [fault for fault in evidence.faults if fault.name in FORGETS]
        self._went_back = [fault for fault in evidence.faults if fault.name in FORGETS_LAST]
        self._others = [fault for fault in evidence.faults if fault.name not in FORGETS]
        self._not_archiving = [fault for fault in evidence.faults if fault.name in NOT_ARCHIVING]

    def forgot(self, start: float, end: float) -> bool:
        return _overlap(self._forgets, start, end)

    def went_back(self, start: float, end: float) -> bool:
        return _overlap(self._went_back, start, end)

    def before_archived(self, at: float) -> bool:
        """Whether the store forgot so soon that what it said at this time need not have reached SQL."""
        return self.forgot(at, self._archived_by(at))

    def went_back_before_archived(self, at: float) -> bool:
        return self.went_back(at, self._archived_by(at))

    def _archived_by(self, at: float) -> float:
        until = at + DISTURBED_WITHIN_SECONDS
        if not _overlap(self._others, at, until):
            return at + ARCHIVED_WITHIN_SECONDS
        for fault in self._not_archiving:
            if fault.at <= until and fault.healed_at >= at:
                until = max(until, fault.healed_at + DISTURBED_WITHIN_SECONDS)
        return until


def _overlap(faults: list[Fault], start: float, end: float) -> bool:
    return any(fault.at - SLACK_SECONDS <= end and fault.healed_at + SLACK_SECONDS >= start for fault in faults)
