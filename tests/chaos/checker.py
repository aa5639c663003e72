"""The checker: reads what a run has left behind and says which rules it breaks. None is the only good answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.evidence import Evidence, gather
from tests.chaos.rules import archive, completions, effects, ends, leftovers, retries, transitions
from tests.chaos.run import Run
from tests.chaos.violation import Rule, Violation

RULES: Sequence[Rule] = (
    ends.accepted_are_recorded,
    ends.all_have_ended,
    ends.ended_as_expected,
    ends.outputs_equal_oracle,
    ends.every_node_is_accounted_for,
    ends.same_key_same_execution,
    ends.runs_were_asked_for,
    ends.nothing_runs_unasked,
    completions.one_completion_per_node,
    completions.nothing_follows_a_completion,
    completions.completions_stand,
    completions.what_is_complete_does_not_run_again,
    completions.attempts_are_not_reused,
    completions.completions_were_worked_for,
    completions.attempts_come_to_an_end,
    effects.one_call_per_token,
    effects.calls_were_claimed,
    effects.keys_are_constant,
    effects.parents_were_done,
    effects.parents_had_ended,
    transitions.states_move_along_the_table,
    transitions.parents_are_complete_when_queued,
    transitions.chains_have_no_holes,
    transitions.chains_do_not_branch,
    transitions.retries_wait_their_time,
    retries.retries_are_within_the_policy,
    retries.nothing_is_given_up_early,
    retries.leases_are_lost_for_a_reason,
    archive.the_archive_equals_the_history,
    archive.all_events_are_archived,
    archive.nothing_was_set_aside,
    archive.dead_letters_equal_failures,
    archive.late_results_are_counted,
    leftovers.keys_are_known,
    leftovers.timers_are_gone,
    leftovers.nothing_is_pending,
    leftovers.names_of_the_dead_are_gone,
)


async def check(run: Run, healed_at: float) -> list[Violation]:
    """`healed_at`: when the last fault was over, in seconds since 1970."""
    return list(violations(await gather(run, healed_at)))


def violations(evidence: Evidence) -> Iterator[Violation]:
    for rule in RULES:
        yield from rule(evidence)
