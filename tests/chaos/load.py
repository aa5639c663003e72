"""The load: clients that submit random DAGs over HTTP and do what a client should: they repeat what was not answered.

Some use submit and trigger, most submit and trigger in one call with an Idempotency-Key. Some executions are cancelled,
some of those retried; failed ones are retried, triggered again, or their dead letters requeued. What was accepted, and
what was asked of it with which answer, is written to accepted.jsonl. All but the timing follows from the seed.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.chaos import dags

AGAIN_AFTER_SECONDS = 0.2
LOOK_EVERY_SECONDS = 0.25


@dataclass
class Accepted:
    """An execution whose start was answered with 2xx (or with 409 where the answer before had been lost)."""

    at: float
    execution_id: str
    definition: dict[str, Any]
    input_params: dict[str, Any]
    idempotency_key: str | None
    actions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Order:
    """One execution as the seed wants it."""

    number: int
    definition: dict[str, Any]
    with_key: bool
    cancel_after: float | None
    retry_by: str


def orders(seed: int) -> Iterator[Order]:
    rng = random.Random(f"load {seed}")
    number = 0
    while True:
        number += 1
        yield Order(
            number,
            dags.definition(rng, number),
            with_key=rng.random() < 0.8,
            cancel_after=rng.uniform(0.0, 1.5) if rng.random() < 0.08 else None,
            retry_by=rng.choice(("retry", "trigger", "letter", "letters", "none")),
        )


class Load:
    """Keeps about `together` executions under way, until told to stop; then sees to its own until the end."""

    def __init__(self, url: str, seed: int, running: Callable[[], Awaitable[set[str]]], *, together: int) -> None:
        """`running` gives the executions that have not ended, and raises OSError while nobody knows."""
        self.accepted: list[Accepted] = []
        self.complaints: list[str] = []  # answers that nobody should ever get
        self.repeated = 0  # requests that were not answered, or with "not now"
        self._orders = orders(seed)
        self._running = running
        self._waiting: dict[str, tuple[float, asyncio.Event]] = {}
        self._together = together
        self._client = httpx2.AsyncClient(base_url=url, timeout=20.0, limits=httpx2.Limits(max_connections=together))

    async def ready(self) -> None:
        """Until the service knows the handlers."""
        probe = dags.definition(random.Random(0), 0)
        while (await self._call("POST", "/v1/validate", json=probe)).status_code != 200:
            await asyncio.sleep(AGAIN_AFTER_SECONDS)

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look_for_ends())
            clients = [group.create_task(self._be_a_client(stop)) for _ in range(self._together)]
            await asyncio.wait(clients)
            looking.cancel()

    async def aclose(self) -> None:
        await self._client.aclose()

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in self.accepted)

    async def _be_a_client(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            order = next(self._orders)
            one = await self._start(order)
            self.accepted.append(one)
            if order.cancel_after is not None:
                await asyncio.sleep(order.cancel_after)
                await self._act(one, "cancel", "POST", f"/v1/executions/{one.execution_id}/cancel")
            status = await self._ended(one)
            if status != "COMPLETED" and order.retry_by != "none":
                await self._again(one, order.retry_by)
                await self._ended(one)

    async def _start(self, order: Order) -> Accepted:
        inputs = {"n": order.number}
        if order.with_key:
            key = f"k{order.number}"
            body = {"definition": order.definition, "input_params": inputs}
            answer = await self._call("POST", "/v1/executions", json=body, headers={"Idempotency-Key": key})
            assert answer.status_code == 202, answer.text
            return Accepted(time.time(), answer.json()["execution_id"], order.definition, inputs, key)
        answer = await self._call("POST", "/v1/workflow", json=order.definition)
        assert answer.status_code == 201, answer.text
        execution_id = answer.json()["execution_id"]
        answer = await self._call("POST", f"/v1/workflow/trigger/{execution_id}", json={"input_params": inputs})
        assert answer.status_code in (202, 409, 422), answer.text  # repeated: it runs, or has failed already
        return Accepted(time.time(), execution_id, order.definition, inputs, None)

    async def _again(self, one: Accepted, how: str) -> None:
        base = f"/v1/executions/{one.execution_id}"
        if how == "retry":
            await self._act(one, how, "POST", f"{base}/retry")
        elif how == "trigger":
            await self._act(one, how, "POST", f"/v1/workflow/trigger/{one.execution_id}")
        elif (letter := await self._letter(one)) is None:
            await self._act(one, "retry", "POST", f"{base}/retry")
        elif how == "letter":
            await self._act(one, how, "POST", f"/v1/dlq/{letter}/retry")
        else:
            await self._act(one, how, "POST", "/v1/dlq/retry", json={"ids": [letter]})

    async def _letter(self, one: Accepted) -> str | None:
        """The open dead letter of an execution, if there is one."""
        page = await self._call("GET", "/v1/dlq", params={"workflow": one.definition["name"]})
        return next((str(each["id"]) for each in page.json()["items"]), None)

    async def _act(self, one: Accepted, action: str, method: str, path: str, **request: Any) -> None:
        answer = await self._call(method, path, **request)
        told = {"at": time.time(), "action": action, "status_code": answer.status_code, "answer": answer.json()}
        one.actions.append(told)

    async def _ended(self, one: Accepted) -> str:
        over = asyncio.Event()
        self._waiting[one.execution_id] = (time.monotonic(), over)
        await over.wait()
        answer = await self._call("GET", f"/v1/executions/{one.execution_id}")
        return str(answer.json()["status"])

    async def _look_for_ends(self) -> None:
        """For all clients at once: each asking by itself would be most of the load."""
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            now = time.monotonic()
            try:
                running = await self._running()
            except OSError:
                continue
            over = [one for one, (since, _) in self._waiting.items() if since < now and one not in running]
            for one in over:
                self._waiting.pop(one)[1].set()

    async def _call(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """An answer that did not come is asked for again, and so is one that says "not now"."""
        while True:
            try:
                response = await self._client.request(method, path, **request)
            except (httpx2.TransportError, AttributeError):  # the latter by anyio: ended while connecting
                response = None
            if response is not None and _is_early(response):
                response = None
            if response is not None and response.status_code < 500:
                return response
            if response is not None and response.status_code != 503:
                self.complaints.append(
                    f"{method} {path} was answered with {response.status_code}: {response.text[:300]}"
                )
            self.repeated += 1
            await asyncio.sleep(AGAIN_AFTER_SECONDS)


def _is_early(response: httpx2.Response) -> bool:
    """The store was lost before SQL knew of any handler: workers offer them again every few seconds."""
    return response.status_code == 422 and '"unknown_handler"' in response.text
