"""Every key of the hot store: name, type, life, writer.

All keys of one partition carry its hash tag, so that they live in one cluster slot and one function may change state,
counters, timers and streams together. An execution belongs to the partition that its id hashes to.

    key                      type    holds                                            lives
    hr:{p}:meta              hash    due: time of the last `due`; grace: see due.lua; for ever
                                     settled: which server, see settle.lua;
                                     partitions: how many there are (in the first)
    hr:{p}:x:<id>            hash    all of an execution:                             reserve .. forget
                                     @m its record, @created .. its times and error,
                                     <node> its record; absent reads as PENDING,
                                     d:<node> parents done, counted up,
                                     o:<node> its output, o:@input input_params,
                                     o:@trace the traceparent of its request
    hr:{p}:def:<hash>        string  a definition as JSON                             while in use, and a while after
    hr:{p}:defs              hash    definition hash -> executions that use it        with def:<hash>
    hr:{p}:tasks:<handler>   list    work; a task is gone once it is claimed          dispatch .. claim
    hr:{p}:bell:<handler>    stream  rings when a task comes to an empty list         for ever, one entry
    hr:{p}:queues            set     the handlers that ever had a task                for ever
    hr:{p}:results           stream  hints for orchestrators, with a consumer group   report, due .. dispatch, advance
    hr:{p}:events            stream  the outbox: every change, in order               .. trimmed once archived
    hr:{p}:control           stream  cancellations, which workers watch               capped
    hr:{p}:timers            zset    retries, leases, deadlines by due time in ms     any function .. due
    hr:{p}:workers           hash    worker -> last heartbeat and what it offers      renew .. sign-off, keeper
    hr:{p}:handlers          hash    handler -> JSON Schema of its config, or null    for ever
    hr:{p}:logs              stream  what handlers logged, until it is archived       capped
    hr:{p}:duty:<name>       string  who has a periodic duty now; only saves work     seconds
    hr:{p}:rate:<who>:<n>    string  requests of an API client in a window of time    two windows
    hr:{p}:metrics           hash    what happened -> how often, for /metrics         for ever
"""

from __future__ import annotations

from zlib import crc32

# Passed to every function, in this order; the names in Lua are generated from it.
DECLARED = ("meta", "results", "events", "timers", "control", "queues", "workers", "defs")

RESULTS_GROUP = "orchestrators"
INPUT_FIELD = "@input"
TRACE_FIELD = "@trace"


def prefix(partition: int) -> str:
    return f"hr:{{{partition}}}:"


def declared(partition: int) -> tuple[str, ...]:
    return tuple(prefix(partition) + name for name in DECLARED)


def partition_of(execution_id: str, partitions: int) -> int:
    return crc32(execution_id.encode()) % partitions


def tasks(partition: int, handler: str) -> str:
    return f"{prefix(partition)}tasks:{handler}"


def bell(partition: int, handler: str) -> str:
    return f"{prefix(partition)}bell:{handler}"


def definition(partition: int, content_hash: str) -> str:
    return f"{prefix(partition)}def:{content_hash}"


def output_field(node: str) -> str:
    return f"o:{node}"


def execution(partition: int, execution_id: str) -> str:
    return f"{prefix(partition)}x:{execution_id}"
