"""Every error that a client can get, as RFC 9457 problem+json.

One table has all kinds: status, title, and what to do. The page at /docs shows the same table, and the `type` of a
problem points there. What went wrong inside is logged and never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.errors import HeadraceError, InvalidDefinition, InvalidInput, InvalidRequest, Problem
from headrace.model.payload import shown

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 2
MAX_ERRORS: Final = 100

log = structlog.get_logger(__name__)


class Kind(NamedTuple):
    status: int
    title: str
    advice: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed_request": Kind(400, "This is not an HTTP request", "Send HTTP/1.1, by way of an HTTP library."),
    "malformed_body": Kind(400, "The body cannot be read", "Send well-formed JSON, or YAML as application/yaml."),
    "unauthorized": Kind(401, "A valid API key is needed", "Send Authorization: Bearer <key>, or X-API-Key: <key>."),
    "forbidden": Kind(403, "Not allowed", "Use a key with the scope that detail names, from an allowed origin."),
    "not_found": Kind(404, "There is nothing here", "Look at /docs for what there is."),
    "execution_not_found": Kind(404, "There is no such execution", "Check the id."),
    "node_not_found": Kind(404, "The execution has no such node", "Read the execution: it has the ids of its nodes."),
    "workflow_not_found": Kind(404, "There is no such workflow", "Check name and version, or submit it first."),
    "dead_letter_not_found": Kind(404, "There is no such dead letter", "It may have been retried or dropped."),
    "method_not_allowed": Kind(405, "This path does not take this method", "The Allow header has those that it takes."),
    "body_too_slow": Kind(408, "The body did not arrive in time", "Send it again, faster or in smaller parts."),
    "conflict": Kind(409, "The state of the execution does not allow this", "Read the execution first."),
    "too_large": Kind(413, "The body is too large", "Send less; the operator may raise the limit."),
    "invalid_request": Kind(422, "The request has problems", "Each of them is in errors."),
    "invalid_definition": Kind(422, "The definition has problems", "Each of them is in errors."),
    "invalid_input": Kind(422, "input_params do not fit the workflow's inputs", "Each problem is in errors."),
    "bad_value": Kind(422, "A value cannot be stored", "The detail says which, and why."),
    "idempotency_key_reused": Kind(
        422, "The Idempotency-Key belongs to another request", "Use a new key for a new request."
    ),
    "rate_limited": Kind(429, "Too many requests", "Wait for as many seconds as Retry-After says."),
    "internal_error": Kind(500, "Something is wrong with the server", "Tell the operator: the log has the details."),
    "store_unavailable": Kind(503, "Valkey is away", "Try again after as many seconds as Retry-After says."),
    "store_full": Kind(503, "Valkey is short of memory", "Try again after as many seconds as Retry-After says."),
    "record_unavailable": Kind(503, "The SQL store is away", "Try again after as many seconds as Retry-After says."),
}

_BY_STATUS: Final = {404: "not_found", 405: "method_not_allowed"}


class Refused(Exception):
    """An answer that is a problem, raised from wherever that is known."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        problems: Iterable[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.problems, self.headers = code, detail, tuple(problems), headers


def answer(
    code: str, detail: str = "", *, problems: Sequence[Problem] = (), headers: Mapping[str, str] | None = None
) -> Response:
    kind = KINDS[code]
    body: dict[str, Any] = {
        "type": f"/docs#{code}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail or kind.advice,
        "code": code,
    }
    if problems:
        body["errors"] = [_error(problem) for problem in problems]
    retry = {"Retry-After": str(RETRY_AFTER_SECONDS)} if kind.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(msgspec.json.encode(body), kind.status, {**retry, **(headers or {})}, MEDIA_TYPE)


def answer_error(error: BaseException) -> Response:
    """The answer to anything that was raised while a request was handled."""
    if isinstance(error, Refused):
        return answer(error.code, error.detail, problems=error.problems, headers=error.headers)
    if isinstance(error, InvalidDefinition | InvalidInput | InvalidRequest):
        return answer(error.code, counted(error.problems), problems=error.problems)
    if isinstance(error, HeadraceError) and error.code in KINDS:
        if KINDS[error.code].status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return answer(error.code, shown(str(error), 500))
        log.warning("a store is away", error=str(error))
        return answer(error.code)
    if isinstance(error, RequestValidationError):
        found = [_of_fastapi(each) for each in error.errors()[:MAX_ERRORS]]
        return answer("invalid_request", counted(found), problems=found)
    if isinstance(error, HTTPException) and error.status_code in _BY_STATUS:
        return answer(_BY_STATUS[error.status_code], headers=error.headers)
    log.error("a request failed", exc_info=error)
    return answer("internal_error")


def answers_problems(app: FastAPI, routes: Sequence[Route]) -> None:
    """Expected errors are answered inside; what is left over is answered by the outermost layer."""

    def on_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            error.headers = {"Allow": ", ".join(_methods(routes, request.scope["path"]))}
        return answer_error(error)

    for kind in (HTTPException, RequestValidationError, Refused, HeadraceError):
        app.add_exception_handler(kind, on_error)


def _methods(routes: Sequence[Route], path: str) -> list[str]:
    """All that the path takes: Starlette names those of the first route that fits."""
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods or ()})


def counted(problems: Sequence[Problem]) -> str:
    first = shown(str(problems[0]), 500) if problems else ""
    return first if len(problems) < 2 else f"{first} (and {len(problems) - 1:,} more: see errors)"


def _error(problem: Problem) -> dict[str, Any]:
    """Where and what, with node and line where they are known. Text from outside is made printable first."""
    told: dict[str, Any] = {
        "loc": [shown(step) if isinstance(step, str) else step for step in problem.loc],
        "msg": problem.message,
        "code": problem.code,
    }
    extra = {"node": problem.node and shown(problem.node), "line": problem.line, "column": problem.column}
    return told | {name: value for name, value in extra.items() if value is not None}


def _of_fastapi(error: Mapping[str, Any]) -> Problem:
    return Problem(str(error["type"]), shown(str(error["msg"]), 300), tuple(error["loc"]))
