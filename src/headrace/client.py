"""The REST API from Python, asynchronously: one method per call, and answers that are typed.

    async with Client("http://127.0.0.1:8080", api_key) as client:
        started = await client.start(workflow="city-report", input_params={"city": "Oslo"})
        async for event in client.events(started["execution_id"]):
            print(event.kind, event.data)

An answer is the JSON document that the server sent (rest/answers.py has the types). Every method raises ProblemError
where the server refuses, and ServerUnreachable where there is none. Calls that are safe to repeat are repeated after a
broken connection; `start` is one of them, by its idempotency key.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from headrace.rest.answers import (
    Audit,
    Cancelled,
    DeadLetter,
    DeadLetterDetail,
    Execution,
    ExecutionSummary,
    Handler,
    Items,
    Newest,
    NodeAttempt,
    NodeDetail,
    Page,
    Queue,
    Retried,
    Submitted,
    Triggered,
    Validation,
    Version,
    Why,
    Worker,
    Workflow,
)
from headrace.rest.wire import Json, ProblemError, ServerEvent, ServerUnreachable, Wire, segment

__all__ = ["DEFAULT_SERVER", "Client", "ProblemError", "ServerEvent", "ServerUnreachable"]

DEFAULT_SERVER: Final = "http://127.0.0.1:8080"


class Client:
    """Any number of tasks may use it at the same time, on one event loop."""

    def __init__(
        self, server: str = DEFAULT_SERVER, api_key: str | None = None, *, timeout_seconds: float = 30.0
    ) -> None:
        """`timeout_seconds` bounds connecting and each wait for data. ValueError: `server` is no address of one."""
        self._wire = Wire(server, api_key, timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._wire.aclose()

    # ---- starting executions

    async def submit(self, definition: Json) -> Submitted:
        """Store a definition and make an execution of it, which is PENDING until `trigger`."""
        return await self._wire.post("workflow", Submitted, definition)

    async def trigger(self, execution_id: str, input_params: Json | None = None) -> Triggered:
        body = {} if input_params is None else {"input_params": input_params}
        return await self._wire.post(f"workflow/trigger/{segment(execution_id)}", Triggered, body)

    async def start(
        self,
        *,
        workflow: str | None = None,
        version: int | None = None,
        definition: Json | None = None,
        input_params: Json | None = None,
        idempotency_key: str | None = None,
    ) -> Submitted:
        """Submit and trigger in one: a stored workflow (the newest version, unless one is given), or a definition.

        Where you give no key, the call makes one, so that repeating it after a lost answer starts nothing twice.
        """
        if (workflow is None) == (definition is None):
            raise TypeError("start takes either the name of a workflow or a definition")
        given = {"workflow": workflow, "version": version, "definition": definition, "input_params": input_params}
        body = {name: value for name, value in given.items() if value is not None}
        key = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return await self._wire.post("executions", Submitted, body, headers=key, is_safe=True)

    # ---- executions

    async def page(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ExecutionSummary]:
        """A page of the list, newest first. Times are RFC 3339; `q` is part of an id, a workflow's name or an error."""
        return await self._wire.get(
            "executions", Page[ExecutionSummary],
            status=status, workflow=workflow, since=since, until=until, q=q, limit=limit, cursor=cursor,
        )  # fmt: skip

    async def list(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
    ) -> AsyncIterator[ExecutionSummary]:
        """All of them, page after page."""
        cursor: str | None = None
        while True:
            page = await self.page(status=status, workflow=workflow, since=since, until=until, q=q, cursor=cursor)
            for each in page["items"]:
                yield each
            cursor = page.get("next_cursor")
            if not cursor:
                return

    async def get(self, execution_id: str) -> Execution:
        return await self._wire.get(f"executions/{segment(execution_id)}", Execution)

    async def node(self, execution_id: str, node: str) -> NodeDetail:
        """One node, with its resolved config, its output and its attempts."""
        return await self._wire.get(f"executions/{segment(execution_id)}/nodes/{segment(node)}", NodeDetail)

    async def attempts(
        self, execution_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[NodeAttempt]:
        """A page of the attempts of all its nodes, of all runs, in the order in which they were queued."""
        path = f"executions/{segment(execution_id)}/attempts"
        return await self._wire.get(path, Page[NodeAttempt], limit=limit, cursor=cursor)

    def events(self, execution_id: str, last_event_id: str = "") -> AsyncGenerator[ServerEvent, None]:
        """What happens in it: a snapshot, then each change, up to its end.

        A broken stream is taken up again where it ended; where the server cannot do that, another snapshot comes.
        """
        return self._wire.events(f"executions/{segment(execution_id)}/events", last_event_id)

    async def why(self, execution_id: str) -> Why:
        """Why each unfinished node is not running."""
        return await self._wire.get(f"executions/{segment(execution_id)}/why", Why)

    async def cancel(self, execution_id: str) -> Cancelled:
        return await self._wire.post(f"executions/{segment(execution_id)}/cancel", Cancelled)

    async def retry(self, execution_id: str, *, from_nodes: Iterable[str] = ()) -> Triggered:
        """The next run of a FAILED or CANCELLED execution. What is COMPLETED keeps its output.

        With `from_nodes`, these and all that comes after them run again, and the execution may be COMPLETED too.
        """
        body = {"from": nodes} if (nodes := [*from_nodes]) else None
        return await self._wire.post(f"executions/{segment(execution_id)}/retry", Triggered, body)

    # ---- dead letters

    async def dead_letters(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetter]:
        """The open ones, newest first; with `status` ALL, RETRIED or DROPPED others."""
        return await self._wire.get(
            "dlq", Page[DeadLetter], status=status, workflow=workflow, limit=limit, cursor=cursor
        )

    async def dead_letter(self, letter_id: str) -> DeadLetterDetail:
        return await self._wire.get(f"dlq/{segment(letter_id)}", DeadLetterDetail)

    async def retry_dead_letter(self, letter_id: str) -> Triggered:
        """Resume the execution that it came from."""
        return await self._wire.post(f"dlq/{segment(letter_id)}/retry", Triggered)

    async def retry_dead_letters(
        self, letter_ids: Iterable[str] | None = None, *, workflow: str | None = None
    ) -> Retried:
        """Many at once: these, those of a workflow, or all that are open. It is one retry per execution."""
        given = {"ids": None if letter_ids is None else [*letter_ids], "workflow": workflow}
        body = {name: value for name, value in given.items() if value is not None}
        return await self._wire.post("dlq/retry", Retried, body)

    async def drop_dead_letter(self, letter_id: str) -> None:
        await self._wire.delete(f"dlq/{segment(letter_id)}")

    # ---- workflows, and who runs them

    async def validate(self, definition: Json) -> Validation:
        """Check a definition, store and run nothing. What is wrong with it is in `errors` of a ProblemError."""
        return await self._wire.post("validate", Validation, definition, is_safe=True)

    async def workflows(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Workflow]:
        return await self._wire.get("workflows", Page[Workflow], limit=limit, cursor=cursor)

    async def workflow(self, name: str) -> Newest:
        """The newest version, and which others there are."""
        return await self._wire.get(f"workflows/{segment(name)}", Newest)

    async def version(self, name: str, version: int) -> Version:
        return await self._wire.get(f"workflows/{segment(name)}/versions/{version}", Version)

    async def workers(self) -> Sequence[Worker]:
        return (await self._wire.get("workers", Items[Worker]))["items"]

    async def queues(self) -> Sequence[Queue]:
        return (await self._wire.get("queues", Items[Queue]))["items"]

    async def handlers(self) -> Sequence[Handler]:
        return (await self._wire.get("handlers", Items[Handler]))["items"]

    async def audit(
        self, *, execution_id: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Audit:
        """Executions that cannot make progress; and who did what when, newest first."""
        return await self._wire.get("audit", Audit, execution_id=execution_id, limit=limit, cursor=cursor)
