"""Executions: start, list, read, follow, explain, cancel, retry.

Starting and reading one are the routes that are called most, so they take the request as it is.
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from headrace.api import openapi, paths, schemas
from headrace.api.answers import Changes, EventStream, Json
from headrace.api.bodies import read_retry, read_start
from headrace.api.listing import follow_list, shown_item
from headrace.api.openapi import answers, events
from headrace.api.parts import actor, parts, traceparent
from headrace.api.paths import AttemptQuery, ExecutionId, ExecutionQuery, NodeId, Plain
from headrace.record.queries import Filter

router = APIRouter(prefix="/v1", tags=["executions"], default_response_class=Json)
plain = APIRouter(prefix="/v1", tags=["executions"], default_response_class=Json, route_class=Plain)

_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key gives the same execution, for 24 hours; with another body it is refused.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_ID = openapi.path_parameter("execution_id", "The id of an execution.")


@plain.post(
    "/executions",
    operation_id="start_execution",
    status_code=202,
    responses=answers(202, schemas.Submitted, "It runs.", 404, body=True, headers=openapi.LOCATION | openapi.REPLAYED),
    openapi_extra={**openapi.START_BODY, "parameters": [_IDEMPOTENCY_KEY]},
)
async def start(request: Request) -> Response:
    """Start an execution of a known workflow, or of the definition that comes along."""
    wanted, idempotency = await read_start(request)
    service, who, span = parts(request).service, actor(request), traceparent(request)
    if wanted.definition is None:
        made = await service.start_named(
            wanted.workflow, wanted.version, wanted.input_params, actor=who, idempotency=idempotency, traceparent=span
        )
    else:
        made = await service.start(
            wanted.definition, wanted.input_params, actor=who, idempotency=idempotency, traceparent=span
        )
    return Json(
        {
            "workflow_definition_id": made.workflow_definition_id,
            "execution_id": made.execution_id,
            "name": made.name,
            "version": made.version,
            "status": "RUNNING",
            "run": made.run,
        },
        202,
        {"Location": f"/v1/executions/{made.execution_id}"} | ({} if made.is_new else {"Idempotent-Replayed": "true"}),
    )


@router.get("/executions", operation_id="list_executions", responses=answers(200, schemas.Executions, "A page.", 422))
async def list_executions(request: Request, query: Annotated[ExecutionQuery, Query()]) -> Response:
    """The executions, newest first."""
    page = await parts(request).queries.executions(_filter(query), cursor=query.cursor, limit=query.limit)
    return Json({"items": [shown_item(each) for each in page.items], "next_cursor": page.next_cursor})


@router.get(
    "/executions/events",
    operation_id="follow_executions",
    response_class=Response,
    responses=events("The page of the list, then what changes in it.", ["ListChange"], 422),
)
async def follow_executions(request: Request, query: Annotated[ExecutionQuery, Query()]) -> Response:
    """The live feed of the list: a snapshot of the page, then what is new, changed or gone, until the client leaves."""
    here = parts(request)
    changes = follow_list(here.service, here.queries, _filter(query), query.cursor, query.limit)
    return await EventStream.begin(changes, here.stop)


@plain.get(
    "/executions/{execution_id}",
    operation_id="get_execution",
    responses=answers(200, schemas.Execution, "The execution and its nodes.", 404),
    openapi_extra={"parameters": [_ID]},
)
async def get_execution(request: Request) -> Response:
    """One execution with the state of all its nodes."""
    return Json(await parts(request).service.read(paths.execution_id(request)))


@router.get(
    "/executions/{execution_id}/nodes/{node}",
    operation_id="get_node",
    responses=answers(200, schemas.NodeDetails, "The node.", 404),
)
async def get_node(request: Request, execution_id: ExecutionId, node: NodeId) -> Response:
    """One node with its resolved config, its output and its attempts."""
    return Json(await parts(request).service.node(execution_id, node))


@router.get(
    "/executions/{execution_id}/attempts",
    operation_id="list_attempts",
    responses=answers(200, schemas.Attempts, "A page.", 404, 422),
)
async def list_attempts(
    request: Request, execution_id: ExecutionId, query: Annotated[AttemptQuery, Query()]
) -> Response:
    """All attempts of all nodes and runs, in the order in which they were queued."""
    return Json(await parts(request).service.attempts(execution_id, cursor=query.cursor, limit=query.limit))


@router.get(
    "/executions/{execution_id}/events",
    operation_id="follow_execution",
    response_class=Response,
    responses=events("A snapshot, each change as it happens, and the end.", ["Execution", "Change"], 404),
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "The id of the last event that was seen: the stream goes on behind it.",
                "schema": {"type": "string"},
            }
        ]
    },
)
async def follow_execution(request: Request, execution_id: ExecutionId) -> Response:
    """Follow one execution to its end by server-sent events."""
    here = parts(request)
    changes = here.service.follow(execution_id, request.headers.get("last-event-id"))
    return await EventStream.begin(cast("Changes", changes), here.stop)


@router.get(
    "/executions/{execution_id}/why",
    operation_id="explain_execution",
    responses=answers(200, schemas.Why, "A reason for each node that is not done.", 404),
)
async def explain(request: Request, execution_id: ExecutionId) -> Response:
    """Why each unfinished node is not running."""
    return Json({"execution_id": execution_id, "nodes": await parts(request).service.why(execution_id)})


@router.post(
    "/executions/{execution_id}/cancel",
    operation_id="cancel_execution",
    status_code=202,
    responses=answers(202, schemas.Cancelled, "It will be cancelled in a moment.", 404, 409),
)
async def cancel(request: Request, execution_id: ExecutionId) -> Response:
    """Stop what runs, and start nothing more."""
    await parts(request).service.cancel(execution_id, actor=actor(request))
    return Json({"execution_id": execution_id, "cancel_requested": True}, 202)


@router.post(
    "/executions/{execution_id}/retry",
    operation_id="retry_execution",
    status_code=202,
    responses=answers(202, schemas.Triggered, "The next run.", 404, 409, body=True),
    openapi_extra=openapi.RETRY_BODY,
)
async def retry(request: Request, execution_id: ExecutionId) -> Response:
    """The next run of a FAILED or CANCELLED execution: what is COMPLETED keeps its output. With `from`, these nodes and
    all that comes after them run again, and the execution may be COMPLETED too."""
    run = await parts(request).service.retry(
        execution_id, actor=actor(request), from_nodes=await read_retry(request), traceparent=traceparent(request)
    )
    return Json({"execution_id": execution_id, "status": "RUNNING", "run": run}, 202)


def _filter(query: ExecutionQuery) -> Filter:
    return Filter(query.status, query.workflow, paths.in_ms(query.since), paths.in_ms(query.until), query.q)
