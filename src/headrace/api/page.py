"""The page at /docs: every operation and every problem, from the OpenAPI document. It loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

from headrace.api.problems import KINDS

CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #8884; padding: .4rem .6rem; text-align: left; vertical-align: top }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere }
:target { background: #fd03 }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    operations = _table(("call", "does", "answers"), _operations(document))
    kinds = _table(("code", "status", "means", "what to do"), _kinds())
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
<h1>{title}</h1>
<p>{escape(document["info"]["description"])} The whole document, with schemas and examples:
<a href="/openapi.json">/openapi.json</a>.</p>
<h2>Operations</h2>
{operations}
<h2>Problems</h2>
{kinds}
</html>
"""


def _operations(document: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            call = f'<code id="{escape(operation["operationId"])}">{escape(method.upper())} {escape(path)}</code>'
            yield call, escape(operation.get("description", "")), escape(", ".join(operation["responses"]))


def _kinds() -> Iterable[tuple[str, ...]]:
    for code, kind in KINDS.items():
        yield f'<code id="{code}">{code}</code>', str(kind.status), escape(kind.title), escape(kind.advice)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f"<th>{name}" for name in head)
    return f"<table><tr>{top}" + "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows) + "</table>"
