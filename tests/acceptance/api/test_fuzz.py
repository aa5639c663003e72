"""Schemathesis over the whole OpenAPI document: no answer is a 5xx, and every answer is as the document says.

Each operation gets the cases that follow from its schema, cases that Hypothesis draws from it, and what a schema cannot
know: ids of things that exist, and bodies that are right but for an edit or two. In CI the cases are the same each
time; `make fuzz` draws others, as many as it is told.
"""

from __future__ import annotations

import asyncio
import copy
import http.client
import os
import pickle
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation.meta import CaseMetadata
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks

from tests.acceptance.api.client import Api, greeting, one_note
from tests.acceptance.api.conftest import Served
from tests.acceptance.api.test_openapi import OPERATIONS
from tests.acceptance.api.test_rows import NOBODY, broken
from tests.roles import node

# How many requests each operation gets in CI, at the least.
CASES = {
    "submit_workflow": 1100, "validate_definition": 1100, "start_execution": 1200, "trigger_execution": 700,
    "retry_dead_letters": 600, "follow_executions": 300, "list_executions": 800, "list_dead_letters": 500,
    "audit": 500, "list_workflows": 400, "get_workflow": 400, "get_workflow_version": 300, "get_execution": 300,
    "get_node": 400, "list_attempts": 300, "follow_execution": 300, "explain_execution": 200, "cancel_execution": 200,
    "retry_execution": 400, "get_dead_letter": 200, "retry_dead_letter": 200, "drop_dead_letter": 200,
    "list_workers": 50, "list_queues": 50, "list_handlers": 50, "metrics": 50, "healthz": 5, "readyz": 5,
}  # fmt: skip
DRAWN = 0.1  # of what the schema alone does not give; to draw is slow, to edit is quick
WITH_KEYS = ("list_workers", "list_queues", "list_handlers", "metrics")  # elsewhere a bad key would hide all else
LARGE = greeting(
    "large",
    on_failure="continue",
    timeout_seconds=60.5,
    nodes=[
        {"id": "start", "handler": "input", "description": "begin"},
        node("text", "start", handler="llm_service", config={"model": "echo", "prompt": "{{ start.who }}"}),
        node("call", handler="call_external_service", config={"url": "http://127.0.0.1:1/", "method": "GET"}),
        node("done", "text", handler="output", retry_config={"max_retries": 2, "initial_delay": 0.5, "jitter": True}),
    ],
)
BODIES: dict[str, list[Any]] = {
    "submit_workflow": [greeting(), LARGE],
    "validate_definition": [greeting(), LARGE],
    "start_execution": [
        {"workflow": "greeting", "version": 1, "input_params": {"who": "Ada"}},
        {"definition": greeting(), "input_params": {"who": "Ada"}},
    ],
    "trigger_execution": [{"input_params": {"who": "Ada"}}, {}],
    "retry_execution": [{"from": ["a"]}, {"from": ["a", "b"]}, {}],
    "retry_dead_letters": [{"ids": [NOBODY]}, {"workflow": "greeting"}, {}],
}
QUERY = {
    "limit": 3, "cursor": "", "status": "FAILED", "workflow": "greeting", "since": "2026-01-31T12:00:00Z",
    "until": "2126-01-31T12:00:00.5+02:00", "q": "greet", "execution_id": NOBODY,
}  # fmt: skip
HEADERS = {
    "Idempotency-Key": ["a", "b", "", "ä", "x" * 255, "x" * 256],
    "Last-Event-ID": ["", ".0", "x.1", "x.1-FAILED", "ä", "x" * 1000],
}
ODD: list[Any] = [
    None, True, 0, -1, 0.5, 1e308, 2**31, 2**63, 2**64, "", " ", "a", "A", "x" * 300, "\x00", "\u202e", "\ufeff", "💥",
    "\r\n", "../..", "{{ start.who }}", "{{ x", "{{ [0] * 10**9 }}", "{% for a in b %}", "{{ secret.X }}", "note",
    [], [[]], [None], {}, {"": None}, {"$ref": "#"}, {"type": "nonsense"}, {"pattern": "(a+)+$"}, {"\x00": 0}, NOBODY,
]  # fmt: skip
ODD_SCALARS = [each for each in ODD if not isinstance(each, list | dict)]
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    checks.allow_header_conformance,
]
IDLE_SECONDS = 1.0
KINDS = ("postgresql", "sqlite")
TIMES = int(os.environ.get("FUZZ_CASES", sum(CASES.values()))) / sum(CASES.values())
SEED = int(os.environ.get("FUZZ_SEED", "0"))

Known = Mapping[str, list[str]]


def test_there_are_enough_cases() -> None:
    assert CASES.keys() == set(OPERATIONS.values())
    assert sum(CASES.values()) >= 10_000


@pytest.mark.parametrize(
    ("operation_id", "kind"), [(name, KINDS[(number + SEED) % 2]) for number, name in enumerate(CASES)]
)
async def test_every_answer_is_as_the_document_says(
    served: Served, operation_id: str, ledger: Path, tmp_path: Path
) -> None:
    wanted = round(CASES[operation_id] * TIMES)
    async with served(ORCHESTRATOR_ARCHIVE_INTERVAL=0.3, ORCHESTRATOR_RECONCILE_INTERVAL=10) as api:
        known = await _known(api, ledger, tmp_path / "gate")
        schema = schemathesis.openapi.from_dict(await api.get("/openapi.json"))
        schema.config.generation.with_security_parameters = operation_id in WITH_KEYS
        with closing(Sender(api, known)) as sender:
            await asyncio.to_thread(_fuzz, schema.find_operation_by_id(operation_id), wanted, sender)
        (tmp_path / "gate").touch()
    print(f"{operation_id}: {sender.answers.total()} requests, {dict(sorted(sender.answers.items()))}, seed {SEED}")
    assert sender.answers.total() >= wanted


