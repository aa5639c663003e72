"""All faults, by name."""

from __future__ import annotations

from tests.chaos.faults import clocks, network, processes, sql, store, streams
from tests.chaos.faults.fault import Fault

FAMILIES = (processes.FAULTS, store.FAULTS, network.FAULTS, sql.FAULTS, streams.FAULTS, clocks.FAULTS)
FAULTS: dict[str, Fault] = {fault.name: fault for family in FAMILIES for fault in family}
