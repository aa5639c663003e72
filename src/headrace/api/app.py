"""The application: routes, the guard before them, the layer around everything, and the OpenAPI document."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from headrace.api import openapi, schemas
from headrace.api.answers import Json
from headrace.api.auth import Callers, Guard, needed_scope
from headrace.api.direct import Direct
from headrace.api.front import Front, HttpMetrics
from headrace.api.limits import RateLimiter
from headrace.api.page import CONTENT_POLICY, docs_page
from headrace.api.parts import Parts, Specs
from headrace.api.paths import Plain
from headrace.api.problems import answers_problems
from headrace.api.routes import dlq, executions, health, operations, workflows
from headrace.engine.metrics import Metrics
from headrace.engine.service import Service
from headrace.hot.store import HotStore
from headrace.record.admin import DeadLetters
from headrace.record.database import Database
from headrace.record.keys import Keys
from headrace.record.queries import Queries
from headrace.record.readings import Readings
from headrace.settings import Settings

DESCRIPTION = "Workflows of API and LLM calls. Every error is a problem document (RFC 9457); the page at /docs has all."
ROUTERS = (
    executions.router,  # before the plain ones: /executions/events is not an id
    executions.plain,
    workflows.router,
    dlq.router,
    operations.router,
    health.router,
)


def create_app(
    service: Service,
    database: Database,
    store: HotStore,
    settings: Settings,
    *,
    registry: CollectorRegistry | None = None,
) -> FastAPI:
    """The service must be running. Other parts may add their metrics to the registry."""
    registry = registry or CollectorRegistry()
    callers = Callers(Keys(database), settings)
    limiter = RateLimiter(store, settings.rate_limit)
    app = FastAPI(
        title="Headrace",
        version=version("headrace"),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are enough, and asking costs
    )
    app.state.registry = registry
    app.state.metrics = Metrics(service, Queries(database), store)
    registry.register(app.state.metrics)
    app.state.callers = callers
    app.state.parts = Parts(
        service, Queries(database), Readings(database), DeadLetters(database), settings, Specs(service)
    )
    for router in ROUTERS:
        app.include_router(router)
    _add_documents(app)
    every = (*app.routes, *(route for router in ROUTERS for route in router.routes))
    answers_problems(app, [route for route in every if isinstance(route, Route)])
    # Instead of the layers that Starlette would make: its own answer to what nobody expected must not come before ours,
    # and the routes that are called most pass through ours alone.
    inside = ExceptionMiddleware(AsyncExitStackMiddleware(app.router), handlers=app.exception_handlers)
    direct = Direct(inside, [route for route in executions.plain.routes if isinstance(route, Plain)])
    app.middleware_stack = Front(Guard(direct, callers, limiter, settings), HttpMetrics(registry), app.state.parts)
    return app


def _add_documents(app: FastAPI) -> None:
    """They are made when somebody asks for them: that takes longer than all else in here."""

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(app)

    @cache
    def page() -> str:
        return docs_page(document())

    async def openapi_json(_: Request) -> Response:
        return Json(document())

    async def docs(_: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": CONTENT_POLICY})

    app.add_route("/openapi.json", openapi_json, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)


def openapi_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    parts = document["components"]
    parts["schemas"] |= openapi.components(schemas.Problem, schemas.Change, schemas.ListChange)
    parts["schemas"] |= openapi.definition_components()
    parts["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            operation["security"] = [{"bearer": []}, {"header": []}] if needed_scope("GET", path) else []
            if "application/json" in operation["responses"].get("422", {}).get("content", ()):
                del operation["responses"]["422"]  # FastAPI's own shape, which is never sent
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    return document
