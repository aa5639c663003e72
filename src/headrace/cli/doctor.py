"""`headrace doctor`: the settings as they are read, and whether what they name is fit to run on."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from headrace import logs
from headrace.cli.checks import Finding, examine
from headrace.cli.output import print_json, put
from headrace.cli.startup import load_settings
from headrace.cli.words import counted, one_line
from headrace.redaction import Redactor
from headrace.settings import SECRET_PREFIX, Settings

INDENT = " " * 9


def diagnose(*, audit: bool, json_output: bool) -> int:
    logs.configure("error")
    settings = load_settings()
    found = asyncio.run(_examine(settings, audit=audit))
    hide = Redactor(settings.confidential)  # an error may quote what it could not use
    findings = [dataclasses.replace(each, says=hide.text(each.says)) for each in found]
    problems = sum(each.level == "problem" for each in findings)
    if json_output:
        checks = [dataclasses.asdict(each) for each in findings]
        print_json({"ok": not problems, "checks": checks, "settings": shown(settings)})
    else:
        put("Settings (* is set; the others are defaults)", *_lines(settings), "", "Checks")
        put(*(line for each in findings for line in _told(each)), "", _summary(findings, problems))
    return 1 if problems else 0


async def _examine(settings: Settings, *, audit: bool) -> list[Finding]:
    found = await examine(settings)
    if not audit:
        return found
    from headrace.cli.auditing import find_stuck

    return [*found, *await find_stuck(settings)]


def shown(settings: Settings) -> dict[str, Any]:
    """Every setting by its name in the environment; of what is secret, only that it is set."""
    values = settings.model_dump(mode="json", by_alias=True)
    for name, provider in values.pop("llm_providers").items():
        values |= {f"LLM_{name.upper()}_{key.upper()}": value for key, value in provider.items()}
    values |= {f"{SECRET_PREFIX}{name}": value for name, value in values.pop(f"{SECRET_PREFIX}*").items()}
    return values


def _lines(settings: Settings) -> Iterator[str]:
    fields = Settings.model_fields.items()
    defaults = {field.alias for name, field in fields if name not in settings.model_fields_set}
    for name, value in shown(settings).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            yield f"{' ' if name in defaults else '*'} {name} = {one_line(text)}"


def _told(finding: Finding) -> list[str]:
    lines = [f"{finding.level:<7}  {finding.check}: {one_line(finding.says)}"]
    return [*lines, f"{INDENT}{finding.do}."] if finding.do else lines


def _summary(findings: list[Finding], problems: int) -> str:
    warnings = sum(each.level == "warning" for each in findings)
    if not problems and not warnings:
        return "Everything is fine."
    return f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}."
