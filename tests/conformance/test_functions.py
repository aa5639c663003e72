"""The functions one by one, where generated histories hardly come: formats, libraries, memory, sizes, partitions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.embedded import EmbeddedValkey
from headrace.errors import StoreUnavailable, StoreUnsupported
from headrace.hot import functions, keys, library
from headrace.hot.store import HotStore
from headrace.hot.wire import Argument
from headrace.model.messages import (
    Advanced,
    Change,
    Dispatch,
    Execution,
    Hint,
    Opening,
    OpenSlice,
    Outcome,
    Report,
    Reservation,
    Task,
    Token,
    Verdict,
)
from tests.conformance.reference import Partition

LEASE_MS = 60_000
TTL_SECONDS = 600
MIB = 1 << 20

# ---- moves that every test needs


async def opened(
    store: HotStore, *ids: str, left: int = 1, mode: str = "fail_fast", definition: str = "d", outputs: str = "{}"
) -> None:
    """Fresh executions; the epoch of each is its id with an `e` before it."""
    for partition in sorted({store.partition_of(x) for x in ids}):
        here = [x for x in ids if store.partition_of(x) == partition]
        await store.put_definition(partition, definition, "{}", TTL_SECONDS)
        reservations = [Reservation(x, f"e{x}") for x in here]
        answers = await store.reserve(partition, reservations, definition_ttl_seconds=TTL_SECONDS)
        assert answers == ["reserved"] * len(here)
        opening = Opening(1, definition, mode, left, 0, 0, 0, False, "roots")
        slices = [OpenSlice(x, f"e{x}", outputs=[("@input", outputs)], opening=opening) for x in here]
        assert await store.open(partition, slices) == ["opened"] * len(here)


async def hints(store: HotStore, most: int = 10_000, partition: int = 0) -> list[tuple[str, Hint]]:
    return await store.read_hints(partition, "o", most)


async def raw(store: HotStore, *command: str | int) -> Any:
    return await store._link.call(*command)


def item(x: str, node: str, attempt: int = 1, *, parents: int = 0, handler: str = "h", payload: str = "p") -> Dispatch:
    return Dispatch(x, f"e{x}", 1, node, attempt, parents, handler, payload)


async def queued(store: HotStore, x: str, *nodes: str, handler: str = "h", partition: int = 0) -> None:
    items = [item(x, node, handler=handler) for node in nodes]
    assert await store.dispatch(partition, items, ()) == len(nodes)


async def claimed(
    store: HotStore, slots: int = 100, handlers: tuple[str, ...] = ("h",), partition: int = 0
) -> list[Task]:
    return (await store.claim(partition, "w", slots, LEASE_MS, handlers))[0]


def report(task: Task, outcome: str = "ok") -> Report:
    return Report(task.token, outcome)


def verdict(
    entry: tuple[str, Hint], letter: str, names: Sequence[str] = (), *, parents: int = 1, **more: Any
) -> Verdict:
    hint_id, hint = entry
    values = {"total": len(names), "body": "{}"} | more
    pairs = [(name, parents) for name in names]
    return Verdict(
        hint_id, hint.execution_id, hint.epoch, hint.run, hint.node, hint.attempt, letter, names=pairs, **values
    )


async def reported(store: HotStore, x: str, node: str = "a", outcome: str = "ok") -> tuple[str, Hint]:
    """The hint of a node that was run."""
    await hints(store)
    await queued(store, x, node)
    (task,) = await claimed(store)
    assert await store.report(0, [report(task, outcome)]) == []
    (entry,) = await hints(store)
    return entry


async def everything(store: HotStore) -> dict[bytes, bytes]:
    """The whole database, key by key, as the server would dump it; a dump does not hold a TTL."""
    return {name: await raw(store, "DUMP", name) for name in sorted(await raw(store, "KEYS", "*"))}


async def pending(store: HotStore, partition: int = 0) -> list[str]:
    found = await raw(store, "XPENDING", keys.prefix(partition) + "results", keys.RESULTS_GROUP, "-", "+", 10_000)
    return [one[0].decode() for one in found]


async def held(store: HotStore, x: str) -> Execution:
    found = await store.execution(x)
    assert found is not None
    return found


async def counts(store: HotStore, x: str) -> dict[str, int]:
    flat = await raw(store, "HGETALL", keys.execution(0, x))
    fields = {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return {name[2:]: int(value) for name, value in fields.items() if name.startswith("d:")}


async def make_foreign(store: HotStore, x: str) -> None:
    """Its format becomes one that this library does not know."""
    key = keys.execution(0, x)
    record = await raw(store, "HGET", key, "@m")
    await raw(store, "HSET", key, "@m", b"9" + record[1:])


# ---- formats and libraries


TASK = Task("x", "ex", 1, "a", 1, "h", "p")
# Each also names an execution that it would change, if it did not look at all of them first.
REFUSED: dict[str, Callable[[HotStore, str], Awaitable[Any]]] = {
    "reserve": lambda store, _: store.reserve(
        0, [Reservation("new", "t"), Reservation("x", "t")], definition_ttl_seconds=TTL_SECONDS
    ),
    "open": lambda store, _: store.open(0, [OpenSlice("z", "ez", outputs=[("@input", "{}")]), OpenSlice("x", "t")]),
    "dispatch": lambda store, hint_id: store.dispatch(0, [item("y", "a"), item("x", "c")], [hint_id]),
    "renew": lambda store, _: store.renew(0, "w", "{}", LEASE_MS, [TASK.token]),
    "release": lambda store, _: store.release(0, [Task("y", "ey", 1, "r", 1, "h", "p"), TASK]),
    "report": lambda store, _: store.report(0, [Report(Token("y", "ey", 1, "r", 1), "ok"), report(TASK)]),
    "complete": lambda store, _: store.report(
        0,
        [
            Report(Token("y", "ey", 1, "r", 1), "{}", [("c", 1)], [item("y", "c", parents=1)]),
            Report(TASK.token, "{}", []),
        ],
    ),
    "advance": lambda store, hint_id: store.advance(
        0, [verdict((hint_id, Hint("x", "ex", 1, "a", 1, "d", 0, 0, "ok")), "C")]
    ),
    "push": lambda store, hint_id: store.advance(
        0,
        [
            verdict(
                ("1-1", Hint("y", "ey", 1, "", 0, "d", 0, 0, "roots")), "S", ("c",), parents=0, tasks=[item("y", "c")]
            ),
            verdict((hint_id, Hint("x", "ex", 1, "a", 1, "d", 0, 0, "ok")), "C"),
        ],
    ),
    "cancel": lambda store, _: store.cancel("x", 1),
    "forget": lambda store, _: store.forget(0, [("gone", "", ""), ("x", "ex", "")], definition_ttl_seconds=TTL_SECONDS),
}
SET_ASIDE = {"claim", "due", "reject"}  # they learn from streams and timers which executions they meet
NO_EXECUTION = {"leave", "settle"}


async def foreign(store: HotStore) -> tuple[str, Hint]:
    """x has an unknown format, a reported node, a queued one, and a lease; y a running node and a queued one."""
    await opened(store, "x", "y", left=3)
    await store.reserve(0, [Reservation("z", "ez")], definition_ttl_seconds=TTL_SECONDS)
    entry = await reported(store, "x")
    await queued(store, "y", "r")
    await claimed(store)
    await queued(store, "x", "b")
    await queued(store, "y", "b")
    await raw(store, "ZADD", "hr:{0}:timers", 1, "L|x|ex|1|a|1", 2, "L|y|ey|1|r|1")
    await make_foreign(store, "x")
    return entry


@pytest.mark.parametrize("name", REFUSED)
async def test_an_unknown_format_is_refused_unchanged(store: HotStore, name: str) -> None:
    hint_id, _ = await foreign(store)
    before, left_pending = await everything(store), await pending(store)
    with pytest.raises(StoreUnsupported, match="FORMAT execution x has format 9"):
        await REFUSED[name](store, hint_id)
    assert await everything(store) == before
    assert await pending(store) == left_pending
    assert hint_id in left_pending


def test_every_function_has_a_way_with_an_unknown_format() -> None:
    assert REFUSED.keys() | SET_ASIDE | NO_EXECUTION == library.FUNCTIONS.keys()


async def test_claim_passes_by_a_task_of_an_unknown_format(store: HotStore) -> None:
    await foreign(store)
    before = await raw(store, "HGETALL", keys.execution(0, "x"))
    tasks, read = await store.claim(0, "w", 5, LEASE_MS, ["h"])
    assert ([(task.execution_id, task.node) for task in tasks], read) == ([("y", "b")], 2)
    assert await store.queues(0) == {"h": 1}
    assert await raw(store, "HGETALL", keys.execution(0, "x")) == before


async def test_reject_passes_by_a_task_of_an_unknown_format(store: HotStore) -> None:
    await foreign(store)
    before = await raw(store, "HGETALL", keys.execution(0, "x"))
    assert await store.reject(0, "h", 0, 10, "no_handler") == 1
    assert await store.queues(0) == {"h": 1}
    assert await raw(store, "HGETALL", keys.execution(0, "x")) == before


async def test_due_passes_by_a_timer_of_an_unknown_format(store: HotStore) -> None:
    await foreign(store)
    before = await raw(store, "HGETALL", keys.execution(0, "x"))
    now_ms = await store.now_ms()
    assert await store.due(0, 10, LEASE_MS) == ([], False)
    assert await raw(store, "ZSCORE", "hr:{0}:timers", "L|y|ey|1|r|1") is None
    assert int(await raw(store, "ZSCORE", "hr:{0}:timers", "L|x|ex|1|a|1")) >= now_ms + 5000
    assert await raw(store, "HGETALL", keys.execution(0, "x")) == before


async def test_a_missing_library_is_loaded_on_demand(store: HotStore) -> None:
    await raw(store, "FUNCTION", "FLUSH")
    await opened(store, "x")
    assert await store.cancel("x", 1) == "cancelled"


async def test_two_versions_of_the_library_live_side_by_side(store: HotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened(store, "x")
    version, source = library._assembled()
    monkeypatch.setattr(library, "_assembled", lambda: ("1_other", source.replace(version, "1_other")))
    await store.prepare()
    await queued(store, "x", "a")
    listed = await raw(store, "FUNCTION", "LIST")
    assert {f"headrace_{version}".encode(), b"headrace_1_other"} <= {one[1] for one in listed}
    monkeypatch.undo()
    await store.prepare()
    assert [task.node for task in await claimed(store)] == ["a"]


async def test_a_lost_results_group_is_made_again(store: HotStore) -> None:
    await opened(store, "x")
    await raw(store, "XGROUP", "DESTROY", "hr:{0}:results", keys.RESULTS_GROUP)
    assert await hints(store) == []
    assert [hint.execution_id for _, hint in await hints(store)] == ["x"]


# ---- claim


async def test_claim_is_fair_over_handlers_and_never_above_the_slots(store: HotStore) -> None:
    await opened(store, "x", left=100)
    for handler, count in (("many", 50), ("few", 2), ("some", 8)):
        await queued(store, "x", *(f"{handler}{i}" for i in range(count)), handler=handler)
    handlers = ("many", "few", "none", "some")
    first = [task.handler for task in await claimed(store, 12, handlers)]
    assert len(first) == 12
    assert {handler: first.count(handler) for handler in handlers} == {"many": 3, "few": 2, "none": 0, "some": 7}
    second = [task.handler for task in await claimed(store, 20, handlers)]
    assert {handler: second.count(handler) for handler in handlers} == {"many": 19, "few": 0, "none": 0, "some": 1}
    assert await claimed(store, 0, handlers) == []
    assert [task.node for task in await claimed(store, 1, handlers)] == ["many22"]


@settings(settings.get_profile("ci"), max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 12))
def test_claim_leaves_no_slot_free_while_there_is_work(waiting: list[int], slots: int) -> None:
    """On the reference, which the machine holds equal to the server."""
    model = Partition()
    handlers = [f"h{i}" for i in range(len(waiting))]
    for handler, count in zip(handlers, waiting, strict=True):
        model.tasks[handler] = [Task("x", "e", 1, "a", 1, handler, "")] * count
    _, taken = model.claim("w", slots, LEASE_MS, handlers)
    left = sum(len(queue) for queue in model.tasks.values())
    assert taken <= slots
    assert taken + left == sum(waiting)


# ---- large ones


@pytest.mark.parametrize("crash_after", [0, 1, 4, 9, 10])
async def test_ten_thousand_children_survive_a_crash_in_the_middle(store: HotStore, crash_after: int) -> None:
    """Children of a and b. The walk for a ends; that for b stops, with or without dispatch, and begins once more."""
    children = tuple(f"c{i}" for i in range(10_000))
    slices = [children[start : start + 1000] for start in range(0, 10_000, 1000)]
    await opened(store, "x", left=10_002)
    first, second = await reported(store, "x", "a"), await reported(store, "x", "b")

    async def walk(entry: tuple[str, Hint], most: int, *, dispatched: bool) -> int:
        taken, quiet = 0, True
        for i, names in enumerate(slices[:most]):
            (reply,) = await store.advance(
                0, [verdict(entry, "C", names, parents=2, offset=1000 * i, total=10_000, quiet=quiet)]
            )
            quiet = quiet and not reply.answer
            if dispatched:
                ready = [item("x", names[position], attempt + 1, parents=2) for position, attempt in reply.answer]
                taken += await store.dispatch(0, ready, [entry[0]] if i == 9 else ())
        return taken

    assert await walk(first, 10, dispatched=True) == 0
    taken = await walk(second, crash_after, dispatched=crash_after % 2 == 1)
    assert await pending(store) == [await start_of(store), second[0]]
    assert taken + await walk(second, 10, dispatched=True) == 10_000
    assert await pending(store) == [await start_of(store)]
    assert await walk(second, 10, dispatched=True) == 0  # a replay after all is done
    assert await counts(store, "x") == dict.fromkeys(children, 2)
    tasks = [await claimed(store, 1000) for _ in range(10)]
    assert sorted(task.node for some in tasks for task in some) == sorted(children)
    assert await store.queues(0) == {"h": 0}


async def start_of(store: HotStore) -> str:
    """The start hint, which `reported` has read and left pending."""
    return (await pending(store))[0]


async def test_a_slice_that_leaves_some_out_counts_nothing(store: HotStore) -> None:
    await opened(store, "x", left=5)
    entry = await reported(store, "x")
    (first,) = await store.advance(0, [verdict(entry, "C", ("b", "c"), parents=2, total=6)])
    (late,) = await store.advance(0, [verdict(entry, "C", ("f", "g"), parents=2, offset=4, total=6)])
    assert first == Advanced(False, [])
    assert late == Advanced(False, [])
    assert await counts(store, "x") == {"b": 1, "c": 1}


async def test_batches_over_many_executions(store: HotStore) -> None:
    ids = [f"x{i}" for i in range(300)]
    await opened(store, *ids, left=2)
    starts = await hints(store)
    replies = await store.advance(0, [verdict(entry, "S", ("a",), parents=0) for entry in starts])
    assert replies == [Advanced(False, [(0, 0)])] * 300
    assert await store.dispatch(0, [item(x, "a") for x in ids], [entry[0] for entry in starts]) == 300
    tasks = await claimed(store, 300)
    assert await store.renew(0, "w", "{}", LEASE_MS, [task.token for task in tasks]) == []
    assert await store.report(0, [report(task) for task in tasks]) == []
    assert await store.report(0, [report(task) for task in tasks]) == list(range(300))
    done = await hints(store)
    replies = await store.advance(0, [verdict(entry, "C", ("b",)) for entry in done])
    assert replies == [Advanced(False, [(0, 0)])] * 300
    assert await store.dispatch(0, [item(x, "b", parents=1) for x in ids], [entry[0] for entry in done]) == 300
    assert await store.release(0, await claimed(store, 300)) == 300
    assert await store.report(0, [report(task) for task in await claimed(store, 300)]) == []
    last = await hints(store)
    assert await store.advance(0, [verdict(entry, "C") for entry in last]) == [Advanced(True, [])] * 300
    ended = [(x, f"e{x}", (await held(store, x)).last) for x in ids]
    assert await store.forget(0, ended, definition_ttl_seconds=TTL_SECONDS) == list(range(300))
    assert await raw(store, "KEYS", "hr:{0}:x:*") == []
    assert await pending(store) == []


async def test_one_call_makes_one_event_for_each_execution(store: HotStore) -> None:
    await opened(store, "x", "y", left=2)
    await queued(store, "x", "a", "b")
    await queued(store, "y", "a")
    await store.report(0, [report(task) for task in await claimed(store)])
    before = [(await held(store, x)).last for x in ("x", "y")]
    done = [entry for entry in await hints(store) if not entry[1].is_start]
    await store.advance(0, [verdict(entry, "C") for entry in done])
    new = [event for _, event in await store.read_events(0, max(before, key=order), block=False)]
    assert {event.execution_id: (event.status, len(event.changes)) for event in new} == {"x": ("C", 2), "y": ("", 1)}
    assert {event.previous for event in new} == set(before)


def order(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))


async def test_replies_to_nothing(store: HotStore) -> None:
    before = await everything(store)
    assert await store.reserve(0, [], definition_ttl_seconds=TTL_SECONDS) == []
    assert await store.open(0, []) == []
    assert await store.dispatch(0, [], []) == 0
    assert await store.claim(0, "w", 5, LEASE_MS, []) == ([], 0)
    assert await store.claim(0, "w", 0, LEASE_MS, ["h"]) == ([], 0)
    assert await store.release(0, []) == 0
    assert await store.report(0, []) == []
    assert await store.advance(0, []) == []
    assert await store.forget(0, [], definition_ttl_seconds=TTL_SECONDS) == []
    assert await store.reject(0, "h", 0, 10, "no_handler") == 0
    assert await store.cancel("absent", 1) == "absent"
    assert await store.leave(0, []) == 0
    assert await everything(store) == before
    assert await store.renew(0, "w", "{}", LEASE_MS, []) == []
    assert await store.due(0, 100, LEASE_MS) == ([], False)


async def test_an_event_without_changes_has_an_empty_list(store: HotStore) -> None:
    await opened(store, "x")
    ((_, event),) = await store.read_events(0, "0-0", block=False)
    assert (event.status, event.changes) == ("R", [])


@pytest.mark.parametrize("text", ["\x00\u20ac\U0001f600" * (MIB // 8), "[" * MIB, "1" * MIB])
async def test_large_payloads_pass_unchanged(store: HotStore, text: str) -> None:
    await opened(store, "x", left=3, mode="continue", outputs=text)
    assert await store.outputs("x", ["@input"], most_bytes=1 << 30) == {"@input": text}
    await hints(store)
    assert await store.dispatch(0, [item("x", "a", payload=text), item("x", "b")], ()) == 2
    (task, other) = await claimed(store)
    assert task.payload == text
    assert await store.release(0, [task]) == 1
    (task,) = await claimed(store)
    assert (task.attempt, task.payload) == (2, text)
    await store.report(0, [report(task, text), report(other, text)])
    first, second = await hints(store)
    assert first[1].outcome == second[1].outcome == text
    before = (await held(store, "x")).last
    await store.advance(0, [verdict(first, "C", body=text), verdict(second, "F", body=text)])
    ((_, event),) = await store.read_events(0, before, block=False)
    assert event.changes == [Change("a", "C", 2, text), Change("b", "F", 1, text)]
    assert await store.outputs("x", ["a"], most_bytes=1 << 30) == {"a": text}
    assert (await store.records("x", ["b"]))[0].error == text
    assert await store.dispatch(0, [Dispatch("x", "ex", 1, "c", 1, 0, "h", text, True)], ()) == 1
    (third,) = await hints(store)
    assert third[1].outcome == text


# ---- skipping


async def test_skipping_answers_alike_however_often_it_is_asked(store: HotStore) -> None:
    await opened(store, "x", left=4, mode="continue")
    entry = await reported(store, "x")
    names, both = ("b", "c"), [(0, 0), (1, 0)]
    for letter in ("F", "F", "K", "K"):
        assert await store.advance(0, [verdict(entry, letter, names, quiet=letter == "F")]) == [Advanced(False, both)]


async def test_a_node_below_two_skipped_ones_is_skipped_once(store: HotStore) -> None:
    """a fails; b and c are skipped, and d below both of them is named twice in one slice; e runs."""
    await opened(store, "x", left=5, mode="continue")
    entry = await reported(store, "x")
    await store.advance(0, [verdict(entry, "F", ("b", "c"))])
    before = (await held(store, "x")).last
    await store.advance(0, [verdict(entry, "K", ("d", "d"), quiet=False)])
    found = await held(store, "x")
    assert (found.status, found.left) == ("R", 1)
    ((_, event),) = await store.read_events(0, before, block=False)
    assert event.changes == [Change("d", "S", 0, "a")]


async def test_a_caller_without_the_definition_changes_nothing(store: HotStore) -> None:
    await opened(store, "x", left=2)
    entry = await reported(store, "x")
    before = await everything(store)
    assert await store.advance(0, [verdict(entry, "N")]) == [Advanced(False, [])]
    assert await everything(store) == before
    stale = msgspec.structs.replace(verdict(entry, "N"), epoch="other")
    assert await store.advance(0, [stale]) == [Advanced(True, [])]
    assert entry[0] not in await pending(store)


# ---- opening


@pytest.mark.parametrize(
    ("cancelled", "failed", "status"), [(False, 0, "C"), (False, 1, "F"), (True, 0, "X"), (True, 1, "X")]
)
async def test_what_has_nothing_left_to_do_ends_at_once(
    store: HotStore, cancelled: bool, failed: int, status: str
) -> None:
    await store.put_definition(0, "d", "{}", TTL_SECONDS)
    await store.reserve(0, [Reservation("x", "ex")], definition_ttl_seconds=TTL_SECONDS)
    opening = Opening(1, "d", "continue", 1 if cancelled else 0, failed, 0, 9000, cancelled, "all")
    assert await store.open(0, [OpenSlice("x", "ex", opening=opening)] * 2) == ["opened", "already"]
    ((entry_id, event),) = await store.read_events(0, "0-0", block=False)
    assert (event.status, event.seq, event.previous) == (status, 1, "")
    assert await hints(store) == []
    assert await raw(store, "ZCARD", "hr:{0}:timers") == 0
    assert await store.forget(0, [("x", "ex", entry_id)], definition_ttl_seconds=TTL_SECONDS) == [0]


# ---- orchestrators


async def test_an_orchestrator_leaves_only_with_nothing_pending(store: HotStore) -> None:
    await opened(store, "x")
    (entry,) = await hints(store)
    assert await store.leave(0, ["o", "nobody"]) == 1
    assert await pending(store) == [entry[0]]
    await store.dispatch(0, [], [entry[0]])
    assert await store.leave(0, ["o"]) == 1
    assert await raw(store, "XINFO", "CONSUMERS", "hr:{0}:results", keys.RESULTS_GROUP) == []


async def test_acknowledged_hints_in_any_order_leave_an_empty_stream(store: HotStore) -> None:
    ids = [f"x{i}" for i in range(250)]
    for x in ids:
        await opened(store, x)
    read = [hint_id for hint_id, _ in await hints(store, 240)]
    for hint_id in read[1::2] + read[-2:0:-2]:
        await store.dispatch(0, [], [hint_id])
        assert await raw(store, "XLEN", "hr:{0}:results") >= 250 - len(read) + 1
    assert await pending(store) == read[:1]
    await store.dispatch(0, [], read[:1])
    assert [hint.execution_id for _, hint in await hints(store)] == ids[240:]
    await store.dispatch(0, [], await pending(store))
    assert await raw(store, "XLEN", "hr:{0}:results") == 0


async def test_leaving_a_store_that_was_wiped_is_nothing(store: HotStore) -> None:
    await raw(store, "FLUSHALL")
    assert await store.leave(0, ["o"]) == 0
    await store.drop_idle_consumers(0, 0)


async def test_a_library_that_is_flushed_again_and_again(store: HotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once more than a call expects it; and for ever, which is an outage like any other."""
    load, flushed = store.load_library, 0

    async def load_and_lose() -> None:
        nonlocal flushed
        await load()
        if flushed < times:
            flushed += 1
            await raw(store, "FUNCTION", "FLUSH")

    monkeypatch.setattr(store, "load_library", load_and_lose)
    await raw(store, "FUNCTION", "FLUSH")
    times = 1
    assert await store.claim(0, "w", 1, LEASE_MS, ["h"]) == ([], 0)
    times = 1000
    await raw(store, "FUNCTION", "FLUSH")
    with pytest.raises(StoreUnavailable, match="functions"):
        await store.claim(0, "w", 1, LEASE_MS, ["h"])