def _fuzz(operation: APIOperation, wanted: int, send: Sender) -> None:
    config = operation.schema.config.generation
    cases = operation.schema.iter_coverage_cases(
        operation, generation_modes=list(GenerationMode), generation_config=config
    )
    send(first := next(cases))
    for case in cases:
        send(case)
    left = wanted - send.answers.total()
    if operation.path_parameters or operation.query or operation.body:
        meta = pickle.dumps(first.meta)  # to copy it this way costs a tenth of a deep copy
        for number in range(round(left * (1 - DRAWN))):
            send(_edited(operation, pickle.loads(meta), send.known, random.Random(f"{SEED} {number}")))
        left = round(left * DRAWN)
    for mode in GenerationMode if left > 0 else ():
        _draw(operation.as_strategy(generation_mode=mode), left // 2 + 1, send)


def _draw(cases: st.SearchStrategy[Case], wanted: int, send: Sender) -> None:
    @seed(SEED)
    @settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # an answer depends on all that came before: there is nothing to shrink
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def each(case: Case) -> None:
        send(case)

    each()


def _edited(operation: APIOperation, meta: CaseMetadata, known: Known, choose: random.Random) -> Case:
    """A case with ids that there are, and a query and a body that are right but for a few edits."""
    case = operation.Case(_meta=meta)  # what changes from here on is judged by the schema anew
    case.path_parameters = {each.name: choose.choice(known[each.name]) for each in operation.path_parameters}
    for each in operation.headers:
        if choose.random() < 0.3:
            case.headers[each.name] = choose.choice(HEADERS[each.name])
    for each in operation.query:
        if choose.random() < 0.5:
            case.query[each.name] = QUERY[each.name] if choose.random() < 0.7 else choose.choice(ODD_SCALARS)
    if bodies := BODIES.get(operation.definition.raw["operationId"]):
        case.media_type = choose.choice(operation.get_request_payload_content_types())
        case.body = _changed(choose.choice(bodies), choose)
    return case


def _changed(document: Any, choose: random.Random) -> Any:
    """After a few edits, each at some place: something odd instead of what is there, or beside it, or nothing."""
    whole = {"": copy.deepcopy(document)}
    for _ in range(choose.randint(0, 3)):
        place, key = whole, ""
        while isinstance(inner := place[key], dict | list) and inner and choose.random() < 0.8:
            place, key = inner, choose.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        odd = copy.deepcopy(choose.choice(ODD))
        if place is not whole and choose.random() < 0.2:
            del place[key]
        elif isinstance(inner, list) and choose.random() < 0.5:
            inner.append(choose.choice([odd, *inner]))
        elif isinstance(inner, dict) and choose.random() < 0.5:
            inner[choose.choice(["odd", "", "\x00", "name", "nodes", "config"])] = odd
        else:
            place[key] = odd
    return whole[""]


class Sender:
    """Sends cases over one connection, and holds the answers against the document."""

    def __init__(self, api: Api, known: Known) -> None:
        self._base_url = str(api.http.base_url)
        self._connection = http.client.HTTPConnection(api.http.base_url.host, api.http.base_url.port, timeout=60)
        self.known = known
        self.answers: Counter[int] = Counter()
        self.close = self._connection.close
        self._used = 0.0

    def __call__(self, case: Case) -> None:
        request = requests.Request(**case.as_transport_kwargs(self._base_url)).prepare()
        if time.monotonic() - self._used > IDLE_SECONDS:  # drawing took so long that the server may hang up
            self._connection.close()
        self._connection.request(request.method, request.path_url, request.body, request.headers)
        answer = self._connection.getresponse()
        headers = {name.lower(): answer.headers.get_all(name) for name in answer.headers}
        is_stream = headers.get("content-type", [""])[0].startswith("text/event-stream")
        content = self._first_event(answer) if is_stream else answer.read()
        self.answers[answer.status] += 1
        self._used = time.monotonic()
        response = Response(answer.status, headers, content, request, 0.0, False, stream_cut_short=is_stream)
        case.validate_response(response, checks=CHECKS)

    def _first_event(self, answer: http.client.HTTPResponse) -> bytes:
        lines = bytearray()
        while (line := answer.readline()).strip():
            lines += line
        self._connection.close()
        return bytes(lines) + b"\n"


async def _known(api: Api, ledger: Path, gate: Path) -> Known:
    """What exists, in every state there is, and something that does not."""
    ended = await api.start(greeting())
    await api.ended(ended)
    failed = await broken(api, ledger)
    runs = await api.start(one_note(ledger, gate=str(gate)))
    waits = (await api.post("/v1/workflow", greeting(), status=201))["execution_id"]
    letters = [each["id"] for each in (await api.get("/v1/dlq"))["items"]]
    return {
        "execution_id": [ended, failed, runs, waits, NOBODY],
        "node": ["start", "done", "a", "nope"],
        "letter_id": [*letters, NOBODY],
        "name": ["greeting", "nope"],
        "version": ["1", "2", "9999999999"],
    }
