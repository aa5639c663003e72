"""What the tests of the API say to it again and again."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from headrace.engine.service import Service
from tests.roles import node, until

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass
class Client:
    http: httpx2.AsyncClient

    async def get(self, path: str, **kwargs: Any) -> Any:
        answer = await self.http.get(path, **kwargs)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, *, status: int = 202, **kwargs: Any) -> Any:
        answer = await self.http.post(path, json=body, **kwargs)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def start(self, definition: Any, **input_params: Any) -> str:
        made = await self.post("/v1/executions", {"definition": definition, "input_params": input_params})
        return str(made["execution_id"])

    async def ended(self, execution_id: str) -> Any:
        async def over() -> Any:
            found = await self.get(f"/v1/executions/{execution_id}")
            return found if found["status"] in ENDED else None

        return await until(over, f"the end of {execution_id}")

    async def handlers_known(self, *names: str) -> None:
        async def known() -> bool:
            found = await self.get("/v1/handlers")
            return {each["name"] for each in found["items"]} >= set(names)

        await until(known, "workers to offer their handlers")

    async def events(self, path: str, **headers: str) -> AsyncGenerator[tuple[str, str, Any], None]:
        """(id, kind, data) of each event, to the end of the stream."""
        async with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for event in frames(answer):
                yield event


@dataclass
class Api(Client):
    """Served by this process, so that a test may look behind it."""

    app: FastAPI
    service: Service


@dataclass
class Remote(Client):
    """Served by processes of their own, which other tests use too: `name` is for this test's workflows alone."""

    name: str
    answered: set[str] = field(default_factory=set)

    async def note(self, answer: httpx2.Response) -> None:
        if answer.status_code < 400:
            self.answered.add(f"{answer.request.method} {answer.request.url.path}")

    def has_answered(self, call: str) -> bool:
        """Whether a call of the table, such as "GET /v1/dlq/{letter_id}", was made with success."""
        pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(call)))
        return any(pattern.fullmatch(each) for each in self.answered)


async def frames(answer: httpx2.Response) -> AsyncGenerator[tuple[str, str, Any], None]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}


def problem(answer: httpx2.Response, status: int, code: str) -> Any:
    """The problem document of an answer, which must be one in every respect."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code), answer.text
    assert body["type"] == f"/docs#{code}" and body["title"] and body["detail"]
    assert all({"loc", "msg", "code"} <= each.keys() for each in body.get("errors", ()))
    return body


def one_note(ledger: Path, name: str = "one-note", **config: Any) -> dict[str, Any]:
    return {"name": name, "nodes": [node("a", config={"ledger": str(ledger), **config})]}


def greeting(name: str = "greeting", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "inputs": {"who": {"type": "string", "default": "world"}},
        "nodes": [
            {"id": "start", "handler": "input"},
            node("done", "start", handler="output", config={"text": "Hello {{ start.who }}"}),
        ],
        **fields,
    }