# ---- hints that share an entry


async def test_hints_of_one_call_share_an_entry_of_bounded_size(store: HotStore) -> None:
    await opened(store, "x", left=150)
    await hints(store)
    nodes = [f"n{i}" for i in range(150)]
    await queued(store, "x", *nodes)
    tasks = await claimed(store, slots=200)
    assert await store.report(0, [report(task) for task in tasks]) == []
    found = await hints(store)
    assert [hint.node for _, hint in found] == nodes
    assert [len(list(some)) for _, some in groupby(found, lambda entry: entry[0])] == [64, 64, 22]
    large = "x" * 50_000
    await queued(store, "x", "a", "b", "c")
    assert await store.report(0, [report(task, large) for task in await claimed(store, slots=200)]) == []
    assert [len(list(some)) for _, some in groupby(await hints(store), lambda entry: entry[0])] == [2, 1]


async def test_an_entry_is_acknowledged_when_nothing_is_left_to_do_with_all_of_its_hints(store: HotStore) -> None:
    await opened(store, "x", left=3)
    (start,) = await hints(store)
    await store.dispatch(0, [item("x", "a"), item("x", "b")], [start[0]])
    await store.report(0, [report(task) for task in await claimed(store, slots=2)])
    first, second = await hints(store)
    assert first[0] == second[0]
    replies = await store.advance(0, [verdict(first, "C"), verdict(second, "C", ("c",))])
    assert replies == [Advanced(True, []), Advanced(False, [(0, 0)])]
    assert await pending(store) == [first[0]]
    again = await store.advance(0, [verdict(first, "C", quiet=False), verdict(second, "C", ("c",), quiet=False)])
    assert [one.finished for one in again] == [False, False]
    await queued(store, "x", "c")
    replies = await store.advance(0, [verdict(first, "C"), verdict(second, "C", ("c",))])
    assert replies == [Advanced(True, []), Advanced(True, [])]
    assert await pending(store) == []


