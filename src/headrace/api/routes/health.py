"""Whether the process lives, whether its stores are there, and numbers for Prometheus."""

from __future__ import annotations

import asyncio

import structlog
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from headrace.api import openapi, schemas
from headrace.api.answers import Json
from headrace.api.parts import parts
from headrace.api.problems import RETRY_AFTER_SECONDS, Refused
from headrace.errors import Problem

READY_WITHIN_SECONDS = 5.0
AWAY = {"valkey": "store_unavailable", "sql": "record_unavailable"}

log = structlog.get_logger(__name__)
router = APIRouter(tags=["health"], default_response_class=Json)

_TEXT = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/healthz", operation_id="healthz", responses={200: {"model": schemas.Health}})
async def healthz() -> Response:
    """The process answers."""
    return Json({"status": "ok"})


@router.get("/readyz", operation_id="readyz", responses={200: {"model": schemas.Ready}, 503: openapi.problem(503)})
async def readyz(request: Request) -> Response:
    """The stores can be reached. What exactly is wrong with one that cannot, the log says."""
    try:
        async with asyncio.timeout(READY_WITHIN_SECONDS):
            stores = await parts(request).service.ready()
    except TimeoutError:
        raise Refused("store_unavailable", "a store does not answer in time") from None
    away = {name: wrong for name, wrong in stores.items() if wrong != "ok"}
    if not away:
        return Json({"status": "ready", "stores": stores})
    log.warning("not ready", **away)
    problems = [Problem(AWAY.get(name, "store_unavailable"), "cannot be used now", (name,)) for name in away]
    raise Refused(problems[0].code, problems=problems, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses=openapi.answers(200, None, "Metrics.", content=_TEXT),
)
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    await request.app.state.metrics.refresh()
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
