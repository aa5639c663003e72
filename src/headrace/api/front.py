"""The outermost layer: counts every request, gives it the parts, serves the web UI, gives every answer its security
headers, and has the last word on errors.

What is raised and not expected becomes a 500 that says nothing about the inside; the log has it.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.parts import PARTS, Parts
from headrace.api.problems import answer_error
from headrace.api.site import Site

HEADERS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "headrace_http_requests", "HTTP requests.", ("method", "route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "headrace_http_request_seconds",
            "Seconds from a request to the beginning of its answer.",
            ("method", "route"),
            registry=registry,
        )
        self._labelled = cache(
            lambda method, route, status: (
                self.requests.labels(method, route, status),
                self.seconds.labels(method, route),
            )
        )

    def count(self, scope: Scope, status: int, seconds: float, *, is_ui: bool) -> None:
        route = getattr(scope.get("route"), "path_format", "ui" if is_ui else "unknown")  # few, whatever is asked for
        method = scope["method"] if scope["method"] in METHODS else "other"
        requests, taken = self._labelled(method, route, status)
        requests.inc()
        taken.observe(seconds)


class Front:
    def __init__(self, app: ASGIApp, metrics: HttpMetrics, parts: Parts) -> None:
        self._app, self._metrics, self._parts, self._site = app, metrics, parts, Site()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0
        scope[PARTS] = self._parts
        page: Response | None = None

        async def send_out(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*(HEADERS | dict(message["headers"])).items()]
                self._metrics.count(scope, status, time.perf_counter() - begun, is_ui=page is not None)
            await send(message)

        try:
            page = self._site.answer(scope)
            await (page or self._app)(scope, receive, send_out)
        except Exception as error:
            answer = answer_error(error)
            if status:
                raise  # half an answer is out: all that is left is to close the connection
            await answer(scope, receive, send_out)