# ---- claiming in the moment in which tasks come


async def waiting_for_tasks(store: HotStore, heard: dict[str, str], slots: int = 1) -> asyncio.Task[Any]:
    """A worker that waits, and the server knows it."""
    store.block_ms = 9_000
    task = asyncio.create_task(store.claim_when_called(0, "w", slots, LEASE_MS, ["h"], heard=heard))
    while not int((await store._link.call("INFO", "clients")).split(b"blocked_clients:")[1].split()[0]):
        await asyncio.sleep(0.01)
    return task


async def test_the_store_claims_for_a_worker_that_waits(store: HotStore) -> None:
    await opened(store, "x")
    waiting = await waiting_for_tasks(store, {})
    await queued(store, "x", "a")
    tasks, read = await waiting
    assert ([task.node for task in tasks], read) == (["a"], 1)
    assert (await store.claim(0, "w", 1, LEASE_MS, ["h"])) == ([], 0)


async def test_a_bell_that_rang_before_is_not_missed_and_one_that_was_heard_rings_no_more(store: HotStore) -> None:
    await opened(store, "x")
    await queued(store, "x", "a")
    heard: dict[str, str] = {}
    tasks, _ = await store.claim_when_called(0, "w", 1, LEASE_MS, ["h"], heard=heard)
    assert [task.node for task in tasks] == ["a"]
    waiting = await waiting_for_tasks(store, heard)
    await store.ring(0, "h")
    assert await waiting == ([], 0), "whoever is to stop is woken, and there was nothing to claim"


