"""`headrace doctor --audit`: executions that cannot make progress, found straight in the stores and not by a server.

In embedded mode it looks into what `headrace dev` runs in HEADRACE_HOME; Valkey is only talked to, never started.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli.checks import Finding
from headrace.cli.recorded import opened, sqlite_file
from headrace.cli.startup import Usage
from headrace.cli.words import counted
from headrace.embedded import EmbeddedValkey
from headrace.engine.audit import Audit, Found, Stuck
from headrace.engine.causes import DO, Cause
from headrace.engine.why import Inquiry
from headrace.errors import RecordUnavailable
from headrace.hot.store import HotStore
from headrace.record.migrations import current, newest
from headrace.record.queries import Queries
from headrace.settings import Settings

CHECK = "audit"
MOST_TOLD = 20


async def find_stuck(settings: Settings) -> list[Finding]:
    file = sqlite_file(settings)
    if file and not file.exists():
        return [Finding(CHECK, "ok", "nothing was ever accepted here")]
    embedded = EmbeddedValkey(settings.headrace_home / "valkey")
    if settings.valkey_url is None and not embedded.socket_path.exists():
        return [
            Finding(CHECK, "warning", "no embedded Valkey is running here, so nothing runs", "Start `headrace dev`")
        ]
    url = settings.valkey_url or embedded.url
    store = HotStore(url, partitions=settings.redis_partitions, socket_timeout=settings.redis_socket_timeout)
    try:
        async with opened(settings) as database:
            if await current(database) != newest():
                return [Finding(CHECK, "problem", "the database's schema is not up to date", "Run `headrace migrate`")]
            inquiry = Inquiry(database, store, settings)
            return list(_findings(await Audit(inquiry, Queries(database), store).run()))
    except (RecordUnavailable, Usage) as error:
        return [Finding(CHECK, "problem", str(error), "Start the database, or correct DATABASE_URL")]
    finally:
        await store.aclose()


def _findings(found: Found) -> Iterator[Finding]:
    for problem in found.problems:
        yield Finding(
            CHECK,
            "problem" if found.live_count or _is_away(problem.cause) else "warning",
            problem.why,
            DO[problem.cause],
        )
    for stuck in found.stuck[:MOST_TOLD]:
        yield _stuck(stuck)
    if found.stuck_count > MOST_TOLD:
        told = f"{counted(found.stuck_count - MOST_TOLD, 'more execution')} cannot make progress"
        yield Finding(CHECK, "problem", told, "See GET /v1/audit")
    if not found.stuck_count and not any(_is_away(each.cause) for each in found.problems):
        yield Finding(CHECK, "ok", f"{counted(found.live_count, 'running execution')}, and none is stuck")


def _is_away(cause: Cause) -> bool:
    return cause in (Cause.STORE_AWAY, Cause.RECORD_AWAY)


def _stuck(stuck: Stuck) -> Finding:
    """One node says it for all: those that wait for parents say nothing new."""
    first = next((each for each in stuck.reasons if each.cause != Cause.PARENTS), stuck.reasons[0])
    where = f", node {first.node}" if first.node else ""
    says = f"{stuck.execution_id} ({stuck.workflow}{where}) has not moved for {stuck.idle_seconds:.0f} s: {first.why}"
    return Finding(CHECK, "problem", says, DO[first.cause])
