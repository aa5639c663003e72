"""Following an execution on a server to its end: `headrace executions watch`, and the second half of `run --server`."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing

from headrace.cli.output import complain, print_json
from headrace.cli.replay import Replay
from headrace.cli.views import View, fitting
from headrace.cli.words import printable
from headrace.client import Client, ProblemError
from headrace.rest.answers import Execution


class Watch:
    """The view opens with the first snapshot, for it tells which nodes there are."""

    def __init__(self, client: Client, execution_id: str, *, quiet: bool) -> None:
        self._client = client
        self._execution_id = execution_id
        self._quiet = quiet
        self._view: View | None = None

    async def to_the_end(self) -> Execution:
        replay: Replay | None = None
        async with AsyncExitStack() as stack:
            events = await stack.enter_async_context(aclosing(self._client.events(self._execution_id)))
            async for event in events:
                if replay is None or self._view is None:
                    replay = Replay(event.data)
                    self._view = await stack.enter_async_context(fitting(replay.definition, quiet=self._quiet))
                for each in replay.events(event.data):
                    self._view.show(each)
        return await self._client.get(self._execution_id)

    async def cancel(self) -> None:
        if self._view is not None:
            self._view.interrupted()
        try:
            await self._client.cancel(self._execution_id)
        except ProblemError as error:
            if error.status != 409:  # it has ended already
                raise


async def watch(client: Client, execution_id: str, *, json_output: bool) -> int:
    ended = await Watch(client, execution_id, quiet=json_output).to_the_end()
    if json_output:
        print_json(ended)
    else:
        tell_what_next(ended)
    return exit_code(ended)


def tell_what_next(ended: Execution) -> None:
    if ended["status"] != "COMPLETED":
        name = printable(ended["execution_id"])
        complain(
            f"To look closer:  headrace executions show {name}", f"To resume it:    headrace executions retry {name}"
        )


def exit_code(ended: Execution) -> int:
    return 0 if ended["status"] == "COMPLETED" else 1
