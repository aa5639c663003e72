"""The files of the web UI: what is served, under which policy, and what is said where it was not built."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from headrace.api.site import CONTENT_POLICY, Site

ROOT = Path(__file__).parents[2]
SCRIPT = b"console.log('hello')"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>Headrace</title>")
    (tmp_path / "assets" / "index-1a2b.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    return tmp_path


def client(folder: Path) -> TestClient:
    site = Site(folder)

    async def other(_: Request) -> Response:
        return Response("the API")

    inner = Starlette(routes=[Route("/{path:path}", other, methods=["GET", "POST"])])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = site.answer(scope) if scope["type"] == "http" else None
        await (answer or inner)(scope, receive, send)

    return TestClient(app)


def test_the_page_runs_nothing_but_its_own_files(folder: Path) -> None:
    answer = client(folder).get("/")
    assert answer.text == "<title>Headrace</title>"
    assert answer.headers["content-security-policy"] == CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("encoding", ["gzip, br", "identity"])
def test_files_with_a_hash_are_kept_for_ever_and_come_packed(folder: Path, encoding: str) -> None:
    answer = client(folder).get("/assets/index-1a2b.js", headers={"Accept-Encoding": encoding})
    assert answer.content == SCRIPT
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers.get("content-encoding") == ("gzip" if "gzip" in encoding else None)
    assert answer.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/v1/executions", "/assets/index-1a2b.js.gz", "/assets/", "/assets/../site.py"])
def test_all_else_is_left_to_the_api(folder: Path, path: str) -> None:
    assert client(folder).get(path).text == "the API"


def test_only_reading(folder: Path) -> None:
    assert client(folder).post("/").text == "the API"
    assert client(folder).head("/").content == b""


def test_what_to_do_where_it_was_not_built(tmp_path: Path) -> None:
    answer = client(tmp_path / "nowhere").get("/")
    assert answer.status_code == 200
    assert "make ui" in answer.text


def test_a_wheel_carries_what_was_built(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Git ignores the built files, and a wheel leaves out what Git ignores, if it is not told."""
    project, made, package = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("made"), Path("src/headrace")
    shutil.copytree(folder, project / package / "api" / "static")
    shutil.copy(ROOT / package / "__init__.py", project / package)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, project)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = made.glob("*.whl")
    with ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {"headrace/api/static/index.html", "headrace/api/static/assets/index-1a2b.js.gz"} <= names
