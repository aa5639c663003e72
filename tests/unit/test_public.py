"""What `headrace` itself offers, and that it costs nothing to import."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import headrace


def test_the_public_names() -> None:
    assert sorted(headrace.__all__) == ["Context", "Fatal", "Retry", "__version__", "handler"]
    assert set(headrace.__all__) <= set(dir(headrace))


def test_every_name_is_what_it_says() -> None:
    from headrace.errors import Fatal, Retry
    from headrace.worker.registry import Context, handler

    assert (headrace.Fatal, headrace.Retry) == (Fatal, Retry)
    assert (headrace.Context, headrace.handler) == (Context, handler)
    assert headrace.__version__ == importlib.metadata.version("headrace")


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = headrace.nothing_of_this_name


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import headrace; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == ["headrace"]
    assert "asyncio" not in loaded
    assert "importlib.metadata" not in loaded