async def test_a_worker_that_waits_survives_the_loss_of_the_functions(store: HotStore) -> None:
    await opened(store, "x")
    waiting = await waiting_for_tasks(store, {})
    await queued(store, "x", "a")
    assert (await waiting)[1] == 1
    again = await waiting_for_tasks(store, {keys.bell(0, "h"): "9999999999999-0"}, slots=2)
    await store._link.call("FUNCTION", "FLUSH")
    await store._link.call("CLIENT", "UNBLOCK", await blocked_client(store))
    assert await again == ([], 0)


async def blocked_client(store: HotStore) -> str:
    clients = (await store._link.call("CLIENT", "LIST")).decode().splitlines()
    (one,) = [dict(field.split("=", 1) for field in line.split()) for line in clients if "cmd=xread" in line]
    return one["id"]


# ---- a server that may have gone back in time


async def test_nothing_is_claimed_before_the_partition_is_settled(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "valkey") as own:
        store = HotStore(own.url, block_ms=30_000)
        await store.prepare()
        await opened(store, "x")
        await queued(store, "x", "a")
        assert await store.unsettled(0)
        assert await store.claim(0, "w", 1, LEASE_MS, ["h"]) == ([], 0)
        heard: dict[str, str] = {}
        await store.wait_for_tasks(0, ["h"], heard)
        rung = dict(heard)
        assert not await store.settle(0, "the server before it was restarted")
        assert await store.claim(0, "w", 1, LEASE_MS, ["h"]) == ([], 0)
        await store.settle(0, await store.unsettled(0))
        await store.wait_for_tasks(0, ["h"], heard)
        assert heard != rung, "the bell rings for workers that found nothing"
        assert not await store.unsettled(0)
        assert len(await claimed(store)) == 1
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.start)
        assert await store.unsettled(0)
        await store.aclose()


