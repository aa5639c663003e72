"""What `headrace` itself offers, and that it costs nothing to import."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import headrace


def test_the_public_names() -> None:
    assert sorted(headrace.__all__) == ["Client", "Context", "Fatal", "Retry", "Workflow", "__version__", "handler"]
    assert set(headrace.__all__) <= set(dir(headrace))


def test_every_name_is_what_it_says() -> None:
    from headrace.builder import Workflow
    from headrace.client import Client
    from headrace.errors import Fatal, Retry
    from headrace.worker.registry import Context, handler

    assert (headrace.Fatal, headrace.Retry) == (Fatal, Retry)
    assert (headrace.Context, headrace.handler) == (Context, handler)
    assert headrace.Workflow is Workflow
    assert headrace.Client is Client
    assert headrace.__version__ == importlib.metadata.version("headrace")


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = headrace.nothing_of_this_name


def loaded_by(module: str, after: str = "sys") -> list[str]:
    code = f"import sys, {after}; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_it_imports_nothing_heavy() -> None:
    loaded = loaded_by("headrace")
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == ["headrace"]
    assert "asyncio" not in loaded
    assert "importlib.metadata" not in loaded


def test_the_pytest_plugin_imports_nothing_beside_pytest() -> None:
    assert loaded_by("headrace.pytest_plugin", after="pytest") == ["headrace", "headrace.pytest_plugin"]


def test_the_testing_module_needs_no_pytest() -> None:
    assert "pytest" not in loaded_by("headrace.testing")
