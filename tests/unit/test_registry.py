"""Handlers are marked by the decorator and found by module name and entry point."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pydantic import BaseModel

from headrace import Context, handler
from headrace.errors import HandlerNotFound, HeadraceError
from headrace.worker import registry as registry_module
from headrace.worker.registry import Registry, describe

if TYPE_CHECKING:
    from pathlib import PurePath


BUILTINS = ("call_external_service", "input", "llm_service", "output")


class Size(BaseModel):
    width: int
    height: int = 1


@handler("area")
async def area(config: Size, ctx: Context) -> int:
    return config.width * config.height


@handler("plain")
def plain(config: dict[str, Any]) -> Any:
    return config


@pytest.fixture(autouse=True)
def _same_imports_afterwards() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write_module(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text("from headrace import handler\n" + body)


def test_a_marked_function_is_still_itself() -> None:
    assert plain({"a": 1}) == {"a": 1}
    assert plain.__name__ == "plain"


def test_a_handler_is_described() -> None:
    found = describe(area)
    assert (found.name, found.function, found.is_async, found.takes_context) == ("area", area, True, True)
    assert found.isolation is None
    assert found.config_model is Size
    assert found.config_schema is not None
    assert found.config_schema["required"] == ["width"]
    assert "test_registry.area" in found.where
    assert f"{__file__}:" in found.where
    sync = describe(plain)
    assert (sync.is_async, sync.takes_context, sync.config_model, sync.config_schema) == (False, False, None, None)


def test_which_configs_may_be_annotated() -> None:
    @handler("none")
    def none(config, ctx): ...  # type: ignore[no-untyped-def]

    @handler("mapping")
    def mapping(config: Mapping[str, Any], ctx: PurePath) -> None: ...  # only the config's annotation is read

    @handler("number")
    def number(config: int) -> None: ...

    @handler("unreadable")
    def unreadable(config: PurePath) -> None: ...

    assert describe(none).config_model is None
    assert describe(mapping).config_model is None
    with pytest.raises(HeadraceError, match="must be a Pydantic model, a dict or not annotated"):
        describe(number)
    with pytest.raises(HeadraceError, match="TYPE_CHECKING"):
        describe(unreadable)


@pytest.mark.parametrize("name", ["", "0", "-a", "a b", "a" * 65, "ä", "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must match"):
        handler(name)


@pytest.mark.parametrize("name", ["a", "_a", "a" * 64, "Call.it-9"])
def test_good_names(name: str) -> None:
    assert describe(handler(name)(lambda config: None)).name == name


def test_wrong_signatures_are_refused_where_they_are_written() -> None:
    def needs_a_keyword(config: Any, *, ctx: Context) -> None: ...

    async def a_generator(config: Any) -> Any:
        yield config

    for function in (lambda: None, lambda config, ctx, more: None, needs_a_keyword, a_generator):
        with pytest.raises(TypeError, match=r"must be a function \(config\) or \(config, ctx\)"):
            handler("x")(function)
    with pytest.raises(ValueError, match="isolation"):
        handler("x", isolation="thread")  # type: ignore[arg-type]


def test_isolation_needs_a_function_that_can_be_imported() -> None:
    def local(config: Any) -> None: ...

    with pytest.raises(HeadraceError, match="imports it by name"):
        describe(handler("x", isolation="process")(local))

    def script(config: Any) -> None: ...

    script.__module__, script.__qualname__ = "__main__", "script"
    with pytest.raises(HeadraceError, match="imports it by name"):
        describe(handler("x", isolation="process")(script))


def test_the_builtin_handlers_are_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    registry = Registry.load()
    assert registry.names == BUILTINS
    for name in ("input", "output"):
        found = registry.get(name)
        with pytest.raises(StopIteration) as returned:
            found.function({"a": [1]}).send(None)
        assert returned.value.value == {"a": [1]}


def test_handlers_are_found_by_module_name_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(
        tmp_path, "mine_here", "@handler('one')\ndef f(config): ...\n@handler('two')\ndef g(config): ...\nh = f\n"
    )
    monkeypatch.chdir(tmp_path)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    registry = Registry.load(["mine_here"])
    assert {"one", "two", "input"} <= set(registry.names)
    assert "one" in registry
    assert [each.name for each in registry] == list(registry.names)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("absent_module", "there is no module absent_module"),
        ("os.absent", "there is no module os.absent"),
        ("pack/mod.py", "give the name of the module, pack.mod"),
        ("empty", "has no handlers"),
        ("broken", "ZeroDivisionError"),
        ("leaves", "SystemExit"),
        ("needs_other", "No module named 'not_installed'"),
        ("bad_name", "must match"),
    ],
)
def test_what_is_wrong_with_a_module_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, told: str
) -> None:
    write_module(tmp_path, "empty", "def f(config): ...\n")
    write_module(tmp_path, "broken", "1 / 0\n")
    write_module(tmp_path, "leaves", "raise SystemExit(3)\n")
    write_module(tmp_path, "needs_other", "import not_installed\n")
    write_module(tmp_path, "bad_name", "@handler('No!')\ndef f(config): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HandlerNotFound, match=told):
        Registry.load([module])


def test_two_functions_of_one_name_are_an_error_that_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path, "first_one", "@handler('same')\ndef f(config): ...\n")
    write_module(tmp_path, "second_one", "@handler('same')\ndef g(config): ...\n")
    write_module(tmp_path, "again", "from first_one import f\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HeadraceError, match=r"first_one\.f .*second_one\.g "):
        Registry.load(["first_one", "second_one"])
    assert "same" in Registry.load(["first_one", "again", "first_one"])


def test_a_conflict_leaves_out_the_whole_module() -> None:
    registry = Registry()
    registry.add(area)
    with pytest.raises(HeadraceError, match="defined twice"):
        registry.add(handler("area")(lambda config: None))
    assert registry.get("area").function is area


def test_entry_points_are_loaded_and_broken_ones_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, "good_plugin", "@handler('plugged')\ndef f(config): ...\n")
    write_module(tmp_path, "bad_plugin", "1 / 0\n")
    write_module(
        tmp_path, "greedy_plugin", "@handler('input')\ndef f(config): ...\n@handler('x')\ndef g(config): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        importlib.metadata.EntryPoint(name, f"{name}_plugin", registry_module.GROUP)
        for name in ("bad", "greedy", "absent", "good")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    with structlog.testing.capture_logs() as logs:
        registry = Registry.load()
    assert registry.names == (*BUILTINS, "plugged")
    assert [each["entry_point"] for each in logs] == ["bad", "greedy", "absent"]
    assert registry.get("input").module == registry_module.BUILTIN


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    registry = Registry()
    registry.add(area)
    with pytest.raises(HandlerNotFound, match="no handler 'aera'; known are area"):
        registry.get("aera")
