"""What stands in paths and queries, as types: an id that cannot be one names nothing, so it is not found.

The stores never see text that they would choke on: no NUL, nothing overlong, no number beyond their columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request

from headrace.api.problems import Refused
from headrace.model.definition import NAME, NODE_ID

MOST_ITEMS = 1000
MAX_VERSION = 2**31 - 1

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile("[1-9][0-9]{0,9}")


class Plain(APIRoute):
    """A route that takes the request as it is: half the cost, for those that are called most. Still documented."""

    def get_route_handler(self) -> Callable[..., Any]:
        return self.endpoint


def _fitting(pattern: re.Pattern[str], code: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise Refused(code)
        return text

    return check


_execution_id = _fitting(UUID, "execution_not_found")
ExecutionId = Annotated[str, Path(description="The id of an execution."), AfterValidator(_execution_id)]
NodeId = Annotated[str, Path(description="The id of a node."), AfterValidator(_fitting(NODE_ID, "execution_not_found"))]
LetterId = Annotated[
    str, Path(description="The id of a dead letter."), AfterValidator(_fitting(UUID, "dead_letter_not_found"))
]
WorkflowName = Annotated[
    str, Path(description="The name of a workflow."), AfterValidator(_fitting(NAME, "workflow_not_found"))
]
VersionNumber = Annotated[
    str, Path(description="A version, from 1."), AfterValidator(_fitting(_NUMBER, "workflow_not_found"))
]


def execution_id(request: Request) -> str:
    return _execution_id(request.path_params["execution_id"])


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")  # a filter with a typing error must not look like one that was heard


class Paged(_Query):
    limit: int = Field(50, ge=1, le=MOST_ITEMS, description="How many items, at most.")
    cursor: str = Field(
        "", pattern="^([a-z0-9][a-z0-9_-]{0,63})?$", description="The next_cursor of the page before this one."
    )


class ExecutionQuery(Paged):
    cursor: str = Field("", pattern=f"^({UUID.pattern})?$", description="The next_cursor of the page before.")
    status: str | None = Field(
        None, pattern="^(PENDING|RUNNING|COMPLETED|FAILED|CANCELLED)$", description="Only those in this state."
    )
    workflow: str | None = Field(None, pattern=f"^{NAME.pattern}$", description="Only those of this workflow.")
    since: datetime | None = Field(None, description="Only those that were made at this time or later.")
    until: datetime | None = Field(None, description="Only those that were made before this time.")
    q: str = Field(
        "", max_length=200, pattern=r"^[^\x00]*$", description="Only those with this in id, workflow or error."
    )


class LetterQuery(Paged):
    cursor: str = Field("", pattern=f"^({UUID.pattern})?$", description="The next_cursor of the page before.")
    status: str = Field(
        "OPEN", pattern="^(OPEN|RETRIED|DROPPED|ALL)$", description="OPEN, RETRIED or DROPPED ones, or ALL."
    )
    workflow: str | None = Field(None, pattern=f"^{NAME.pattern}$", description="Only those of this workflow.")


class AuditQuery(Paged):
    cursor: str = Field("", pattern=f"^({UUID.pattern})?$", description="The next_cursor of the page before.")
    execution_id: str | None = Field(None, pattern=f"^{UUID.pattern}$", description="What was done to this one.")


class VersionQuery(Paged):
    cursor: str = Field("", pattern="^([1-9][0-9]{0,8})?$", description="The next_cursor of the page before.")


def in_ms(time: datetime | None) -> int | None:
    """A time without a zone is UTC."""
    if time is None:
        return None
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int((known - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
