"""docs/reference says what the code says: the generated parts are up to date, the written ones leave nothing out."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from docs.generate import filters, handlers, settings, templates
from docs.generate.commands import COMMANDS
from docs.generate.pages import BLOCKS, PAGES, WITH_BLOCKS, filled, names_in
from docs.generate.schemas import fields

from headrace import errors
from headrace.cli import roles, run, startup
from headrace.model.configs import HandlerSpec
from headrace.model.document import load
from headrace.model.schema import definition_schema
from headrace.model.template import LIMITS, expressions
from headrace.model.template.collections import FILTERS
from headrace.model.template.predicates import TESTS
from headrace.model.template.statements import _loop
from headrace.model.validation import validate
from headrace.settings import Settings
from headrace.worker.outcomes import raised
from headrace.worker.registry import Context, describe, marked

DOCS = PAGES.parent
SOURCE = DOCS.parent / "src" / "headrace"
NAMES = ("cli", "definition", "handlers", "metrics", "settings", "templates")
TEXT = {name: (PAGES / f"{name}.md").read_text("utf-8") for name in NAMES}


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def first_cells(page: str, head: str) -> set[str]:
    """What stands between backticks in the first column of the table whose first line begins so."""
    rows = re.split(rf"^\| {head} +\|", page, maxsplit=1, flags=re.MULTILINE)[1].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall("`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])}


# Drift


def test_the_pages_are_those_that_there_are() -> None:
    assert sorted(page.name for page in PAGES.iterdir()) == [f"{name}.md" for name in NAMES]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_the_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == filled(text), f"{page.name} is out of date: run `make docs`"


def test_every_generated_part_is_on_one_page() -> None:
    texts = [page.read_text("utf-8") for page in WITH_BLOCKS]
    assert sorted(name for text in texts for name in names_in(text)) == sorted(BLOCKS)


def test_a_stale_part_is_seen() -> None:
    stale = TEXT["settings"].replace("| `6379` ", "| `6380` ")
    assert stale != TEXT["settings"]
    assert filled(stale) == TEXT["settings"]


# Templates


def names_of(entries: tuple[filters.Entry, ...], known: dict[str, Any]) -> list[str]:
    """The names that a table shows for its entries, aliases too."""
    calls = [known[entry.name].call for entry in entries if entry.name in known]
    aliases = [name for name, builtin in known.items() if builtin.call in calls]
    return sorted([*aliases, *(entry.name for entry in entries if entry.name not in known)])


def test_every_filter_and_test_is_described_once() -> None:
    described = tuple(entry for group in filters.FILTERS.values() for entry in group)
    assert names_of(described, FILTERS) == sorted([*FILTERS, *expressions._LIST_FILTERS])
    assert names_of(filters.TESTS, TESTS) == sorted([*TESTS, *expressions._PRESENCE])


@pytest.mark.parametrize(
    "entry", [entry for group in (*filters.FILTERS.values(), filters.TESTS) for entry in group], ids=lambda e: e.name
)
def test_each_example_shows_its_filter_or_test(entry: filters.Entry) -> None:
    assert re.search(rf"(\| |is ){entry.name}\b", entry.example)
    assert not templates.result(entry.example).startswith("error")


def test_every_limit_and_loop_variable_is_described() -> None:
    described = [*templates.COMPILING, *templates.RENDERING]
    assert sorted(described) == sorted(field.name for field in dataclasses.fields(LIMITS))
    assert all(f"`loop.{name}`" in TEXT["templates"] for name in _loop(0, 1))


def test_what_is_said_to_be_missing_is_missing() -> None:
    part = TEXT["templates"].partition("\n## What is not there\n")[2].partition("\n## ")[0]
    names = re.findall(r"`(\w+)`", part)
    assert {"macro", "include", "escape", "format"} <= set(names)
    for name in set(names) - {"range"}:
        assert templates.result(f"{{{{ 'x' | {name} }}}}").startswith("error: line 1: there is no filter")
        assert templates.result(f"{{% {name} x %}}").startswith("error: line 1: there is no {% ")


# Definitions


def test_the_example_has_every_field_and_every_example_is_valid() -> None:
    specs = {name: HandlerSpec(name, each.config_schema) for name, each in handlers.BUILTINS.items()}
    documents = [load(text).data for page in TEXT.values() for text in fenced(page, "yaml") if "\nnodes:" in text]
    for document in documents:
        validate(document, handlers=specs)
    schema = definition_schema(specs)
    definition, defs = documents[0], schema["$defs"]
    assert definition.keys() == schema["properties"].keys()
    assert {name for node in definition["nodes"] for name in node} == defs["node"]["properties"].keys()
    assert definition["nodes"][0]["retry_config"].keys() == defs["retry_config"]["properties"].keys()
    assert {name for given in definition["inputs"].values() for name in given} == defs["input"]["properties"].keys()


def test_every_code_of_a_problem_is_described() -> None:
    files = [*(SOURCE / "model").glob("*.py"), SOURCE / "cli" / "definitions.py"]
    begins = r"(?:findings\.add|self\.add|_wrong|_note|_fail|_invalid|Problem)\(\s*\"([a-z_0-9]+)\""
    used = {code for file in files for code in re.findall(begins, file.read_text("utf-8"))}
    assert len(used) > 30
    of_templates = {errors.TemplateSyntaxError.code, errors.TemplateLimit.code}
    assert first_cells(TEXT["definition"], "code") == used | of_templates


# Handlers


@pytest.mark.parametrize("name", handlers.BUILTINS)
def test_every_builtin_handler_has_its_part_and_its_fields_a_meaning(name: str) -> None:
    assert f"\n## {name}\n" in TEXT["handlers"]
    described = list(fields(handlers.BUILTINS[name].config_schema or {}))
    assert [field.name for field in described if not field.meaning] == []


def test_the_context_is_described() -> None:
    part = TEXT["handlers"].partition("\n### The context\n")[2]
    assert first_cells(part, "field") == {field.name for field in dataclasses.fields(Context)}


def test_the_table_of_errors_is_true() -> None:
    checked = 0
    for names, retried in handlers.errors():
        for name in re.findall(r"^Retry$|^Fatal$|\w+Error\b|SystemExit", names):
            kind = next(getattr(module, name) for module in (builtins, asyncio, json, errors) if hasattr(module, name))
            failure = raised(kind("x", "x", 0) if name == "JSONDecodeError" else kind("x")).failure
            assert failure and failure.retryable is retried.startswith("yes"), name
            checked += 1
    assert checked >= 9


def test_every_code_of_a_failure_is_described() -> None:
    written = [file for part in ("worker", "engine", "steps") for file in (SOURCE / part).rglob("*.py")]
    files = [*written, *(SOURCE / "hot").rglob("*.lua")]
    begins = r"(?:\bfailed|Failure)\(\s*\"([a-z_]+)\"|\"code\":\"([a-z_]+)\""
    found = {"".join(pair) for file in files for pair in re.findall(begins, file.read_text("utf-8"))}
    assert first_cells(TEXT["handlers"], "code") == found | {errors.Retry.code, errors.Fatal.code}


def test_the_own_handler_is_one() -> None:
    from types import ModuleType

    module = ModuleType("forecasts")
    exec(fenced(TEXT["handlers"], "python")[0], module.__dict__)
    [function] = marked(module)
    assert describe(function).name == "forecast"


# The command line and the settings


def test_every_command_has_help_exit_codes_and_an_example() -> None:
    for name, command in COMMANDS.items():
        assert re.search(
            rf"\n### headrace {name}\n.*?\nExit codes: .*?\n```sh\n[^`]*headrace {name}", TEXT["cli"], re.DOTALL
        )
        assert all(parameter.help for parameter in command.params)
    rows = TEXT["cli"].partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    codes = {0, 1, startup.USAGE, roles.UNREACHABLE, run.INTERRUPTED}
    assert {int(code) for code in re.findall(r"^\| (\d+) ", rows, re.MULTILINE)} == codes


def test_every_setting_has_a_meaning_and_one_place() -> None:
    assert [each.name for each in settings.known() if not each.meaning] == []
    assert [each.name for each in settings.known() if len(settings.group_of(each.name)) != 1] == []


def test_pages_name_no_setting_that_there_is_not() -> None:
    known = {each.name for each in settings.known()}
    others = {"NO_COLOR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    for name, page in TEXT.items():
        named = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", page)) - others
        assert {each for each in named - known if not each.startswith(("LLM_OLLAMA_", "HEADRACE_SECRET_"))} == set(), (
            name
        )


# A change of these is a change for everybody who runs Headrace.
DEFAULTS = {
    "HEADRACE_HOME": Path(".headrace"),
    "REDIS_PORT": 6379,
    "REDIS_PARTITIONS": 1,
    "REDIS_SOCKET_TIMEOUT": 10.0,
    "REDIS_STREAM_BLOCK_MS": 5000,
    "WORKER_CONCURRENCY": 64,
    "WORKER_LEASE_SECONDS": 15,
    "WORKER_HEARTBEAT_INTERVAL": 5.0,
    "WORKER_HEARTBEAT_TIMEOUT": 15.0,
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": 30.0,
    "ORCHESTRATOR_BATCH": 200,
    "ORCHESTRATOR_STALE_RESULT_TIMEOUT": 30.0,
    "ORCHESTRATOR_STALE_CLAIM_INTERVAL": 15.0,
    "RETRY_MAX_RETRIES": 3,
    "RETRY_INITIAL_DELAY": 1.0,
    "RETRY_MAX_DELAY": 60.0,
    "RETRY_EXPONENTIAL_BASE": 2.0,
    "RETRY_JITTER": True,
    "MAX_NODES": 100_000,
    "MAX_OUTPUT_BYTES": 1 << 20,
    "MAX_CONTEXT_BYTES": 16 << 20,
    "HOT_TTL_SECONDS": 3600,
    "HANDLER_MISSING_TIMEOUT": 60,
    "HTTP_ALLOW_PRIVATE": False,
}


def test_the_defaults_are_those_that_were_promised() -> None:
    defaults = {field.alias: field.default for field in Settings.model_fields.values()}
    assert {name: defaults[name] for name in DEFAULTS} == DEFAULTS


# Links


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [DOCS / "README.md", *sorted(PAGES.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = target.partition("#")
        leads_to = (page.parent / file).resolve() if file else page
        assert leads_to.exists(), target
        assert not anchor or anchor in anchors(leads_to), target


def test_the_index_has_every_page() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if "decisions" not in page.parts]
    assert [page for page in pages if page != "README.md" and f"]({page})" not in index] == []
