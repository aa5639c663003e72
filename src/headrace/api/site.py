"""The web UI, as `make ui` built it into this package: plain files, for everybody.

It holds no data, so no key is needed; what it shows it asks the API for. Its policy lets the browser run and load
nothing but these files, and talk to nobody but this server.
"""

from __future__ import annotations

import re
from mimetypes import guess_type
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Scope

BUILT: Final = Path(__file__).with_name("static")
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
FILE: Final = re.compile(r"/((?:assets/)?[\w-]{1,100}\.(?:html|js|css|svg))", re.ASCII)  # none leads out of the folder
FOR_EVER: Final = "public, max-age=31536000, immutable"  # the name of such a file has a hash of its content
ASK_AGAIN: Final = "no-cache"

NOT_BUILT: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Headrace</title>
<h1>Headrace</h1>
<p>The API is running. The web UI is not part of this installation: it was not built.</p>
<p>In a clone of the project, with Node 20 and npm: <code>make ui</code>, then load this page again.</p>
<p>Everything works without it: <a href="docs">the API</a>, and <code>headrace --help</code>.</p>
</html>
"""


class Site:
    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder

    def answer(self, scope: Scope) -> Response | None:
        """None: this is not about the UI."""
        if scope["method"] not in ("GET", "HEAD"):
            return None
        asked = FILE.fullmatch("/index.html" if scope["path"] == "/" else scope["path"])
        if asked is None:
            return None
        path = self._folder / asked[1]
        if path.is_file():
            return _file(path, Headers(scope=scope))
        return HTMLResponse(NOT_BUILT, headers={"Cache-Control": ASK_AGAIN}) if scope["path"] == "/" else None


def _file(path: Path, asked: Headers) -> Response:
    media_type = guess_type(path.name)[0] or "application/octet-stream"
    headers = {
        "Content-Security-Policy": CONTENT_POLICY,
        "Cache-Control": FOR_EVER if path.parent.name == "assets" else ASK_AGAIN,
        "Vary": "Accept-Encoding",
    }
    packed = path.with_name(path.name + ".gz")
    if "gzip" in asked.get("accept-encoding", "") and packed.is_file():
        return FileResponse(packed, media_type=media_type, headers={**headers, "Content-Encoding": "gzip"})
    return FileResponse(path, media_type=media_type, headers=headers)
