"""Prints the API's OpenAPI document, from which the typed client of the web UI is generated. No server is needed."""

from __future__ import annotations

import json

from fastapi import FastAPI

from headrace.api.app import ROUTERS, openapi_document


def document() -> str:
    app = FastAPI(title="Headrace", version="0")
    for router in ROUTERS:
        app.include_router(router)
    return json.dumps(openapi_document(app), indent=1, sort_keys=True)


if __name__ == "__main__":
    print(document())
