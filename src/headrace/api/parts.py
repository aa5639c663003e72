"""What every route works with, put together once per application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from headrace.engine.service import Service
from headrace.errors import RecordUnavailable, StoreUnavailable
from headrace.model import trace
from headrace.model.configs import HandlerSpec
from headrace.record.admin import DeadLetters
from headrace.record.queries import Queries
from headrace.record.readings import Readings
from headrace.settings import Settings

SPECS_SECONDS = 1.0


class Specs:
    """The known handlers, asked for at most once a second; while a store is away, those that were known before."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: Mapping[str, HandlerSpec] | None = None
        self._asked = 0.0

    async def known(self) -> Mapping[str, HandlerSpec]:
        if self._known is None or time.monotonic() - self._asked > SPECS_SECONDS:
            try:
                self._known = await self._service.specs()
            except (StoreUnavailable, RecordUnavailable):
                if self._known is None:
                    raise
            self._asked = time.monotonic()
        return self._known


class Caller(msgspec.Struct, frozen=True):
    """Who asks: `name` stands in the audit trail, idempotency keys and the rate of requests belong to `owner`."""

    name: str
    owner: str
    scopes: frozenset[str]


@dataclass(frozen=True)
class Parts:
    service: Service
    queries: Queries
    readings: Readings
    letters: DeadLetters
    settings: Settings
    specs: Specs
    stop: asyncio.Event = field(default_factory=asyncio.Event)  # ends the streams of events
    large_bodies: asyncio.Lock = field(default_factory=asyncio.Lock)


PARTS = "headrace.parts"
CALLER = "headrace.caller"
ARRIVED = "headrace.arrived"  # the whole request is there: nobody waits for its body


def parts(request: Request) -> Parts:
    return cast("Parts", request.scope[PARTS])


def actor(request: Request) -> str:
    return caller(request).name


def traceparent(request: Request) -> str | None:
    """Which span asks, where that is well-formed. What is not is no reason to refuse a request."""
    given = [value for name, value in request.scope["headers"] if name == b"traceparent"]
    found = trace.read(given[0].decode("latin-1")) if len(given) == 1 else None
    return found.header if found else None


def header(scope: Scope, name: bytes) -> str | None:
    """The first of this name, which is in lower case. Most are not there, and Starlette raises an error for each."""
    for known, value in scope["headers"]:
        if known == name:
            return str(value, "latin-1")
    return None


def caller(request: Request) -> Caller:
    found: Any = request.scope[CALLER]
    return cast("Caller", found)
