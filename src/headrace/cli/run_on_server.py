"""`headrace run --server`: one definition to its end on a server, with the handlers of its workers.

The server validates; its problems are told with the lines of the file, as `headrace validate` tells its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from headrace import logs
from headrace.cli.definitions import Checked, read_document, told
from headrace.cli.output import complain, print_json
from headrace.cli.remote import INTERRUPTED, USAGE, talk
from headrace.cli.run import read_inputs, results_file
from headrace.cli.startup import Usage
from headrace.cli.watch import Watch, exit_code, tell_what_next
from headrace.cli.words import printable
from headrace.client import Client, ProblemError
from headrace.errors import Problem
from headrace.model.document import Document
from headrace.process import on_signals
from headrace.rest.answers import Execution


def run_file_on_server(
    file: Path, inputs: Sequence[str], input_file: Path | None, server: str, *, json_output: bool
) -> int:
    logs.configure("warning")
    try:
        document, input_params = read_document(file), read_inputs(inputs, input_file)
    except Usage as error:
        complain(str(error))
        return USAGE
    if document.data is None:
        complain(f"{document.source_name}:1:1: there is nothing in it: a definition has a name and nodes")
        return USAGE
    with results_file(alone=json_output) as results:
        return talk(server, lambda client: _run(client, document, input_params, results, json_output=json_output))


async def _run(
    client: Client, document: Document, input_params: dict[str, Any], results: TextIO, *, json_output: bool
) -> int:
    """Ctrl-C cancels the execution there; then its end is still waited for."""
    interrupted = asyncio.Event()
    async with on_signals(interrupted.set):
        try:
            started = await client.start(definition=document.data, input_params=input_params)
        except ProblemError as error:
            if error.code != "invalid_definition":
                raise
            complain(*_lines(document, error))
            return USAGE
        if not json_output:
            complain(f"execution {printable(started['execution_id'])}")
        ended = await _ended(Watch(client, started["execution_id"], quiet=json_output), interrupted)
    if not json_output:
        tell_what_next(ended)
    if json_output or ended["output"] or ended["status"] == "COMPLETED":
        print_json(ended if json_output else ended["output"], results)
    return INTERRUPTED if interrupted.is_set() else exit_code(ended)


async def _ended(watching: Watch, interrupted: asyncio.Event) -> Execution:
    following = asyncio.ensure_future(watching.to_the_end())
    asked = asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            await watching.cancel()
        return await following
    finally:
        following.cancel()
        asked.cancel()
        await asyncio.wait((following, asked))


def _lines(document: Document, refusal: ProblemError) -> list[str]:
    problems = document.located(_problem(each) for each in refusal.errors)
    lines = [*told(Checked(document.source_name, document.text, None, problems), with_excerpts=False)]
    if any(each.get("code") == "unknown_handler" for each in refusal.errors):
        lines.append("The server knows the handlers that its workers have offered: see `headrace workers`.")
    return lines


def _problem(error: dict[str, Any]) -> Problem:
    """Without its code: `told` would give advice that is right only for handlers of this machine."""
    loc, node = error.get("loc"), error.get("node")
    steps = tuple(step for step in loc if isinstance(step, str | int)) if isinstance(loc, list) else ()
    steps = steps[1:] if steps[:1] == ("definition",) else steps
    return Problem("", printable(str(error.get("msg", ""))), steps, node if isinstance(node, str) else None)
