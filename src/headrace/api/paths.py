"""What stands in paths and queries, as types: an id that cannot be one names nothing, so it is not found.

The stores never see text that they would choke on: no NUL, nothing overlong, no number beyond their columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request

from headrace.api.problems import Refused
from headrace.api.schemas import ExecutionStatus
from headrace.model.definition import NAME, NODE_ID

MOST_ITEMS = 1000
MAX_VERSION = 2**31 - 1

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile("[1-9][0-9]{0,9}")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Plain(APIRoute):
    """A route that takes the request as it is: half the cost, for those that are called most. Still documented."""

    def get_route_handler(self) -> Callable[..., Any]:
        return self.endpoint


def _fitting(pattern: re.Pattern[str], code: str) -> Callable[[str], str]:
    """What does not fit is not found: the document tells the pattern, and FastAPI must not answer 422 to it."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise Refused(code)
        return text

    return check


def _path(words: str, pattern: re.Pattern[str] | None = None) -> Any:
    schema = {"pattern": f"^{pattern.pattern}$"} if pattern else {"format": "uuid"}
    return Path(description=words, json_schema_extra=schema)


_execution_id = _fitting(UUID, "execution_not_found")
ExecutionId = Annotated[str, _path("The id of an execution."), AfterValidator(_execution_id)]
NodeId = Annotated[str, _path("The id of a node.", NODE_ID), AfterValidator(_fitting(NODE_ID, "node_not_found"))]
LetterId = Annotated[str, _path("The id of a dead letter."), AfterValidator(_fitting(UUID, "dead_letter_not_found"))]
WorkflowName = Annotated[
    str, _path("The name of a workflow.", NAME), AfterValidator(_fitting(NAME, "workflow_not_found"))
]
VersionNumber = Annotated[
    str, _path("A version, from 1.", _NUMBER), AfterValidator(_fitting(_NUMBER, "workflow_not_found"))
]


def execution_id(request: Request) -> str:
    return _execution_id(request.path_params["execution_id"])


def _written(time: Any) -> Any:
    """Pydantic would take a number for seconds since 1970."""
    if not isinstance(time, str) or not _DATE.match(time):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return time


Time = Annotated[datetime, BeforeValidator(_written)]
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Id = Annotated[str, Field(pattern=f"^{UUID.pattern}$")]
Absent = SkipJsonSchema[None]  # no query says null


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")  # a filter with a typing error must not look like one that was heard


class Paged(_Query):
    limit: int = Field(50, ge=1, le=MOST_ITEMS, description="How many items, at most.")
    cursor: str = Field("", pattern=f"^({NAME.pattern})?$", description="The next_cursor of the page before this one.")


class _PagedById(Paged):
    cursor: str = Field("", pattern=f"^({UUID.pattern})?$", description="The next_cursor of the page before this one.")


class ExecutionQuery(_PagedById):
    status: ExecutionStatus | Absent = Field(None, description="Only those in this state.")
    workflow: Name | Absent = Field(None, description="Only those of this workflow.")
    since: Time | Absent = Field(None, description="Only those that were made at this time or later.")
    until: Time | Absent = Field(None, description="Only those that were made before this time.")
    q: str = Field(
        "", max_length=200, pattern=r"^[^\x00]*$", description="Only those with this in id, workflow or error."
    )


class LetterQuery(_PagedById):
    status: Literal["OPEN", "RETRIED", "DROPPED", "ALL"] = Field(
        "OPEN", description="OPEN, RETRIED or DROPPED ones, or ALL."
    )
    workflow: Name | Absent = Field(None, description="Only those of this workflow.")


class AuditQuery(_PagedById):
    execution_id: Id | Absent = Field(None, description="What was done to this one.")


class AttemptQuery(Paged):
    cursor: str = Field(
        "",
        pattern=f"^([0-9]{{1,15}}(-[0-9]{{1,9}}){{2}}-{NODE_ID.pattern})?$",
        description="The next_cursor of the page before this one.",
    )


class VersionQuery(Paged):
    cursor: str = Field("", pattern="^([1-9][0-9]{0,8})?$", description="The next_cursor of the page before this one.")


def in_ms(time: datetime | None) -> int | None:
    """A time without a zone is UTC."""
    if time is None:
        return None
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int((known - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
