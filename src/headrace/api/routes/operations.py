"""For whoever runs the system: workers, queues, handlers, what was done by whom, and what cannot go on."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from headrace.api import schemas
from headrace.api.answers import Json
from headrace.api.openapi import answers
from headrace.api.parts import parts
from headrace.api.paths import AuditQuery
from headrace.engine.view import timestamp
from headrace.engine.why import told
from headrace.record.queries import AuditLine

router = APIRouter(prefix="/v1", tags=["operations"], default_response_class=Json)


@router.get("/workers", operation_id="list_workers", responses=answers(200, schemas.Workers, "The workers."))
async def list_workers(request: Request) -> Response:
    """The workers that have not signed off, with the age of their last sign of life."""
    return Json({"items": await parts(request).service.workers()})


@router.get("/queues", operation_id="list_queues", responses=answers(200, schemas.Queues, "The queues."))
async def list_queues(request: Request) -> Response:
    """How many tasks wait for each handler, and how long the oldest has waited."""
    return Json({"items": await parts(request).service.queues()})


@router.get("/handlers", operation_id="list_handlers", responses=answers(200, schemas.Handlers, "The handlers."))
async def list_handlers(request: Request) -> Response:
    """The handlers that workers have offered, with the JSON Schema of their config."""
    known = await parts(request).specs.known()
    return Json({"items": [{"name": name, "config_schema": known[name].config_schema} for name in sorted(known)]})


@router.get("/audit", operation_id="audit", responses=answers(200, schemas.Audit, "What is stuck, and a page.", 422))
async def audit(request: Request, query: Annotated[AuditQuery, Query()]) -> Response:
    """The executions that cannot make progress, why, and what to do; and who did what when."""
    here = parts(request)
    page = await here.queries.audit(execution_id=query.execution_id, cursor=query.cursor, limit=query.limit)
    found = await here.service.audit()
    stuck = [
        {
            "execution_id": each.execution_id,
            "workflow": each.workflow,
            "idle_seconds": each.idle_seconds,
            "nodes": told(each.reasons),
        }
        for each in found.stuck
    ]
    problems = [{name: each[name] for name in ("cause", "why", "do")} for each in told(found.problems)]
    return Json(
        {
            "problems": problems,
            "stuck": stuck,
            "stuck_count": found.stuck_count,
            "live_count": found.live_count,
            "items": [_shown(each) for each in page.items],
            "next_cursor": page.next_cursor,
        }
    )


def _shown(line: AuditLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "at": timestamp(line.at_ms),
        "actor": line.actor,
        "action": line.action,
        "execution_id": line.execution_id,
        "detail": line.detail,
    }
