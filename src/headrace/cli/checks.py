"""The checks of `headrace doctor`: each looks at one thing that Headrace needs and says what to do if it is wrong.

A problem keeps Headrace from working, a warning makes it work less well than it could. Nothing that they look at is
changed.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from headrace.cli.recorded import opened, sqlite_file
from headrace.cli.startup import Usage
from headrace.embedded import EmbeddedValkey, scratch
from headrace.errors import HeadraceError, RecordUnavailable, StoreUnavailable, StoreUnsupported
from headrace.hot import facts as hot
from headrace.hot.store import OLDEST_SERVER
from headrace.settings import Settings
from headrace.worker.registry import Registry

if TYPE_CHECKING:
    from headrace.record.facts import Facts

SLOW_SECONDS = 0.01
SKEWED_SECONDS = 1.0
FAR_OFF_SECONDS = 60.0
FULL_SHARE = 0.8  # past it new work is refused
OTHER_DESCRIPTORS = 256  # connections, files, the interpreter

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`do` is what helps, if something is wrong."""

    check: str
    level: Level
    says: str
    do: str = ""


async def examine(settings: Settings) -> list[Finding]:
    valkey, valkey_findings = await _valkey(settings)
    sql, sql_findings = await _sql(settings)
    return [
        *_home(settings),
        *_descriptors(settings),
        *_handlers(settings),
        *valkey_findings,
        *sql_findings,
        *_clocks(valkey, sql),
    ]


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.headrace_home.absolute()
    folder = next(each for each in (home, *home.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            yield Finding("home", "ok", f"{home} can be written")
    except OSError as error:
        yield Finding(
            "home", "problem", f"{home} cannot be written: {error.strerror}",
            "Set HEADRACE_HOME to a folder that this user may write to",
        )  # fmt: skip


def _descriptors(settings: Settings) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OTHER_DESCRIPTORS + 4 * settings.worker_concurrency
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield Finding("file limit", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} open files")
        return
    yield Finding(
        "file limit", "warning", f"only {soft:,} open files, and {needed:,} are good for WORKER_CONCURRENCY",
        f"Raise it where the roles are started: ulimit -n {max(needed, 4096)}",
    )  # fmt: skip


def _handlers(settings: Settings) -> Iterator[Finding]:
    try:
        names = Registry.load(list(settings.worker_handlers), settings).names
    except HeadraceError as error:
        yield Finding("handlers", "problem", str(error), "Correct WORKER_HANDLERS, or the module that it names")
    else:
        yield Finding("handlers", "ok", ", ".join(names))


# Valkey


async def _valkey(settings: Settings) -> tuple[hot.Facts | None, list[Finding]]:
    """What is known of the server, if it is not our own."""
    url, timeout = settings.valkey_url, settings.redis_socket_timeout
    try:
        if url is not None:
            facts = await hot.look(url, timeout)
            return facts, [*_server(facts)]
        with scratch(settings.headrace_home) as folder, EmbeddedValkey(folder) as server:
            facts = await hot.look(server.url, timeout)
    except (StoreUnavailable, StoreUnsupported) as error:
        what = "Start it, or correct REDIS_URL" if url else "Set REDIS_URL to a server, or HEADRACE_HOME elsewhere"
        return None, [Finding("Valkey", "problem", str(error), what)]
    return None, [Finding("Valkey", "ok", f"{facts.product} {facts.version}, embedded: it starts and answers")]


def _server(facts: hot.Facts) -> Iterator[Finding]:
    named = f"{facts.product} {facts.version} at {facts.address}"
    if facts.major < OLDEST_SERVER[0]:
        yield Finding("Valkey", "problem", f"{named} is too old", "Use Valkey 7.2 or newer, or Redis 7 or newer")
    else:
        yield Finding("Valkey", "ok", named)
    if facts.eviction == "noeviction":
        yield Finding("Valkey eviction", "ok", "noeviction")
    else:
        yield Finding(
            "Valkey eviction", "problem", f"{facts.eviction} may delete running workflows",
            "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration",
        )  # fmt: skip
    if facts.is_appending:
        yield Finding("Valkey persistence", "ok", "appendonly is on")
    else:
        yield Finding(
            "Valkey persistence", "warning", "appendonly is off: after a crash all that ran is rebuilt from SQL",
            "CONFIG SET appendonly yes, and the same in the server's configuration",
        )  # fmt: skip
    if facts.most_bytes and facts.used_bytes > FULL_SHARE * facts.most_bytes:
        share = 100 * facts.used_bytes // facts.most_bytes
        yield Finding("Valkey memory", "warning", f"{share} % of maxmemory is used", "Raise maxmemory")
    yield _latency("Valkey latency", facts.latency_seconds)


def _latency(check: str, seconds: float) -> Finding:
    told = f"{seconds * 1000:.1f} ms for a round trip"
    if seconds < SLOW_SECONDS:
        return Finding(check, "ok", told)
    return Finding(check, "warning", told, "Run the roles nearer to it: every node takes several round trips")


# SQL


async def _sql(settings: Settings) -> tuple[Facts | None, list[Finding]]:
    """What is known of the server, if it is one."""
    file = sqlite_file(settings)
    if file and not file.exists():
        return None, [Finding("SQL", "ok", f"SQLite: {file} is not there yet; `headrace dev` or `migrate` makes it")]
    from headrace.record import facts as record
    from headrace.record.migrations import current

    try:
        async with opened(settings) as database:
            facts = await record.look(database)
            schema = _schema(await current(database))
    except (RecordUnavailable, Usage) as error:
        return None, [Finding("SQL", "problem", str(error), "Start the database, or correct DATABASE_URL")]
    if file:
        return None, [Finding("SQL", "ok", f"SQLite {facts.version}: {file}"), schema]
    where = urlsplit(settings.sql_url)
    reached = Finding("SQL", "ok", f"PostgreSQL {facts.version} at {where.hostname or 'a socket'}{where.path}")
    return facts, [reached, _latency("SQL latency", facts.latency_seconds), schema]


def _schema(revision: str | None) -> Finding:
    from headrace.record.facts import is_known
    from headrace.record.migrations import newest

    if revision == newest():
        return Finding("SQL schema", "ok", f"revision {revision}")
    if revision and not is_known(revision):
        return Finding("SQL schema", "problem", f"revision {revision} is newer than this version", "Upgrade Headrace")
    return Finding(
        "SQL schema", "problem", f"revision {revision or 'none'}, and {newest()} is needed", "Run `headrace migrate`"
    )


# Clocks


def _clocks(valkey: hot.Facts | None, sql: Facts | None) -> Iterator[Finding]:
    """Between this machine and each server that has a clock of its own."""
    ahead = {"this machine": 0.0}
    if valkey:
        ahead["Valkey"] = valkey.ahead_seconds
    if sql:
        ahead["SQL"] = sql.ahead_seconds
    if len(ahead) == 1:
        return
    first, last = min(ahead, key=ahead.__getitem__), max(ahead, key=ahead.__getitem__)
    apart = ahead[last] - ahead[first]
    told = f"{apart * 1000:,.0f} ms apart, at most" if apart < 10 else f"{last} is {apart:,.0f} s ahead of {first}"
    level: Level = "ok" if apart < SKEWED_SECONDS else "warning" if apart < FAR_OFF_SECONDS else "problem"
    yield Finding("clocks", level, told, "" if level == "ok" else "Synchronise the clocks, for example with chrony")
