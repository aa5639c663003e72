"""The command line: `headrace`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="headrace",
    help="A workflow engine for pipelines of API and LLM calls.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Handlers = Annotated[
    list[str] | None, typer.Option("--handlers", metavar="MODULE", help="Python module with @handler functions.")
]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="Workflow definition, YAML or JSON.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="KEY=VALUE", help="One input; the value is read as JSON, else as text."),
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input-file", metavar="FILE", help="Inputs from a YAML or JSON file.")
    ] = None,
    handlers: Handlers = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the execution as one JSON document on stdout, and nothing else.")
    ] = False,
) -> None:
    """Run one workflow to its end on the embedded engine.

    Progress goes to stderr, the outputs to stdout. Exit code 0: COMPLETED, 1: FAILED or CANCELLED, 2: bad definition or
    usage, 3: the engine's store cannot be started or reached, 130: after Ctrl-C, which cancels the execution.
    """
    from headrace.cli.run import run_file

    sys.exit(run_file(file, inputs or [], input_file, handlers or [], json_output=json_output))


@app.command()
def orchestrator() -> None:
    """Run an orchestrator on the Valkey that REDIS_URL names, until SIGTERM."""
    from headrace.cli.roles import run_orchestrator

    sys.exit(run_orchestrator())


@app.command()
def worker(handlers: Handlers = None) -> None:
    """Run a worker on the Valkey that REDIS_URL names, until SIGTERM."""
    from headrace.cli.roles import run_worker

    sys.exit(run_worker(handlers or []))


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from headrace import __version__

        print(f"headrace {__version__}")
        raise typer.Exit


def main() -> None:
    app()