async def test_what_is_behind_the_record_is_forgotten_as_it_was_seen(store: HotStore) -> None:
    await opened(store, "x")
    last = (await held(store, "x")).last

    async def forget(*item: str, behind: bool = True) -> list[int]:
        return await store.forget(0, [item], definition_ttl_seconds=TTL_SECONDS, behind=behind)  # type: ignore[list-item]

    assert await forget("x", "ex", last, behind=False) == []
    assert await forget("x", "other", last) == []
    assert await forget("x", "ex", "1-1") == []
    await store.reserve(0, [Reservation("y", "ey")], definition_ttl_seconds=TTL_SECONDS)
    assert await forget("y", "ey", "") == []
    assert await forget("x", "ex", last) == [0]
    assert await store.execution("x") is None


# ---- partitions


@pytest.fixture
async def three(valkey_url: str) -> AsyncIterator[HotStore]:
    store = HotStore(valkey_url, partitions=3, block_ms=1)
    await raw(store, "FLUSHALL")
    await store.prepare()
    for partition in range(3):
        await store.settle(partition, await store.unsettled(partition))
    yield store
    await store.aclose()


async def test_all_agree_on_the_number_of_partitions(three: HotStore, valkey_url: str) -> None:
    other = HotStore(valkey_url, partitions=2)
    with pytest.raises(StoreUnsupported, match="set it to 3"):
        await other.prepare()
    await other.aclose()
    await three.prepare()


