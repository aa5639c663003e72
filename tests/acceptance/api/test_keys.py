"""Who may do what: keys, scopes, origins, exposure, and the rate of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from headrace.api import auth
from headrace.errors import HeadraceError
from headrace.record.database import Database
from headrace.record.keys import Keys
from tests.acceptance.api.client import Client, greeting, problem
from tests.acceptance.api.conftest import Served
from tests.acceptance.api.house import House
from tests.roles import until

READER, RUNNER, BOSS = "reader-0123456789abcdef", "runner-0123456789abcdef", "boss-0123456789abcdef"
FIXED = f"reader:read:{READER},runner:run:{RUNNER},{BOSS}"
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def locked(house: House) -> AsyncIterator[Client]:
    """A process of its own that knows these keys."""
    async with httpx2.AsyncClient(base_url=await house.address(API_KEYS=FIXED), timeout=30) as http:
        yield Client(http)


async def test_without_a_good_key_there_is_nothing(locked: Client) -> None:
    for headers in (
        {},
        bearer("wrong"),
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {READER}"},
        {"X-API-Key": "x"},
    ):
        for path in ("/v1/executions", "/v1/nothing", "/v1/executions/x", "/metrics"):
            refused = await locked.http.get(path, headers=headers)
            problem(refused, 401, "unauthorized")
            assert refused.headers["www-authenticate"].startswith("Bearer")
    unread = await locked.http.post("/v1/workflow", content=b"{" * 10_000_000)
    problem(unread, 401, "unauthorized")
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
        assert (await locked.http.get(path)).status_code != 401
    assert (await locked.http.get("/v1/executions", headers={"X-API-Key": READER})).status_code == 200
    assert (await locked.http.get("/metrics", headers=bearer(READER))).status_code == 200


async def test_scopes(locked: Client) -> None:
    async def status(method: str, path: str, key: str) -> int:
        answer = await locked.http.request(method, path, headers=bearer(key))
        if answer.status_code == 403:
            problem(answer, 403, "forbidden")
        return answer.status_code

    assert await status("GET", "/v1/executions", READER) == 200
    assert await status("POST", "/v1/validate", READER) == 400
    assert await status("POST", "/v1/executions", READER) == 403
    assert await status("POST", "/v1/executions", RUNNER) == 400
    assert await status("DELETE", "/v1/dlq/x", RUNNER) == 403
    assert await status("DELETE", "/v1/dlq/x", BOSS) == 404
    assert await status("GET", "/v1/executions", RUNNER) == 200


async def test_idempotency_keys_belong_to_the_api_key(locked: Client) -> None:
    boss = bearer(BOSS)

    async def known() -> bool:
        return (await locked.http.post("/v1/validate", json=greeting(), headers=boss)).status_code == 200

    await until(known, "workers to offer their handlers")
    made = []
    for key in (RUNNER, RUNNER, BOSS):
        headers = {**bearer(key), "Idempotency-Key": "one"}
        made.append(await locked.post("/v1/executions", {"definition": greeting()}, headers=headers))
    ids = [each["execution_id"] for each in made]
    assert ids[0] == ids[1] != ids[2]


@on_sqlite
async def test_keys_in_the_record(served: Served, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_SECONDS", 0.05)
    keys = Keys(database)
    async with served() as api:
        assert (await api.http.get("/v1/executions")).status_code == 200  # nobody has made a key: it is open
        key, secret = await keys.create("ada", ["run"], "test")

        async def closed() -> bool:
            return (await api.http.get("/v1/executions")).status_code == 401

        await until(closed, "the API to be closed by its first key")
        started = await api.http.post("/v1/executions", json={"definition": greeting()}, headers=bearer(secret))
        assert started.status_code == 202
        trail = await api.http.get("/v1/audit", headers=bearer(secret))
        assert trail.json()["items"][0]["actor"] == "ada"

        await keys.revoke(key.id, "test")

        async def refused() -> bool:
            return (await api.http.get("/v1/executions", headers=bearer(secret))).status_code == 401

        await until(refused, "the revoked key to be refused")
        assert await closed()  # and no key at all is not better than a revoked one


@on_sqlite
async def test_an_open_api_stays_on_its_machine(served: Served) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with served(works=False, API_HOST="0.0.0.0"):
            pass
    [error] = raised.value.exceptions
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, HeadraceError) and "API_ALLOW_OPEN" in str(error)
    for allowed in ({"API_ALLOW_OPEN": True}, {"API_KEYS": FIXED}):
        async with served(works=False, API_HOST="0.0.0.0", **allowed) as api:
            assert (await api.http.get("/healthz")).status_code == 200


@on_sqlite
async def test_foreign_pages_cannot_use_an_open_api(served: Served) -> None:
    async with served(works=False) as api:
        here = f"http://{api.http.base_url.netloc.decode()}"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": here.replace("http://", "http://x@")},
            {"Host": "evil.example"},
            {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"},
            {"Host": ""},
            {"Host": "[::1"},
        ):
            problem(await api.http.post("/v1/dlq/retry", headers=headers), 403, "forbidden")
        assert (await api.http.post("/v1/dlq/retry", headers={"Origin": here})).status_code == 202
        local = {"Host": "localhost:1234"}
        assert (await api.http.post("/v1/dlq/retry", headers=local)).status_code == 202
    async with served(works=False, API_KEYS=FIXED) as api:  # a key is never sent by a page of somebody else
        proxied = {**bearer(BOSS), "Host": "api.example", "Origin": "https://other.example"}
        assert (await api.http.post("/v1/dlq/retry", headers=proxied)).status_code == 202


@on_sqlite
async def test_too_many_requests(served: Served) -> None:
    async with served(works=False, API_RATE_LIMIT="5/hour", API_KEYS=FIXED) as api:

        async def ask(key: str) -> httpx2.Response:
            return await api.http.get("/v1/executions", headers=bearer(key))

        answers = await asyncio.gather(*(ask(READER) for _ in range(20)))
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [429] * 15
        limited = [answer for answer in answers if answer.status_code == 429]
        problem(limited[0], 429, "rate_limited")
        assert 0 < int(limited[0].headers["retry-after"]) <= 7200
        assert (await ask(RUNNER)).status_code == 200  # others are not held up
        wrong = [(await ask("wrong")).status_code for _ in range(7)]
        assert wrong == [401] * 5 + [429] * 2  # by address, where there is no key
        assert (await api.http.get("/healthz")).status_code == 200


@on_sqlite
async def test_prod_is_limited_by_itself_and_dev_is_not(served: Served) -> None:
    async with served(works=False, ENVIRONMENT="prod") as api:
        statuses = [(await api.http.get("/v1/executions")).status_code for _ in range(130)]
        assert 429 in statuses
    async with served(works=False, ENVIRONMENT="dev") as api:
        statuses = [(await api.http.get("/v1/executions")).status_code for _ in range(130)]
        assert set(statuses) == {200}
