"""Dead letters: tasks that failed for good, to be looked at, retried or dropped."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response

from headrace.api import openapi, schemas
from headrace.api.answers import Json
from headrace.api.bodies import read_letters
from headrace.api.openapi import answers
from headrace.api.parts import actor, parts, traceparent
from headrace.api.paths import LetterId, LetterQuery
from headrace.api.problems import Refused
from headrace.engine.view import timestamp
from headrace.errors import Conflict, ExecutionNotFound
from headrace.record.queries import DeadLetter

RETRIED_TOGETHER = 1000


class _Letter(StringConvertor):
    regex = "(?!retry$)[^/]+"  # POST .../retry is not about a letter of that name


register_url_convertor("letter", _Letter())
router = APIRouter(prefix="/v1/dlq", tags=["dead letters"], default_response_class=Json)


@router.get("", operation_id="list_dead_letters", responses=answers(200, schemas.Letters, "A page.", 422))
async def list_letters(request: Request, query: Annotated[LetterQuery, Query()]) -> Response:
    """The dead letters, newest first."""
    page = await parts(request).queries.dead_letters(
        status=None if query.status == "ALL" else query.status,
        workflow=query.workflow,
        cursor=query.cursor,
        limit=query.limit,
    )
    return Json({"items": [_shown(each) for each in page.items], "next_cursor": page.next_cursor})


@router.post(
    "/retry",
    operation_id="retry_dead_letters",
    status_code=202,
    responses=answers(202, schemas.Retried, "One retry per execution.", 404, body=True),
    openapi_extra=openapi.RETRY_LETTERS_BODY,
)
async def retry_letters(request: Request) -> Response:
    """Retry the executions of these letters, of those of a workflow, or of all that are open."""
    ids, workflow = await read_letters(request)
    if ids is None:
        page = await parts(request).queries.dead_letters(workflow=workflow, limit=RETRIED_TOGETHER)
        letters, more = page.items, page.next_cursor is not None
    else:
        letters, more = [await _letter(request, each) for each in ids], False
    retried, refused = [], []
    for execution_id in dict.fromkeys(letter.execution_id for letter in letters):
        try:
            run = await parts(request).service.retry(
                execution_id, actor=actor(request), traceparent=traceparent(request)
            )
            retried.append({"execution_id": execution_id, "status": "RUNNING", "run": run})
        except (Conflict, ExecutionNotFound) as error:
            refused.append({"execution_id": execution_id, "detail": str(error)})
    return Json({"retried": retried, "refused": refused, "more": more}, 202)


@router.get(
    "/{letter_id:letter}",
    operation_id="get_dead_letter",
    responses=answers(200, schemas.Letter, "The dead letter.", 404),
)
async def get_letter(request: Request, letter_id: LetterId) -> Response:
    """One dead letter, with the task as it was."""
    letter = await _letter(request, letter_id)
    task = await parts(request).service.node(letter.execution_id, letter.node)
    return Json(_shown(letter) | {"task": task})


@router.post(
    "/{letter_id}/retry",
    operation_id="retry_dead_letter",
    status_code=202,
    responses=answers(202, schemas.Triggered, "The next run of its execution.", 404, 409),
)
async def retry_letter(request: Request, letter_id: LetterId) -> Response:
    """Resume the execution that it came from."""
    letter = await _letter(request, letter_id)
    if letter.status != "OPEN":
        raise Conflict(f"this dead letter is {letter.status}, not OPEN")
    run = await parts(request).service.retry(
        letter.execution_id, actor=actor(request), traceparent=traceparent(request)
    )
    return Json({"execution_id": letter.execution_id, "status": "RUNNING", "run": run}, 202)


@router.delete(
    "/{letter_id:letter}",
    operation_id="drop_dead_letter",
    status_code=204,
    responses=answers(204, None, "It is dropped.", 404, 409),
)
async def drop_letter(request: Request, letter_id: LetterId) -> Response:
    """Set it aside for good; the execution stays as it is."""
    letter = await _letter(request, letter_id)
    if not await parts(request).letters.settle(letter_id, "DROPPED", actor(request)):
        raise Conflict(f"this dead letter is {letter.status}, not OPEN")
    return Response(status_code=204)


async def _letter(request: Request, letter_id: str) -> DeadLetter:
    letter = await parts(request).queries.dead_letter(letter_id)
    if letter is None:
        raise Refused("dead_letter_not_found", f"there is no dead letter {letter_id}")
    return letter


def _shown(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "execution_id": letter.execution_id,
        "run": letter.run,
        "node": letter.node,
        "attempt": letter.attempt,
        "workflow": letter.workflow,
        "cause": letter.cause,
        "error": msgspec.json.decode(letter.error),
        "status": letter.status,
        "created_at": timestamp(letter.created_ms),
    }
