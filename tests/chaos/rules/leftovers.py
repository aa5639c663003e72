"""What is left in the hot store once everything has ended: nothing that belongs to an execution.

The table of hot/keys.py says what there may be at all. `For ever` are the partition's own small keys; what only lives
for a while must say so by a time to live.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.chaos.evidence import Evidence
from tests.chaos.violation import Violation

FOR_EVER = re.compile(r"meta|queues|workers|handlers|metrics|control|events|bell:.+")
EMPTIED = re.compile(r"tasks:.+|results|logs|timers")  # their names stay, their entries do not
PASSING = re.compile(r"def:.+|duty:.+|rate:.+")
GONE_WITHIN_SECONDS = 30.0  # of names of roles that died; the launcher makes the keepers that quick (role.py)


def keys_are_known(evidence: Evidence) -> Iterator[Violation]:
    """No key of an execution is left, queues and results are empty, and what may stay a while expires."""
    for name, (kind, ttl_seconds, size) in evidence.hot.keys.items():
        _, _, short = name.partition("}:")
        if EMPTIED.fullmatch(short):
            if size:
                yield Violation("nothing is left over", f"{name} ({kind}) still has {size} entries")
        elif PASSING.fullmatch(short):
            if ttl_seconds < 0:
                yield Violation("nothing is left over", f"{name} never expires")
        elif short.startswith("x:"):
            yield Violation("nothing is left over", "it is still in the hot store", short[2:])
        elif not FOR_EVER.fullmatch(short):
            yield Violation("nothing is left over", f"{name} ({kind}) should not be there")


def timers_are_gone(evidence: Evidence) -> Iterator[Violation]:
    """But for the deadline of an execution that was opened anew: it is dropped when its time comes."""
    for member, due_ms in evidence.hot.timers.items():
        if not (member.startswith("X|") and due_ms > evidence.hot.now_ms):
            late = (evidence.hot.now_ms - due_ms) / 1000
            yield Violation("no timers are left", f"{member}, due {late:.1f} s ago")


def nothing_is_pending(evidence: Evidence) -> Iterator[Violation]:
    """Every hint that an orchestrator has read was acknowledged."""
    if evidence.hot.pending:
        yield Violation("nothing is pending", f"{evidence.hot.pending} hints were read and not acknowledged")


def names_of_the_dead_are_gone(evidence: Evidence) -> Iterator[Violation]:
    """Consumers of the results, and workers."""
    for kind, names in (("consumer", evidence.hot.consumers), ("worker", evidence.hot.workers)):
        for name, silent_seconds in names.items():
            if silent_seconds > GONE_WITHIN_SECONDS:
                says = f"the {kind} {name} was last heard of {silent_seconds:.0f} s ago"
                yield Violation("names of the dead are gone", says)
