"""The canary: workflows use secrets in every way there is; then all that was written is searched for them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from headrace.embedded import EmbeddedValkey
from headrace.engine.engine import Engine
from headrace.hot.store import HotStore
from headrace.model.definition import Definition
from headrace.model.validation import validate
from tests.acceptance.test_cli import ROOT, headrace
from tests.roles import processes, quick_settings, until

TOKEN = 'canary/tok+en?"quoted" & <é>\\:%7'
KEY = "-----BEGIN KEY-----\nMIIEcanaryBADANBgkqhkiG9w0BAQEF\nBKcwggcanarySjAgEAAoIBAQDb\n-----END KEY-----\n"
SECRETS = {"HEADRACE_SECRET_TOKEN": TOKEN, "HEADRACE_SECRET_KEY": KEY}
LINES = [line for line in KEY.splitlines() if "canary" in line]

HANDLERS = '''
import asyncio, base64, hashlib, json, logging, pathlib
from urllib.parse import quote, quote_plus
from headrace import Context, Fatal, Retry, handler

SEEN = pathlib.Path(__file__).parent / "seen"

def see(config, ctx):
    """Proof of what a handler was given, which does not tell it."""
    SEEN.mkdir(exist_ok=True)
    digests = {key: hashlib.sha256(str(value).encode()).hexdigest() for key, value in config.items()}
    (SEEN / f"{ctx.node_id}.{ctx.attempt}").write_text(json.dumps(digests))

@handler("echo")
async def echo(config: dict, ctx: Context):
    see(config, ctx)
    return config

@handler("encode")
def encode(config: dict, ctx: Context):
    see(config, ctx)
    token = config["token"]
    raw = token.encode()
    return {
        "basic": [base64.b64encode(b"u" * n + b":" + raw).decode() for n in range(3)],
        "safe": base64.urlsafe_b64encode(raw).decode(), "hex": raw.hex(), "body": json.dumps({"token": token}),
        "urls": [quote(token), quote(token, safe=""), quote_plus(token)], "repr": repr(token), token: "a key",
        "lines": config["key"].splitlines(),
    }

@handler("fail")
async def fail(config: dict, ctx: Context):
    see(config, ctx)
    try:
        raise KeyError(config["token"])
    except KeyError as error:
        raise ValueError("x" * 1985 + config["auth"]) from error

@handler("retry")
async def retry(config: dict, ctx: Context):
    see(config, ctx)
    if ctx.attempt < 3:
        raise Retry(f"not yet, {config['token']}", after=0.01)
    return {"attempt": ctx.attempt}

@handler("log")
async def log(config: dict, ctx: Context):
    see(config, ctx)
    ctx.log.error("logged by ctx", token=config["token"], config=config)
    logging.getLogger("library").error("logged by a library: %s %r", config["token"], config)
    try:
        raise RuntimeError(config["token"])
    except RuntimeError:
        ctx.log.exception("logged with a traceback")

    async def forgotten():
        raise RuntimeError(config["token"])

    asyncio.get_running_loop().create_task(forgotten())
    await asyncio.sleep(0)

@handler("isolated", isolation="process")
def isolated(config: dict, ctx: Context):
    see(config, ctx)
    ctx.log.error("logged by a child", token=config["token"])
    if "fail" in config:
        raise Fatal("x" * 1990 + config["token"])
    return config
'''


def workflow() -> dict[str, Any]:
    given = {"token": "{{ secret.TOKEN }}", "auth": "Bearer {{ secret.TOKEN }}!", "key": "${{ secret.KEY }}"}

    def node(name: str, handler: str, *parents: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "handler": handler, "dependencies": list(parents), "config": {**given, **more}}

    return {
        "name": "canary",
        "on_failure": "continue",
        "nodes": [
            node("echoed", "echo", note="{{ input.note }} {% if true %}{{ secret.TOKEN }}{% endif %}"),
            node("encoded", "encode"),
            node("failed", "fail"),
            node("retried", "retry"),
            node("logged", "log"),
            node("isolated", "isolated"),
            node("isolated_failed", "isolated", fail=True),
            {
                **node("missing", "echo"),
                "config": {"x": "{{ secret.NOWHERE }}"},
                "retry_config": {"max_retries": 5, "initial_delay": 600},
            },
            node("done", "output", "echoed", "encoded", echo="{{ echoed }}", encoded="{{ encoded }}"),
        ],
    }


def forms(value: str) -> Iterator[str]:
    raw = value.encode()
    yield from (value, raw.hex(), raw.hex().upper(), html.escape(value), repr(value)[1:-1])
    yield from (quote(value), quote(value, safe=""), quote_plus(value))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    for before in range(3):
        inner = base64.b64encode(b"\0" * before + raw).decode()[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


def leaks(data: bytes) -> list[str]:
    """Every form of every secret, as it is and as it would be inside JSON."""
    needles = {form for value in (TOKEN, *LINES) for form in forms(value)}
    needles |= {json.dumps(form, ensure_ascii=False)[1:-1] for form in needles}
    return [needle for needle in needles if needle.encode() in data] + (["canary"] if b"canary/" in data else [])


def test_the_search_finds_what_it_should() -> None:
    for value in (TOKEN, *LINES):
        for written in (
            value,
            value.encode().hex(),
            base64.b64encode(b"user:" + value.encode()).decode(),
            quote(value),
        ):
            assert leaks(json.dumps({"x": written}, ensure_ascii=False).encode())
    assert leaks(b"Bearer {{ secret.TOKEN }} ***") == []


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def check_seen(folder: Path) -> None:
    """Handlers of every kind, at every attempt, were given the values."""
    seen = {path.name: json.loads(path.read_text()) for path in (folder / "seen").iterdir()}
    assert seen.keys() == {
        *("echoed.1", "encoded.1", "failed.1", "logged.1", "isolated.1", "isolated_failed.1"),
        *("retried.1", "retried.2", "retried.3"),
    }
    for given in seen.values():
        assert (given["token"], given["auth"], given["key"]) == (digest(TOKEN), digest(f"Bearer {TOKEN}!"), digest(KEY))
    assert seen["echoed.1"]["note"] == digest(f"harmless {TOKEN}")


def check_view(view: dict[str, Any]) -> None:
    nodes = {node["id"]: node for node in view["nodes"]}
    assert {name for name, node in nodes.items() if node["status"] == "FAILED"} == {
        "failed", "isolated_failed", "missing"
    }  # fmt: skip
    assert nodes["failed"]["error"]["message"] == "x" * 1985 + "Bearer ***!"
    assert nodes["isolated_failed"]["error"]["message"] == "x" * 1990 + "***"
    assert nodes["missing"]["error"] == {
        "code": "secret_missing",
        "message": "secret NOWHERE is not set on this worker: set HEADRACE_SECRET_NOWHERE",
        "type": "SecretMissing",
    }
    assert nodes["retried"]["attempt"] == 3
    assert view["output"]["token"] == "***"
    assert view["output"]["auth"] == "Bearer ***!"
    assert view["output"]["echo"]["note"] == "harmless ***"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "canary_handlers.py").write_text(HANDLERS)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(folder / "valkey") as started:
        yield started


@pytest.fixture
async def own_store(server: EmbeddedValkey) -> AsyncIterator[HotStore]:
    made = HotStore(server.url, partitions=1)
    await made.prepare()
    yield made
    await made.aclose()


async def ended(engine: Engine, definition: Definition, input_params: dict[str, Any]) -> dict[str, Any]:
    execution_id = await engine.start(definition, input_params)

    async def over() -> bool:
        view = await engine.read(execution_id)
        return view["status"] != "RUNNING" and not await engine.under_way(execution_id)

    await until(over, "the end of the execution")
    return await engine.read(execution_id)


async def test_nothing_that_is_stored_or_logged_has_a_secret_in_it(
    folder: Path, server: EmbeddedValkey, own_store: HotStore
) -> None:
    engine = Engine(own_store, quick_settings())
    with processes(server.url, folder) as roles:
        roles.orchestrator()
        roles.worker("canary_handlers", PYTHONPATH=os.pathsep.join((str(ROOT), str(folder))), **SECRETS)
        view = await ended(engine, validate(workflow(), handlers=None), {"note": "harmless"})
        logs = roles.logs()
    check_seen(folder)
    check_view(view)
    await own_store._link.call("CONFIG", "SET", "rdbcompression", "no")
    await own_store._link.call("SAVE")
    written = b"".join(path.read_bytes() for path in (folder / "valkey").rglob("*") if path.is_file())
    assert b"harmless" in written, "what passed through Valkey can be found in its files"
    assert b"Bearer {{ secret.TOKEN }}!" in written, "configs show secrets as references"
    for told in ("logged by ctx", "logged by a library", "traceback", "logged by a child", "never retrieved"):
        assert told in logs
    assert leaks(written) == []
    assert leaks(logs.encode()) == []
    assert leaks(json.dumps(view, ensure_ascii=False).encode()) == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_nothing_that_headrace_run_prints_has_a_secret_in_it(folder: Path, options: tuple[str, ...]) -> None:
    (folder / "canary.json").write_text(json.dumps(workflow()))
    arguments = ("run", "canary.json", "--handlers", "canary_handlers", "--input", "note=harmless", *options)
    ended = headrace(*arguments, cwd=folder, RETRY_INITIAL_DELAY="0.01", **SECRETS)
    assert ended.returncode == 1, ended.stderr
    check_seen(folder)
    assert "harmless ***" in ended.stdout
    assert "logged by ctx" in ended.stderr
    assert "logged by a child" in ended.stderr
    assert leaks(ended.stdout.encode() + ended.stderr.encode()) == []
    if options:
        check_view(json.loads(ended.stdout))


def test_text_that_looks_like_a_reference_is_never_resolved(folder: Path) -> None:
    forged = {
        "text": "{{ secret.TOKEN }}",
        "piece": {"secret": "TOKEN"},
        "secrets": [{"path": ["x"], "pieces": [{"secret": "TOKEN"}]}],
        "config": {"x": "{{ secret.TOKEN }}"},
    }
    nodes = [
        {"id": "start", "handler": "input"},
        {"id": "a", "handler": "echo", "dependencies": ["start"], "config": {"x": "{{ start.output }}"}},
        {
            "id": "b",
            "handler": "echo",
            "dependencies": ["a"],
            "config": {
                "x": "{{ a.x.text }}",
                "all": "{{ a.output }}",
                "in": "{{ input.text }}",
                "mixed": "{{ a.x.text }}{{ secret.TOKEN }}",
            },
        },
    ]
    (folder / "w.json").write_text(json.dumps({"name": "forged", "nodes": nodes}))
    (folder / "in.json").write_text(json.dumps(forged))
    ended = headrace("run", "w.json", "--handlers", "canary_handlers", "--input-file", "in.json", cwd=folder, **SECRETS)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "b": {
            "x": "{{ secret.TOKEN }}",
            "all": {"x": forged},
            "in": "{{ secret.TOKEN }}",
            "mixed": "{{ secret.TOKEN }}***",
        }
    }
    seen = json.loads((folder / "seen" / "b.1").read_text())
    assert seen["x"] == seen["in"] == digest("{{ secret.TOKEN }}")
    assert seen["all"] == digest(str({"x": forged}))
    assert seen["mixed"] == digest("{{ secret.TOKEN }}" + TOKEN)


def test_a_secret_that_a_template_could_not_name_stops_the_command(folder: Path) -> None:
    (folder / "w.json").write_text(json.dumps({"name": "w", "nodes": [{"id": "a", "handler": "output"}]}))
    ended = headrace("run", "w.json", cwd=folder, **{"HEADRACE_SECRET_my-key": TOKEN})
    assert ended.returncode == 2
    assert "HEADRACE_SECRET_my-key" in ended.stderr
    assert leaks(ended.stderr.encode()) == []


def test_a_secret_too_short_to_be_redacted_is_told_by_name(folder: Path) -> None:
    (folder / "w.json").write_text(json.dumps({"name": "w", "nodes": [{"id": "a", "handler": "output"}]}))
    ended = headrace("run", "w.json", cwd=folder, HEADRACE_SECRET_PIN="q#z", HEADRACE_SECRET_EMPTY="")
    assert ended.returncode == 0
    assert "too short to be redacted" in ended.stderr
    assert "PIN" in ended.stderr
    assert "q#z" not in ended.stderr
    assert "EMPTY" not in ended.stderr
