"""A way around FastAPI's layers for the routes that are called most: their path is looked up and they are called.

What they answer is what they would answer behind these layers. Everything else goes on to the application.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.api.paths import Plain
from headrace.api.problems import answer_error


class Direct:
    """`routes`: those with a parameter in their path are left to the application."""

    def __init__(self, app: ASGIApp, routes: Iterable[Plain]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in routes
            if not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # metrics want to know
        try:
            response = await route.endpoint(Request(scope, receive, send))
        except Exception as error:
            response = answer_error(error)
        await response(scope, receive, send)