async def test_a_role_may_start_while_the_store_is_wiped(store: HotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    call = store._link.call

    async def wiped(*command: Argument) -> Any:
        if command[0] == "HGET":
            await call("FLUSHALL")
        return await call(*command)

    monkeypatch.setattr(store._link, "call", wiped)
    await store.prepare()


async def test_a_call_touches_its_own_partition_only(three: HotStore) -> None:
    ids = {three.partition_of(x): x for x in (f"x{i}" for i in range(50))}
    assert sorted(ids) == [0, 1, 2]

    async def elsewhere(partition: int) -> dict[bytes, bytes]:
        own = keys.prefix(partition).encode()
        return {name: dump for name, dump in (await everything(three)).items() if not name.startswith(own)}

    for partition, x in ids.items():
        before = await elsewhere(partition)
        await opened(three, x, left=2)
        (start,) = await hints(three, partition=partition)
        await three.advance(partition, [verdict(start, "S", ("a",), parents=0)])
        assert await three.dispatch(partition, [item(x, "a")], [start[0]]) == 1
        tasks = await claimed(three, partition=partition)
        await three.renew(partition, "w", "{}", LEASE_MS, [task.token for task in tasks])
        await three.release(partition, tasks)
        await three.report(partition, [report(task) for task in await claimed(three, partition=partition)])
        (entry,) = await hints(three, partition=partition)
        await three.advance(partition, [verdict(entry, "C", ("b",))])
        await three.due(partition, 10, LEASE_MS)
        assert await three.cancel(x, 1) == "cancelled"
        item_ = (x, f"e{x}", (await held(three, x)).last)
        assert await three.forget(partition, [item_], definition_ttl_seconds=TTL_SECONDS) == [0]
        assert await elsewhere(partition) == before
    tags = {re.match(rb"hr:\{(\d)\}:", name)[1] for name in await raw(three, "KEYS", "*")}  # type: ignore[index]
    assert tags == {b"0", b"1", b"2"}


async def test_what_is_rendered_ahead_is_dispatched_in_the_same_step_and_once(store: HotStore) -> None:
    await opened(store, "x", left=3)
    entry = await reported(store, "x")
    tasks = [item("x", "b", parents=1, payload="ahead"), None]
    ahead = verdict(entry, "C", ("b", "c"), tasks=tasks)
    assert await store.advance(0, [ahead]) == [Advanced(False, [(1, 0)])]  # c is ready, and its task is still to come
    assert [task.payload for task in await claimed(store)] == ["ahead"]
    assert await store.advance(0, [ahead]) == [Advanced(False, [(1, 0)])]
    assert await claimed(store) == []
    both = verdict(entry, "C", ("b", "c"), tasks=[item("x", "b", parents=1), item("x", "c", parents=1)])
    assert await store.advance(0, [both]) == [Advanced(True, [])]
    assert [task.node for task in await claimed(store)] == ["c"]
    assert entry[0] not in await pending(store)


async def test_a_guess_that_was_wrong_dispatches_nothing(store: HotStore) -> None:
    await opened(store, "x", left=3)
    entry = await reported(store, "x")
    guess = [item("x", "c", parents=2)]
    assert await store.advance(0, [verdict(entry, "C", ("c",), parents=2, tasks=guess)]) == [Advanced(True, [])]
    assert await claimed(store) == []


async def running(store: HotStore, x: str, *nodes: str) -> list[Task]:
    await hints(store)
    await queued(store, x, *nodes)
    return await claimed(store)


async def test_a_result_with_its_children_takes_the_next_step_at_once(store: HotStore) -> None:
    await opened(store, "x", left=3)
    (task,) = await running(store, "x", "a")
    whole = Report(task.token, '{"a":1}', [("b", 1)], [item("x", "b", parents=1, payload="ahead")])
    assert await store.report(0, [whole]) == []
    assert (await store.records("x", ["a"]))[0].state == "C"
    assert await store.outputs("x", ["a"], most_bytes=100) == {"a": '{"a":1}'}
    assert await raw(store, "XLEN", "hr:{0}:results") == 1  # the start alone: no orchestrator is needed
    (child,) = await claimed(store)
    assert (child.node, child.payload) == ("b", "ahead")
    assert await store.report(0, [whole]) == [0]  # a second time it is stale
    assert await claimed(store) == []
    assert (await store.timer_times([("L", task.token)])) == [0]


async def test_children_that_nobody_rendered_are_left_to_the_orchestrators(store: HotStore) -> None:
    await opened(store, "x", left=4)
    first, second = await running(store, "x", "a", "b")
    assert (
        await store.report(0, [Report(first.token, "1", [("c", 2), ("d", 1)], [None, item("x", "d", parents=1)])]) == []
    )
    assert [task.node for task in await claimed(store)] == ["d"]
    assert await hints(store, 1) == []  # c waits for b
    assert await store.report(0, [Report(second.token, "2", [("c", 2)])]) == []
    (entry,) = await hints(store)
    assert entry[1].node == "b"
    assert msgspec.json.decode(entry[1].outcome, type=Outcome) == Outcome(output="2", complete=True)
    for _ in range(2):  # it is answered until it is dispatched
        assert await store.advance(0, [verdict(entry, "C", ("c",), parents=2)]) == [Advanced(False, [(0, 0)])]
    assert await store.dispatch(0, [item("x", "c", parents=2)], [entry[0]]) == 1
    assert await store.outputs("x", ["a", "b"], most_bytes=100) == {"a": "1", "b": "2"}
    assert await counts(store, "x") == {"c": 2}


async def test_the_last_result_ends_the_execution(store: HotStore) -> None:
    await opened(store, "x", left=1)
    (task,) = await running(store, "x", "a")
    assert await store.report(0, [Report(task.token, "{}", [])]) == []
    x = await held(store, "x")
    assert (x.status, x.left, x.busy) == ("C", 0, 0)


async def test_a_late_result_with_children_moves_nobody(store: HotStore) -> None:
    await opened(store, "x", left=3)
    first, second = await running(store, "x", "a", "b")
    assert await store.report(0, [report(second, "boom")]) == []
    await store.advance(0, [verdict((await hints(store))[0], "F", body="boom")])
    assert await store.report(0, [Report(first.token, "1", [("c", 1)], [item("x", "c", parents=1)])]) == []
    assert [record.state for record in await store.records("x", ["a", "c"])] == ["C", "P"]
    assert await claimed(store) == []
    assert (await held(store, "x")).busy == 0


# ---- memory


async def test_out_of_memory_refuses_new_work_and_lets_the_old_end(store: HotStore) -> None:
    await opened(store, "x", "y", left=2)
    await store.reserve(0, [Reservation("z", "ez")], definition_ttl_seconds=TTL_SECONDS)
    entry = await reported(store, "x")
    await queued(store, "y", "a", "b")
    tasks = await claimed(store, 1)
    opening = Opening(1, "d", "fail_fast", 1, 0, 0, 0, False, "roots")
    await raw(store, "CONFIG", "SET", "maxmemory", 1)
    try:
        before = await everything(store)
        with pytest.raises(StoreUnavailable, match="OOM"):
            await store.open(0, [OpenSlice("z", "ez", opening=opening)])
        with pytest.raises(StoreUnavailable, match="OOM"):
            await store.dispatch(0, [item("x", "b")], [entry[0]])
        assert await everything(store) == before
        assert entry[0] in await pending(store)
        tasks += await claimed(store, 1)
        assert await store.renew(0, "w", "{}", LEASE_MS, [task.token for task in tasks]) == []
        with_children = Report(tasks[0].token, "{}", [("c", 1)], [item("y", "c", parents=1)])
        assert await store.report(0, [with_children]) == []  # a plain report, which brings nothing new in
        done = [one for one in await hints(store) if not one[1].is_start]
        assert [hint.outcome for _, hint in done] == ['{"output":"{}"}']
        assert await store.release(0, tasks[1:]) == 1
        assert await store.reject(0, "h", 0, 10, "no_handler") == 1
        ahead = verdict(entry, "C", ("b",), tasks=[item("x", "b", parents=1)])
        assert await store.advance(0, [ahead]) == [Advanced(False, [(0, 0)])]  # recorded, and not dispatched
        done += await hints(store)
        assert [one.finished for one in await store.advance(0, [verdict(one, "C") for one in done])] == [True, True]
        assert await store.due(0, 100, LEASE_MS) == ([], False)
        assert await store.cancel("x", 1) == "cancelled"
        ended = [(x, f"e{x}", (await held(store, x)).last) for x in ("x", "y")]
        assert await store.forget(0, ended, definition_ttl_seconds=TTL_SECONDS) == [0, 1]
    finally:
        await raw(store, "CONFIG", "SET", "maxmemory", 0)


# ---- lives


async def test_a_reservation_ends_by_itself_and_leaves_nothing(
    store: HotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "RESERVATION_MS", 100)
    await store.reserve(0, [Reservation("x", "t")], definition_ttl_seconds=TTL_SECONDS)
    part = OpenSlice("x", "t", [("a", "C", 1, 0, 0, 0, 0, 0, 0, "", "")], [("b", 1)], [("a", "{}")])
    assert await store.open(0, [part]) == ["filled"]
    names = await raw(store, "KEYS", "hr:{0}:x:*")
    assert names
    assert all([0 < await raw(store, "PTTL", name) <= 100 for name in names])
    while await raw(store, "EXISTS", *names):  # the server's clock decides; bounded by the TTLs just seen
        pass
    assert await store.open(0, [part]) == ["gone"]
    assert await raw(store, "KEYS", "hr:{0}:x:*") == []


async def test_a_definition_stays_while_it_is_used(store: HotStore) -> None:
    key = keys.definition(0, "d")
    await opened(store, "x", "y", definition="d")
    assert await raw(store, "TTL", key) == -1
    assert await raw(store, "HGETALL", "hr:{0}:defs") == [b"d", b"2"]
    await store.put_definition(0, "d", "{}", 5)
    assert await raw(store, "TTL", key) == -1
    for x, left in (("x", [b"d", b"1"]), ("y", [])):
        assert await store.cancel(x, 1) == "cancelled"
        ended = (x, f"e{x}", (await held(store, x)).last)
        assert await store.forget(0, [ended], definition_ttl_seconds=77) == [0]
        assert await store.forget(0, [ended], definition_ttl_seconds=77) == []
        assert await raw(store, "HGETALL", "hr:{0}:defs") == left
        assert (await raw(store, "TTL", key) == -1) == bool(left)
    assert 70 <= await raw(store, "TTL", key) <= 77
    await store.put_definition(0, "d", "{}", 500)
    assert await raw(store, "TTL", key) > 400


async def test_the_next_run_takes_over_the_definition(store: HotStore) -> None:
    await opened(store, "x", definition="d")
    await store.cancel("x", 1)
    again = Reservation("x", "t2", "ex", (await held(store, "x")).last, 2)
    assert await store.reserve(0, [again], definition_ttl_seconds=77) == ["reserved"]
    assert 70 <= await raw(store, "TTL", keys.definition(0, "d")) <= 77
    await raw(store, "DEL", keys.definition(0, "d"))
    opening = Opening(2, "d", "fail_fast", 1, 0, 0, 0, False, "roots")
    assert await store.open(0, [OpenSlice("x", "t2", opening=opening)]) == ["no definition"]
    await store.put_definition(0, "d", "{}", 5)
    assert await store.open(0, [OpenSlice("x", "t2", opening=opening)]) == ["opened"]
    assert await raw(store, "TTL", keys.definition(0, "d")) == -1
    assert await raw(store, "HGETALL", "hr:{0}:defs") == [b"d", b"1"]


# ---- what was once wrong


async def test_a_repeated_reservation_keeps_what_was_filled(store: HotStore) -> None:
    """A reply was lost, and the caller's connection repeats the call between two slices of `open`."""
    await store.put_definition(0, "d", "{}", TTL_SECONDS)
    reservation = [Reservation("z", "ez", again=False)]
    assert await store.reserve(0, reservation, definition_ttl_seconds=TTL_SECONDS) == ["reserved"]
    row = ("a", "C", 1, 0, 0, 0, 0, 0, 0, "", "")
    assert await store.open(0, [OpenSlice("z", "ez", [row], [], [("a", "1")])]) == ["filled"]
    assert await store.reserve(0, reservation, definition_ttl_seconds=TTL_SECONDS) == ["reserved"]
    opening = Opening(1, "d", "fail_fast", 1, 0, 0, 0, False, "all")
    assert await store.open(0, [OpenSlice("z", "ez", opening=opening)]) == ["opened"]
    assert (await store.records("z", ["a"]))[0].state == "C"
    other = [Reservation("y", "e1"), Reservation("y", "e2", again=False)]
    assert await store.reserve(0, other, definition_ttl_seconds=TTL_SECONDS) == ["reserved", "exists"]


async def test_another_group_on_the_results_does_not_cost_hints(store: HotStore) -> None:
    await opened(store, "x")
    ((first, _),) = await hints(store)
    await opened(store, "y")
    await raw(store, "XGROUP", "CREATE", "hr:{0}:results", "somebody", "$")
    await store.dispatch(0, [], [first])
    assert [hint.execution_id for _, hint in await hints(store)] == ["y"]


async def test_a_group_that_is_gone_does_not_stop_a_function_half_way(store: HotStore) -> None:
    await opened(store, "x")
    ((first, _),) = await hints(store)
    await raw(store, "XGROUP", "DESTROY", "hr:{0}:results", keys.RESULTS_GROUP)
    assert await store.dispatch(0, [item("x", "a")], [first]) == 1
    assert [task.node for task in await claimed(store)] == ["a"]
