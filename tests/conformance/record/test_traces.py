"""Which trace a run belongs to: what its request brought, or what the execution had; and when the run began."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.messages import Change
from headrace.record.acceptance import Acceptance, Accepted
from headrace.record.database import Database
from headrace.record.openings import Openings
from headrace.record.readings import Begun, Readings
from tests.conformance.record.chains import Chain, failure
from tests.conformance.record.rows import opened, submission

FIRST, SECOND = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")


async def test_a_request_without_a_trace_goes_on_in_the_one_that_there_is(database: Database) -> None:
    acceptance, openings = Acceptance(database), Openings(database)
    wanted = [submission(input_text=None), replace(submission(input_text=None), traceparent=FIRST)]
    bare, traced = [one.execution_id for one in await acceptance.submit(wanted) if isinstance(one, Accepted)]

    async def held() -> dict[str, str | None]:
        return {one.execution_id: one.traceparent for one in await openings.wanted([bare, traced])}

    await acceptance.trigger(bare, "{}", "ann")
    await acceptance.trigger(traced, "{}", "ann")
    assert await held() == {bare: None, traced: FIRST}
    for run, (brought, expected) in enumerate([(None, FIRST), (SECOND, SECOND), (None, SECOND)], start=1):
        await opened(database, traced, f"epoch {run}")
        await Chain(database, traced, f"epoch {run}", run=run).add(status="F", error=failure("fatal"))
        await acceptance.retry(traced, "ann", brought)
        assert await held() == {bare: None, traced: expected}


async def test_a_run_begins_with_its_first_node_also_after_a_rebuild(database: Database) -> None:
    acceptance, readings = Acceptance(database), Readings(database)
    (accepted,) = await acceptance.submit([replace(submission(), traceparent=FIRST)])
    assert isinstance(accepted, Accepted)
    execution_id = accepted.execution_id
    assert await readings.begun([execution_id]) == [Begun(execution_id, "w", FIRST, None, None)]
    await opened(database, execution_id, "lost")
    await Chain(database, execution_id, "lost").add(Change("a", "Q", 1), status="R", at_ms=100)
    await opened(database, execution_id, "rebuilt")
    chain = Chain(database, execution_id, "rebuilt")
    await chain.add(Change("a", "Q", 2), status="R", at_ms=200)
    await chain.add(Change("a", "F", 2, failure("fatal")), status="F", error=failure("fatal"), at_ms=300)
    assert await readings.begun([execution_id]) == [Begun(execution_id, "w", FIRST, failure("fatal"), 100)]
    await acceptance.retry(execution_id, "ann")
    assert await readings.begun([execution_id]) == [Begun(execution_id, "w", FIRST, None, None)]
