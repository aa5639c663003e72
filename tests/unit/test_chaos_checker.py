"""The checker of the fault machine: each of its rules is shown a run that is in order, and one that is not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headrace.model.messages import Change as RawChange
from headrace.model.messages import Event
from headrace.settings import Settings
from tests.chaos.checker import RULES, violations
from tests.chaos.evidence import Accepted, Attempt, Call, Change, Evidence, Fault, HotLeft, Seen, Stored
from tests.chaos.losses import ARCHIVED_WITHIN_SECONDS, DISTURBED_WITHIN_SECONDS
from tests.chaos.oracle import expect, in_order, value_of
from tests.chaos.rules import archive, completions, effects, ends, leftovers, retries, transitions
from tests.chaos.violation import Rule
from tests.chaos.watcher import digest, line_of

X = "x1"
START = 1_700_000_000.0
NAMES = {"Q": "QUEUED", "R": "RUNNING", "C": "COMPLETED", "T": "RETRYING", "F": "FAILED", "S": "SKIPPED"}


def node(name: str, *parents: str, **more: Any) -> dict[str, Any]:
    inputs = {parent: f"{{{{ {parent}.value }}}}" for parent in parents}
    config = {"salt": ord(name), "inputs": inputs, **more.pop("config", {})}
    return {"id": name, "handler": "step", "dependencies": list(parents), "config": config, **more}


DIAMOND: dict[str, Any] = {
    "name": "diamond",
    "nodes": [node("a"), node("b", "a", config={"fails": 1}), node("c", "a"), node("d", "b", "c")],
}
BROKEN: dict[str, Any] = {
    "name": "broken",
    "nodes": [node("a"), node("b", "a", config={"fatal_runs": 9}), node("c", "b")],
}


@dataclass
class History:
    """Says what happens, one event per line, half a second apart, and gives the evidence that it leaves."""

    definition: dict[str, Any] = field(default_factory=lambda: DIAMOND)
    epoch: str = "e1"
    run: int = 1
    at: float = START
    events: list[Seen] = field(default_factory=list)
    rows: dict[tuple[int, str, int], Attempt] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def say(self, *changes: str, status: str = "", **replaced: Any) -> Seen:
        """A change reads "C2 b": the node b is COMPLETED in attempt 2."""
        self.at += 0.5
        made = [self._change(*each.split()) for each in changes]
        mine = [event for event in self.events if event.epoch == self.epoch]
        event = Seen(
            id=f"{int(self.at * 1000)}-0", execution=X, epoch=self.epoch, run=self.run, seq=len(mine) + 1,
            previous=mine[-1].id if mine else "", at_ms=int(self.at * 1000), status=status, changes=made,
        )  # fmt: skip
        event = replace(event, **replaced)
        self.events.append(event)
        for change in event.changes:
            self._record(change)
        return event

    def node_runs(self, name: str, attempt: int = 1) -> None:
        self.say(f"Q{attempt} {name}")
        self.say(f"R{attempt} {name}")

    def _change(self, what: str, name: str) -> Change:
        state, attempt = what[0], int(what[1:])
        output = self.output(name) if state == "C" else ""
        detail = digest(output) if output else "retry" if state == "T" else "fatal" if state == "F" else ""
        return Change(name, state, attempt, detail, int(self.at * 1000) if state == "T" else 0)

    def output(self, name: str) -> str:
        return json.dumps(expect(self.definition, self.run).outputs.get(name, {}))

    def _record(self, change: Change) -> None:
        key = (self.run, change.node, change.attempt)
        row = self.rows.get(key) or Attempt(X, self.run, change.node, change.attempt, "")
        row = replace(row, state=NAMES[change.state])
        now = int(self.at * 1000)
        if change.state == "R":
            row = replace(row, started_ms=now)
            self._call(change, "start")
        if change.state == "C":
            row = replace(row, output=self.output(change.node), finished_ms=now)
            self._call(change, "end", -0.1)
        if change.state in "TF":
            row = replace(row, code=change.detail, retryable=change.state == "T", finished_ms=now)
        self.rows[key] = row

    def _call(self, change: Change, phase: str, later: float = 0.1) -> None:
        token = f"{X}|{self.epoch}|{self.run}|{change.node}|{change.attempt}"
        key = f"{X}:{self.run}:{change.node}"
        self.calls.append(Call(self.at + later, X, change.node, self.run, change.attempt, token, key, phase))

    def evidence(self, status: str = "COMPLETED", **more: Any) -> Evidence:
        last = self.events[-1]
        stored = Stored(X, status, self.run, last.epoch, last.id, created_ms=int(START * 1000), finished_ms=last.at_ms)
        failed = frozenset((X, row.run, row.node) for row in self.rows.values() if row.state == "FAILED")
        return Evidence(
            settings=Settings(), healed_at=self.at, accepted={X: Accepted(X, self.definition, "k1", START)},
            stored={X: stored}, attempts=list(self.rows.values()), calls=self.calls, events=self.events,
            letters=failed, actions={(X, "retry"): self.run - 1}, cursors={0: last.id},
            hot=HotLeft(last_events={0: last.id}, now_ms=last.at_ms), **more,
        )  # fmt: skip


def completed() -> History:
    told = History()
    told.say("Q1 a", status="R")
    told.say("R1 a")
    told.say("C1 a", "Q1 b", "Q1 c")
    told.say("R1 b", "R1 c")
    told.say("T1 b")
    told.say("C1 c", "Q2 b")
    told.say("R2 b")
    told.say("C2 b", "Q1 d")
    told.say("R1 d")
    told.say("C1 d", status="C")
    return told


def failed() -> History:
    told = History(BROKEN)
    told.say("Q1 a", status="R")
    told.say("R1 a")
    told.say("C1 a", "Q1 b")
    told.say("R1 b")
    told.say("F1 b", status="F")
    return told


def rebuilt(*, after_a: str = "", archived: bool = True) -> History:
    """The store was lost when `a` was complete; the next epoch goes on from what SQL knew."""
    told = History()
    told.say("Q1 a", status="R")
    told.say("R1 a")
    told.say("C1 a", "Q1 b", "Q1 c")
    if not archived:
        told.rows[1, "a", 1] = replace(told.rows[1, "a", 1], state="RUNNING", output=None, finished_ms=0)
    told.epoch = "e2"
    told.say(status="R")
    if not archived:
        told.node_runs("a", 2)
        told.say("C2 a")
    told.node_runs("b", 2)
    told.node_runs("c", 2)
    told.say("C2 b", "C2 c", "Q1 d")
    told.say("R1 d")
    told.say("C1 d", status="C")
    return told


def rules_broken(evidence: Evidence) -> set[Rule]:
    return {rule for rule in RULES if list(rule(evidence))}


def only(rule: Rule, evidence: Evidence, *others: Rule) -> None:
    """This rule is broken, and perhaps some that must notice the same."""
    broken = rules_broken(evidence)
    assert rule in broken and broken <= {rule, *others}, list(map(str, violations(evidence)))


def lost(name: str, at: float, healed_at: float | None = None) -> Fault:
    return Fault(name, at, healed_at or at)


def loss_of(told: History, name: str = "flushall") -> list[Fault]:
    """Between the two epochs."""
    at = next(event.at for event in told.events if event.epoch == "e2") - 0.25
    return [lost(name, at)]


@pytest.mark.parametrize("told", [completed(), failed(), rebuilt()], ids=["completed", "failed", "rebuilt"])
def test_a_run_in_order_breaks_no_rule(told: History) -> None:
    evidence = told.evidence(status="FAILED" if told.definition is BROKEN else "COMPLETED")
    evidence = replace(evidence, stored={X: replace(evidence.stored[X], error="fatal", error_node="b")})
    faults = loss_of(told) if told.epoch == "e2" else []
    assert list(map(str, violations(replace(evidence, faults=faults)))) == []


def test_every_rule_has_a_test_that_breaks_it() -> None:
    source = test_every_rule_has_a_test_that_breaks_it.__globals__["__file__"]
    with open(source) as file:
        text = file.read()
    missing = [rule.__name__ for rule in RULES if f".{rule.__name__}" not in text]
    assert not missing


# ---- ends


def stored_as(**changed: Any) -> Evidence:
    evidence = completed().evidence()
    return replace(evidence, stored={X: replace(evidence.stored[X], **changed)})


def test_an_accepted_execution_that_sql_lacks() -> None:
    evidence = replace(completed().evidence(), stored={})
    only(ends.accepted_are_recorded, evidence)


@pytest.mark.parametrize("status", ["RUNNING", "PENDING"])
def test_an_execution_that_has_not_ended(status: str) -> None:
    only(ends.all_have_ended, stored_as(status=status), archive.the_archive_equals_the_history)


def test_one_that_was_submitted_and_never_triggered_may_wait() -> None:
    evidence = completed().evidence()
    waits = {"x2": Stored("x2", "PENDING", 0)}
    assert not rules_broken(replace(evidence, stored={**evidence.stored, **waits}))


def test_an_execution_that_ended_too_late() -> None:
    evidence = completed().evidence()
    only(ends.all_have_ended, replace(evidence, healed_at=START - 60))


def test_an_end_that_the_oracle_does_not_know() -> None:
    evidence = stored_as(status="FAILED", error="fatal", error_node="b")
    only(ends.ended_as_expected, evidence, archive.the_archive_equals_the_history)


def test_a_node_may_take_three_workers_with_it_and_no_fewer() -> None:
    told = History()
    told.say("Q1 a", status="R")
    for attempt in (1, 2):
        told.say(f"R{attempt} a")
        told.say(f"T{attempt} a")
        told.say(f"Q{attempt + 1} a")
    told.say("R3 a")
    told.say("F3 a", status="F")
    rows = [replace(row, code="worker_lost", retryable=True) for row in told.rows.values()]
    evidence = replace(told.evidence("FAILED"), attempts=rows, faults=[lost("role_killed", START, told.at)])
    evidence = replace(evidence, stored={X: replace(evidence.stored[X], error="worker_lost", error_node="a")})
    assert not rules_broken(evidence)
    fewer = replace(evidence, attempts=[row for row in rows if row.attempt != 2])
    only(ends.ended_as_expected, fewer, retries.nothing_is_given_up_early, archive.the_archive_equals_the_history)


def test_an_output_that_the_oracle_does_not_know() -> None:
    evidence = completed().evidence()
    rows = [replace(row, output='{"value": "1"}') if row.node == "d" else row for row in evidence.attempts]
    others = (completions.completions_stand, archive.the_archive_equals_the_history)
    only(ends.outputs_equal_oracle, replace(evidence, attempts=rows), *others)


def test_a_completion_that_cannot_be() -> None:
    nodes = [each | {"config": each["config"] | {"fatal_runs": 1}} for each in DIAMOND["nodes"]]
    evidence = replace(completed().evidence(), accepted={X: Accepted(X, {**DIAMOND, "nodes": nodes})})
    only(ends.outputs_equal_oracle, evidence, ends.ended_as_expected)


def test_a_node_that_was_left_out() -> None:
    told = completed()
    del told.rows[1, "c", 1]
    others = (completions.completions_stand, archive.the_archive_equals_the_history)
    only(ends.every_node_is_accounted_for, told.evidence(), *others)


def test_a_branch_that_should_have_gone_on() -> None:
    told = failed()
    told.definition = {**BROKEN, "on_failure": "continue", "nodes": [*BROKEN["nodes"], node("e")]}
    only(ends.every_node_is_accounted_for, told.evidence("FAILED"))


def test_two_executions_of_one_key() -> None:
    evidence = replace(completed().evidence(), submitted_twice={"k1": frozenset({X, "x2"})})
    only(ends.same_key_same_execution, evidence)


def test_an_execution_that_no_client_knows() -> None:
    evidence = completed().evidence()
    twin = {"x2": replace(evidence.stored[X], execution="x2")}
    others = (archive.the_archive_equals_the_history,)
    only(ends.nothing_runs_unasked, replace(evidence, stored={**evidence.stored, **twin}), *others)


@pytest.mark.parametrize(
    "changed", [{"run": 2}, {"status": "CANCELLED"}, {"cancelled_run": 1}], ids=["run", "cancelled", "trail"]
)
def test_what_nobody_asked_for(changed: dict[str, Any]) -> None:
    others = (ends.ended_as_expected, archive.the_archive_equals_the_history)
    only(ends.runs_were_asked_for, stored_as(**changed), *others)


# ---- completions


def test_two_completions() -> None:
    evidence = completed().evidence()
    twice = replace(next(row for row in evidence.attempts if row.node == "c"), run=2)
    others = (completions.nothing_follows_a_completion, completions.completions_stand)
    only(completions.one_completion_per_node, replace(evidence, attempts=[*evidence.attempts, twice]), *others)


def test_an_attempt_after_the_completion() -> None:
    evidence = completed().evidence()
    more = Attempt(X, 1, "c", 2, "QUEUED")
    only(completions.nothing_follows_a_completion, replace(evidence, attempts=[*evidence.attempts, more]))


def test_a_completion_may_be_forgotten_only_if_the_store_was_lost_before_it_was_archived() -> None:
    told = rebuilt(archived=False)
    told.rows[1, "a", 2] = replace(told.rows[1, "a", 2], state="COMPLETED")
    evidence = told.evidence()
    only(completions.completions_stand, evidence)
    assert not rules_broken(replace(evidence, faults=loss_of(told)))
    long_after = lost("flushall", told.events[2].at + ARCHIVED_WITHIN_SECONDS + 2)
    only(completions.completions_stand, replace(evidence, faults=[long_after]))
    sql_was_away = lost("postgres_stopped", told.events[2].at, long_after.at)
    assert not rules_broken(replace(evidence, faults=[long_after, sql_was_away]))


def test_what_sql_knows_does_not_run_again_after_a_loss() -> None:
    told = rebuilt()
    told.events = told.events[:-1]
    told.node_runs("a", 2)
    told.rows.pop((1, "a", 2))
    told.say("C1 d", status="C")
    others = (transitions.states_move_along_the_table, archive.the_archive_equals_the_history)
    rule = completions.what_is_complete_does_not_run_again
    for name in ("flushall", "valkey_killed"):
        only(rule, replace(told.evidence(), faults=loss_of(told, name)), *others)


def test_a_store_that_came_back_older_may_give_an_attempt_out_again_for_a_moment() -> None:
    told = completed()
    again = replace(told.events[1], id="9-0", at_ms=told.events[3].at_ms)
    call = replace(told.calls[0], at=again.at)
    told.events.insert(4, again)
    told.calls.append(call)
    evidence = told.evidence()
    wanted = {effects.one_call_per_token, completions.what_is_complete_does_not_run_again}
    assert wanted <= rules_broken(evidence)
    went_back = lost("valkey_killed", again.at - 0.1)
    assert not wanted & rules_broken(replace(evidence, faults=[went_back]))
    assert wanted <= rules_broken(replace(evidence, faults=[lost("flushall", again.at - 0.1)]))
    late = [replace(each, at_ms=each.at_ms + 60_000) if each.id == "9-0" else each for each in evidence.events]
    long_archived = replace(evidence, events=late, faults=[lost("valkey_killed", again.at + 59)])
    assert DISTURBED_WITHIN_SECONDS < 59 and wanted & rules_broken(long_archived)
    calls = [*told.calls[:-1], replace(call, at=call.at + 60)]
    long_after = replace(evidence, calls=calls, faults=[lost("valkey_killed", again.at + 59)])
    assert effects.one_call_per_token in rules_broken(long_after)


def test_an_attempt_number_that_begins_anew_after_a_rebuild() -> None:
    told = rebuilt()
    told.events = [_renumbered(event) if event.epoch == "e2" else event for event in told.events]
    told.events[2] = replace(told.events[2], changes=[*told.events[2].changes, Change("b", "R", 1)])
    evidence = replace(told.evidence(), faults=[lost("flushall", told.events[2].at + 60)])
    assert completions.attempts_are_not_reused in rules_broken(evidence)
    in_time = replace(evidence, faults=[lost("flushall", told.events[2].at + 0.1)])
    assert completions.attempts_are_not_reused not in rules_broken(in_time)


def _renumbered(event: Seen) -> Seen:
    return replace(event, changes=[replace(each, attempt=1) for each in event.changes])


def test_a_completion_that_nobody_worked_for() -> None:
    told = completed()
    told.calls = [
        replace(call, token=call.token.replace("e1", "e0")) if call.node == "d" else call for call in told.calls
    ]
    only(completions.completions_were_worked_for, told.evidence(), effects.calls_were_claimed)
    told = completed()
    told.calls[-1] = replace(told.calls[-1], at=told.at + 1)
    only(completions.completions_were_worked_for, told.evidence())


def test_an_attempt_that_nobody_heard_of_again() -> None:
    told = failed()
    told.rows[1, "c", 1] = Attempt(X, 1, "c", 1, "RUNNING", started_ms=int(START * 1000))
    evidence = told.evidence("FAILED")
    evidence = replace(evidence, stored={X: replace(evidence.stored[X], error="fatal", error_node="b")})
    only(completions.attempts_come_to_an_end, evidence)
    assert not rules_broken(replace(evidence, actions={**evidence.actions, (X, "cancel"): 1}))
    assert not rules_broken(replace(evidence, faults=[lost("flushall", told.at)]))
    told.rows[1, "c", 2] = Attempt(X, 1, "c", 2, "FAILED", code="fatal")
    followed = replace(evidence, attempts=list(told.rows.values()), letters=evidence.letters | {(X, 1, "c")})
    assert not rules_broken(followed)


# ---- effects


def test_two_calls_with_one_token() -> None:
    told = completed()
    told.calls.append(told.calls[0])
    only(effects.one_call_per_token, told.evidence())


def test_a_call_that_nobody_claimed() -> None:
    told = completed()
    told.calls.append(replace(told.calls[-2], attempt=2, token=f"{X}|e1|1|d|2"))
    only(effects.calls_were_claimed, told.evidence())
    before = lost("flushall", told.calls[0].at)
    assert not rules_broken(replace(told.evidence(), faults=[before]))


@pytest.mark.parametrize("key", ["other", f"{X}:1:a"])
def test_a_key_that_is_not_constant(key: str) -> None:
    told = completed()
    told.calls[-1] = replace(told.calls[-1], key=key)
    only(effects.keys_are_constant, told.evidence())


def test_a_child_that_was_called_before_its_parents_were_done() -> None:
    told = completed()
    told.calls = [
        replace(call, at=START) if call.node == "d" and call.phase == "start" else call for call in told.calls
    ]
    only(effects.parents_were_done, told.evidence(), effects.parents_had_ended)


def test_a_child_that_was_called_before_a_parent_had_ended_is_never_excused() -> None:
    told = completed()
    told.calls = [call for call in told.calls if (call.node, call.phase) != ("c", "end")]
    faults = [lost("flushall", START + 1)]
    only(effects.parents_had_ended, replace(told.evidence(), faults=faults), completions.completions_were_worked_for)


# ---- transitions


def moved(*lines: tuple[str, ...], ended: str = "") -> set[str]:
    """What the rule about the table says of these events."""
    told = History()
    told.say(status="R")
    for line in lines:
        told.say(*line)
    if ended:
        told.say(status=ended)
    return {each.says for each in transitions.states_move_along_the_table(told.evidence())}


@pytest.mark.parametrize(
    "lines",
    [
        (("R1 a",),),
        (("Q1 a",), ("C1 a",), ("C1 a",)),
        (("Q1 a",), ("R1 a",), ("C1 a",), ("Q2 a",)),
        (("Q1 a",), ("R1 a",), ("F1 a",), ("T1 a",)),
        (("Q1 a",), ("S1 a",)),
        (("Q1 a",), ("R2 a",)),
        (("Q1 a",), ("R1 a",), ("T1 a",), ("Q3 a",)),
        (("Q1 a",), ("R1 a",), ("Q1 a",)),
        (("Q1 a", "R2 a"),),
    ],
)
def test_moves_that_are_not_in_the_table(lines: Iterable[tuple[str, ...]]) -> None:
    assert moved(*lines)


def test_moves_that_are() -> None:
    assert not moved(("Q1 a",), ("R1 a",), ("Q2 a",), ("R2 a",), ("T2 a",), ("Q3 a",), ("R3 a",), ("C3 a",))
    assert not moved(("Q1 a",), ("F1 a",), ("S0 b",))
    assert not moved(("F1 a",))


def test_nothing_begins_in_an_execution_that_has_ended() -> None:
    told = failed()
    told.say("Q1 c")
    assert transitions.states_move_along_the_table in rules_broken(told.evidence("FAILED"))
    for status in "CX":
        told = failed()
        told.say(status=status)
        assert transitions.states_move_along_the_table in rules_broken(told.evidence("FAILED"))


def test_attempts_under_way_may_end_in_a_failed_execution() -> None:
    told = failed()
    told.events[1] = replace(told.events[1], changes=[*told.events[1].changes, Change("c", "Q", 1)])
    told.events[2] = replace(told.events[2], changes=[*told.events[2].changes, Change("c", "R", 1)])
    told.say("C1 c")
    assert transitions.states_move_along_the_table not in rules_broken(told.evidence("FAILED"))


def test_a_child_that_was_queued_before_its_parents_were_complete() -> None:
    told = History()
    told.say("Q1 a", status="R")
    told.say("Q1 d")
    assert transitions.parents_are_complete_when_queued in rules_broken(told.evidence("RUNNING"))


def without(events: Sequence[Seen], at: int) -> list[Seen]:
    return [*events[:at], *events[at + 1 :]]


def test_an_event_that_nobody_saw() -> None:
    told = completed()
    evidence = replace(told.evidence(), events=without(told.events, 4))
    others = (archive.the_archive_equals_the_history, transitions.states_move_along_the_table)
    assert transitions.chains_have_no_holes in rules_broken(evidence)
    excused = replace(evidence, faults=[lost("flushall", told.events[4].at)])
    assert not rules_broken(excused) - set(others)


def test_an_event_that_came_twice_is_one() -> None:
    told = completed()
    told.events.insert(6, replace(told.events[3], id="9-0"))
    assert not rules_broken(told.evidence())


def test_a_copy_of_an_event_that_the_store_lost_is_no_branch() -> None:
    told = completed()
    last = told.events[-1]
    again = replace(last, id="9-0", at_ms=last.at_ms + 6_000)
    told.events += [again, replace(last, id="9-1")]
    evidence = told.evidence()
    assert transitions.chains_do_not_branch in rules_broken(evidence)
    faults = [lost("aof_cut", last.at + 3)]
    assert transitions.chains_do_not_branch not in rules_broken(replace(evidence, faults=faults))


def test_a_history_with_two_ends() -> None:
    told = completed()
    branch = replace(told.events[4], id="9-0", changes=[Change("c", "T", 1)])
    told.events.insert(5, branch)
    evidence = told.evidence()
    assert transitions.chains_do_not_branch in rules_broken(evidence)
    faults = [lost("aof_cut", branch.at)]
    assert transitions.chains_do_not_branch not in rules_broken(replace(evidence, faults=faults))
    faults = [lost("flushall", branch.at)]
    assert transitions.chains_do_not_branch in rules_broken(replace(evidence, faults=faults))


def test_a_retry_before_its_time() -> None:
    told = completed()
    told.events[4] = replace(told.events[4], changes=[replace(told.events[4].changes[0], due_ms=int(told.at * 1000))])
    only(transitions.retries_wait_their_time, told.evidence())


# ---- retries


def test_more_retries_than_the_policy_allows() -> None:
    told = completed()
    told.definition = {**DIAMOND, "nodes": [each | {"retry_config": {"max_retries": 0}} for each in DIAMOND["nodes"]]}
    only(retries.retries_are_within_the_policy, told.evidence())


def test_more_lost_leases_than_are_allowed() -> None:
    evidence = completed().evidence()
    rows = [Attempt(X, 1, "c", -number, "RETRYING", code="worker_lost") for number in range(3)]
    evidence = replace(evidence, attempts=[*evidence.attempts, *rows], faults=[lost("role_killed", 0.0)])
    only(retries.retries_are_within_the_policy, evidence)


def test_a_node_that_was_given_up_early() -> None:
    told = failed()
    told.rows[1, "b", 1] = replace(told.rows[1, "b", 1], code="retry", retryable=True)
    evidence = told.evidence("FAILED")
    evidence = replace(evidence, stored={X: replace(evidence.stored[X], error="retry", error_node="b")})
    only(retries.nothing_is_given_up_early, evidence)


def test_a_lease_that_was_lost_for_no_reason() -> None:
    told = completed()
    told.rows[1, "b", 1] = replace(told.rows[1, "b", 1], code="worker_lost")
    only(retries.leases_are_lost_for_a_reason, told.evidence())
    assert not rules_broken(
        replace(told.evidence(), faults=[lost("role_killed", told.rows[1, "b", 1].finished_ms / 1000)])
    )
    assert rules_broken(replace(told.evidence(), faults=[lost("role_killed", START - 60)]))


# ---- archive


def test_a_row_that_is_not_what_happened() -> None:
    told = completed()
    told.rows[1, "b", 1] = replace(told.rows[1, "b", 1], state="QUEUED")
    only(archive.the_archive_equals_the_history, told.evidence())


def test_an_end_that_did_not_happen() -> None:
    told = completed()
    told.events[-1] = replace(told.events[-1], status="")
    only(archive.the_archive_equals_the_history, told.evidence())


def test_events_behind_the_last_one_of_sql() -> None:
    told = completed()
    evidence = told.evidence()
    behind = replace(evidence, stored={X: replace(evidence.stored[X], last_event=told.events[-2].id)})
    only(archive.the_archive_equals_the_history, behind)


def test_a_last_event_that_nobody_saw() -> None:
    only(archive.the_archive_equals_the_history, stored_as(last_event="7-7"))


def test_an_archive_that_is_behind() -> None:
    only(archive.all_events_are_archived, replace(completed().evidence(), cursors={0: "1-0"}))
    only(archive.all_events_are_archived, replace(completed().evidence(), cursors={}))


def test_an_event_that_was_set_aside() -> None:
    only(archive.nothing_was_set_aside, replace(completed().evidence(), set_aside=1))


def test_a_failure_without_a_dead_letter_and_one_too_many() -> None:
    evidence = failed().evidence("FAILED")
    evidence = replace(evidence, stored={X: replace(evidence.stored[X], error="fatal", error_node="b")})
    only(archive.dead_letters_equal_failures, replace(evidence, letters=frozenset()))
    only(archive.dead_letters_equal_failures, replace(evidence, letters=evidence.letters | {(X, 2, "b")}))


def test_a_late_result_that_was_not_counted() -> None:
    evidence = replace(completed().evidence(), refused=[(START + 1, 2)])
    only(archive.late_results_are_counted, evidence)
    assert not rules_broken(replace(evidence, hot=replace(evidence.hot, late_results=2)))
    assert not rules_broken(replace(evidence, faults=[lost("flushall", START + 3)]))


# ---- leftovers


def left(**hot: Any) -> Evidence:
    evidence = completed().evidence()
    return replace(evidence, hot=replace(evidence.hot, **hot))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("x:x1", ("hash", -1, 3)),
        ("x:x1", ("hash", 20, 3)),
        ("tasks:step", ("list", -1, 1)),
        ("results", ("stream", -1, 1)),
        ("logs", ("stream", -1, 1)),
        ("def:abc", ("string", -1, 9)),
        ("duty:archive", ("string", -1, 9)),
        ("defs", ("hash", -1, 1)),
        ("surprise", ("string", 5, 1)),
    ],
)
def test_a_key_that_is_left_over(name: str, key: tuple[str, int, int]) -> None:
    only(leftovers.keys_are_known, left(keys={"hr:{0}:" + name: key}))


def test_keys_that_may_stay() -> None:
    stay = {
        "meta": ("hash", -1, 2), "results": ("stream", -1, 0), "tasks:step": ("list", -1, 0),
        "bell:step": ("stream", -1, 1), "def:abc": ("string", 3000, 9),
        "duty:archive": ("string", 4, 9), "control": ("stream", -1, 7),
    }  # fmt: skip
    assert not rules_broken(left(keys={"hr:{0}:" + name: key for name, key in stay.items()}))


def test_a_timer_that_is_left_over() -> None:
    soon = (START + 999) * 1000
    only(leftovers.timers_are_gone, left(timers={"L|x1|e1|1|a|1": soon}))
    only(leftovers.timers_are_gone, left(timers={"X|x1|e1|1||0": START * 1000}))
    assert not rules_broken(left(timers={"X|x1|e1|1||0": soon}))


def test_hints_that_are_pending() -> None:
    only(leftovers.nothing_is_pending, left(pending=1))


@pytest.mark.parametrize("kind", ["consumers", "workers"])
def test_names_of_the_dead(kind: str) -> None:
    only(leftovers.names_of_the_dead_are_gone, left(**{kind: {"o1/0": 999.0}}))
    assert not rules_broken(left(**{kind: {"o1/0": 1.0}}))


# ---- oracle and watcher


def test_the_oracle_goes_from_parents_to_children() -> None:
    found = expect(DIAMOND)
    a, b = found.outputs["a"]["value"], found.outputs["b"]["value"]
    assert (a, b) == (value_of(ord("a"), {}), value_of(ord("b"), {"a": a}))
    assert found.status == "COMPLETED" and found.outputs.keys() == {"a", "b", "c", "d"}
    broken = expect(BROKEN)
    assert (broken.status, set(broken.outputs), broken.failing) == ("FAILED", {"a"}, frozenset({"b"}))
    assert expect(BROKEN, run=10).status == "COMPLETED"


def test_the_oracle_refuses_a_circle() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        in_order({"a": {"dependencies": ["b"]}, "b": {"dependencies": ["a"]}})


def test_the_watcher_keeps_digests_and_codes() -> None:
    changes = [RawChange("a", "C", 1, '{"value":1}'), RawChange("b", "T", 1, '{"code":"retry","message":"m"}', 7)]
    line = line_of(0, "1-0", Event(X, "e", 1, 1, "", 5, "", "", changes))
    assert line["changes"] == [["a", "C", 1, digest('{"value":1}'), 0], ["b", "T", 1, "retry", 7]]
