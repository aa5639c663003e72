"""Every call that the server offers, and so every row of the contract's table, has a test that makes it with success.

A test says with `calls` which ones it is about, and `remote` holds it to that.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.acceptance.api import test_events, test_rows, test_rows_operations
from tests.acceptance.api.client import Remote
from tests.acceptance.api.test_openapi import operations

NOT_IN_THE_DOCUMENT = {"GET /openapi.json", "GET /docs", "GET /"}


@pytest.mark.calls("GET /openapi.json")
async def test_every_call_has_a_test(remote: Remote) -> None:
    offered = {call for call, _ in operations(await remote.get("/openapi.json"))} | NOT_IN_THE_DOCUMENT
    tested = declared(test_events, test_rows, test_rows_operations) | {"GET /openapi.json"}
    assert tested == offered


def declared(*modules: ModuleType) -> set[str]:
    tests = [each for module in modules for name, each in vars(module).items() if name.startswith("test_")]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ()) if mark.name == "calls"]
    return {call for mark in marks for call in mark.args}
