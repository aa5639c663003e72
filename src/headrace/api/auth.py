"""Who may ask for what: API keys, and the guard in front of every route that needs one.

Only hashes of keys are kept and compared. Without any key the API is open, but to this machine alone: a server that
listens beyond it answers nobody without a key, unless API_ALLOW_OPEN says so. Browsers are let in from the API's own
pages only, since a foreign page could otherwise use an open API behind its user's back.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.api.limits import RateLimiter
from headrace.api.parts import CALLER, Caller, header
from headrace.api.problems import Refused, answer_error
from headrace.errors import RecordUnavailable
from headrace.record.keys import Key, Keys, key_hash
from headrace.settings import SCOPES, Settings

FRESH_SECONDS: Final = 3.0
STALE_SECONDS: Final = 600.0  # for how long a key that was good stays good while SQL is away
MOST_REMEMBERED: Final = 10_000
READING: Final = ("GET", "HEAD", "OPTIONS")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Callers:
    """From the key in a request to its caller. What SQL said is remembered for a moment."""

    def __init__(self, keys: Keys, settings: Settings) -> None:
        self._keys = keys
        self._fixed = [
            (key_hash(key.secret), Caller(key.name, f"fixed:{key.name}", widened(key.scopes)))
            for key in settings.fixed_keys
        ]
        self._may_be_open = settings.api_allow_open or is_loopback(settings.api_host)
        self._found: dict[str, tuple[float, Key | None]] = {}
        self._any_key: tuple[float, bool] | None = None

    async def identify(self, secret: str | None, address: str) -> Caller | None:
        """None: this key is not good, or one is needed."""
        if secret is None:
            is_open = self._may_be_open and not await self.any_key()
            return _anonymous(address) if is_open else None
        wanted = key_hash(secret)
        for known, caller in self._fixed:
            if hmac.compare_digest(known, wanted):
                return caller
        key = await self._find(wanted)
        if key is None or not hmac.compare_digest(key.hash, wanted):
            return None
        return Caller(key.name, f"key:{key.id}", widened(key.scopes))

    async def any_key(self) -> bool:
        """Whether a key was ever made: revoking the last one does not open the API again."""
        if self._fixed:
            return True
        asked, known = self._any_key or (float("-inf"), False)
        if known or time.monotonic() - asked < FRESH_SECONDS:
            return known
        if self._any_key is not None:
            self._any_key = (time.monotonic(), False)  # while one asks, the others go by what was known
        try:
            self._any_key = (time.monotonic(), bool(await self._keys.all()))
        except RecordUnavailable:
            if self._any_key is None:
                raise
        return self._any_key[1]

    async def _find(self, wanted: str) -> Key | None:
        now = time.monotonic()
        asked, key = self._found.get(wanted, (float("-inf"), None))
        if now - asked < FRESH_SECONDS:
            return key
        try:
            key = await self._keys.find(wanted)
        except RecordUnavailable:
            if key is None or now - asked > STALE_SECONDS:
                raise
            return key
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        self._found[wanted] = (now, key)
        return key


@lru_cache(64)
def _anonymous(address: str) -> Caller:
    return Caller(f"anonymous@{address}", "anonymous", frozenset(SCOPES))


def widened(scopes: frozenset[str]) -> frozenset[str]:
    """admin may also run, and run may also read."""
    highest = max(SCOPES.index(scope) for scope in scopes)
    return frozenset(SCOPES[: highest + 1])


def needed_scope(method: str, path: str) -> str | None:
    """Reading needs read, dropping needs admin, all else run; what is not under /v1 is for everybody, but metrics."""
    if not path.startswith("/v1/") and path not in ("/v1", "/metrics"):
        return None
    if method in READING or path == "/v1/validate":
        return "read"
    return "admin" if method == "DELETE" else "run"


class Guard:
    """Keys, scopes, origins and the rate of requests, before anything of the body is read."""

    def __init__(self, app: ASGIApp, callers: Callers, limiter: RateLimiter, settings: Settings) -> None:
        self._app, self._callers, self._limiter = app, callers, limiter
        self._checks_host = is_loopback(settings.api_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (needed := needed_scope(scope["method"], scope["path"])):
            try:
                scope[CALLER] = await self._admitted(scope, needed)
            except Exception as error:
                await answer_error(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _admitted(self, scope: Scope, needed: str) -> Caller:
        address = scope["client"][0] if scope.get("client") else "local"
        secret = _secret(scope)
        if secret is None:
            self._check_origin(scope)
        caller = await self._callers.identify(secret, address)
        await self._limiter.admit(caller.owner if caller and secret else address)
        if caller is None:
            told = "this API key is not valid" if secret is not None else ""
            raise Refused("unauthorized", told, headers={"WWW-Authenticate": 'Bearer realm="headrace"'})
        if needed not in caller.scopes:
            raise Refused("forbidden", f"this needs a key with the scope {needed}")
        return caller

    def _check_origin(self, scope: Scope) -> None:
        """For an open API alone: a browser never adds a key by itself."""
        host, origin = header(scope, b"host") or "", header(scope, b"origin")
        if self._checks_host and not _names_loopback(host):  # a foreign name that leads here: DNS rebinding
            raise Refused("forbidden", "this server is for its own machine: call it localhost or 127.0.0.1")
        if origin is not None and _authority(origin) != host.lower():
            raise Refused("forbidden", "pages of other origins may not use this API")


def _secret(scope: Scope) -> str | None:
    """A key in either header; an Authorization that is not Bearer is a key that is not good."""
    given = header(scope, b"authorization")
    if given is None:
        return header(scope, b"x-api-key")
    scheme, _, secret = given.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


@lru_cache(64)
def _names_loopback(host: str) -> bool:
    """Of a Host header: with its port."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
