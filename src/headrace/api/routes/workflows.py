"""Definitions: submit one, trigger what was submitted, validate, list, read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from headrace.api import openapi, schemas
from headrace.api.answers import Json
from headrace.api.bodies import read_definition, read_fields
from headrace.api.openapi import answers
from headrace.api.parts import actor, parts, traceparent
from headrace.api.paths import (
    MAX_VERSION,
    ExecutionId,
    Paged,
    VersionNumber,
    VersionQuery,
    WorkflowName,
)
from headrace.engine.view import timestamp
from headrace.errors import InvalidInput, Problem, WorkflowNotFound
from headrace.record.queries import Version

router = APIRouter(prefix="/v1", tags=["workflows"], default_response_class=Json)


@router.post(
    "/workflow",
    operation_id="submit_workflow",
    status_code=201,
    responses=answers(
        201, schemas.Submitted, "Stored; nothing runs before the trigger.", body=True, headers=openapi.LOCATION
    ),
    openapi_extra=openapi.definition_body(),
)
async def submit(request: Request) -> Response:
    """Store a definition and make an execution of it that waits for its trigger."""
    definition = await read_definition(request)
    made = await parts(request).service.submit(definition, actor=actor(request), traceparent=traceparent(request))
    return Json(
        {
            "workflow_definition_id": made.workflow_definition_id,
            "execution_id": made.execution_id,
            "name": made.name,
            "version": made.version,
            "status": "PENDING",
            "run": made.run,
        },
        201,
        {"Location": f"/v1/executions/{made.execution_id}"},
    )


@router.post(
    "/workflow/trigger/{execution_id}",
    operation_id="trigger_execution",
    status_code=202,
    responses=answers(202, schemas.Triggered, "It runs.", 404, 409, body=True),
    openapi_extra=openapi.TRIGGER_BODY,
)
async def trigger(request: Request, execution_id: ExecutionId) -> Response:
    """Start what was submitted. Of a FAILED execution it starts the next run, which takes no new input."""
    fields = await read_fields(request, "input_params")
    input_params = fields.get("input_params")
    if input_params is not None and not isinstance(input_params, dict):
        raise InvalidInput([Problem("wrong_type", "input_params must be a mapping", ("input_params",))])
    run = await parts(request).service.trigger(
        execution_id, input_params, actor=actor(request), traceparent=traceparent(request)
    )
    return Json({"execution_id": execution_id, "status": "RUNNING", "run": run}, 202)


@router.post(
    "/validate",
    operation_id="validate_definition",
    responses=answers(200, schemas.Valid, "The definition is fine.", body=True),
    openapi_extra=openapi.definition_body(),
)
async def validate(request: Request) -> Response:
    """Check a definition as submitting it would, and store nothing."""
    definition = await read_definition(request)
    return Json({"valid": True, "name": definition.name, "nodes": len(definition.nodes)})


@router.get("/workflows", operation_id="list_workflows", responses=answers(200, schemas.Workflows, "A page.", 422))
async def list_workflows(request: Request, query: Annotated[Paged, Query()]) -> Response:
    """The workflows by name, each with its newest version."""
    page = await parts(request).queries.workflows(cursor=query.cursor, limit=query.limit)
    return Json({"items": [_item(each) for each in page.items], "next_cursor": page.next_cursor})


@router.get(
    "/workflows/{name}",
    operation_id="get_workflow",
    responses=answers(200, schemas.Workflow, "The newest version, and the list of all.", 404, 422),
)
async def get_workflow(request: Request, name: WorkflowName, query: Annotated[VersionQuery, Query()]) -> Response:
    """The newest definition of this name, and which versions there are."""
    here = parts(request)
    page = await here.queries.versions(name, cursor=query.cursor, limit=query.limit)
    text = await here.readings.definition(name, None)
    if text is None:
        raise WorkflowNotFound(f"there is no workflow {name}")
    newest = page.items[0].version if page.items and not query.cursor else await _newest(request, name)
    return Json(
        {
            "name": name,
            "version": newest,
            "definition": msgspec.Raw(text.encode()),
            "versions": [_item(each) for each in page.items],
            "next_cursor": page.next_cursor,
        }
    )


@router.get(
    "/workflows/{name}/versions/{version}",
    operation_id="get_workflow_version",
    responses=answers(200, schemas.WorkflowVersion, "This version.", 404),
)
async def get_version(request: Request, name: WorkflowName, version: VersionNumber) -> Response:
    """One version of a definition."""
    number = int(version)
    text = await parts(request).readings.definition(name, number) if number <= MAX_VERSION else None
    if text is None:
        raise WorkflowNotFound(f"there is no workflow {name}, version {version}")
    return Json({"name": name, "version": number, "definition": msgspec.Raw(text.encode())})


async def _newest(request: Request, name: str) -> int:
    page = await parts(request).queries.versions(name, limit=1)
    return page.items[0].version


def _item(version: Version) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "workflow_definition_id": version.id,
        "created_at": timestamp(version.created_ms),
    }
