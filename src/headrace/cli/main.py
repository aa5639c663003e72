"""The command line: `headrace`. What a command does is imported when it is called, so that help stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="headrace",
    help="""Run workflows: pipelines of API and LLM calls, as YAML.

    \b
    headrace init demo         begin with a small project
    headrace run FILE          run a workflow, no server needed
    headrace COMMAND --help    what a command does, its options and exit codes
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Handlers = Annotated[
    list[str] | None,
    typer.Option(
        "--handlers",
        metavar="MODULE",
        help="Python module with @handler functions, found from the current folder on. May be repeated.",
    ),
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it; made if it is not there.")] = Path(
        "."
    ),
) -> None:
    """Write a small project to begin with.

    It has a workflow, a handler, a test and a schema for your editor. Existing files are
    never touched: if one is in the way, nothing is written.

    \b
    Exit codes: 0, or 2 if a file is in the way or cannot be written.

    \b
    Example: headrace init demo
    """
    from headrace.cli.init import init_project

    sys.exit(init_project(folder))


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Workflow definition, YAML or JSON; - reads stdin.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="KEY=VALUE", help="One input; the value is read as JSON, else as text. May be repeated."
        ),
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input-file", metavar="FILE", help="Inputs from a YAML or JSON file.")
    ] = None,
    handlers: Handlers = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the execution as one JSON document on stdout, and nothing else.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what handlers log from info on, not only warnings.")
    ] = False,
) -> None:
    """Run one workflow to its end on the embedded engine.

    Progress goes to stderr, the output to stdout. Ctrl-C cancels the execution.

    \b
    Exit codes: 0 completed, 1 failed or cancelled, 2 bad definition or usage,
    3 the engine's store cannot be started or reached, 130 after Ctrl-C.

    \b
    Example: headrace run workflow.yaml --handlers handlers --input 'names=["Ada"]'
    """
    from headrace.cli.run import run_file

    sys.exit(run_file(file, inputs or [], input_file, handlers or [], json_output=json_output, verbose=verbose))


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Workflow definitions, YAML or JSON; - reads stdin.")
    ],
    handlers: Handlers = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the findings as one JSON document on stdout.")
    ] = False,
) -> None:
    """Check workflows without running them: all problems at once.

    Each problem is a line: file:line:column: node, what is wrong, what to do.

    \b
    Exit codes: 0 all files are good, 2 there are problems.

    \b
    Example: headrace validate workflow.yaml --handlers handlers
    """
    from headrace.cli.validate import validate_files

    sys.exit(validate_files(files, handlers or [], json_output=json_output))


@app.command()
def schema(handlers: Handlers = None) -> None:
    """Print the JSON Schema of a workflow file, for editors.

    It knows the config of every installed handler. A workflow file that begins with
    this line gets completion and checks in editors with the YAML language server:

    \b
    # yaml-language-server: $schema=headrace.schema.json

    \b
    Exit codes: 0, or 2 if a handler module cannot be loaded.

    \b
    Example: headrace schema --handlers handlers > headrace.schema.json
    """
    from headrace.cli.schema import print_schema

    sys.exit(print_schema(handlers or []))


@app.command()
def orchestrator() -> None:
    """Run an orchestrator until SIGTERM.

    It plans executions on the Valkey that REDIS_URL names. Any number may run.

    \b
    Exit codes: 0 stopped, 2 bad settings, 3 Valkey cannot be reached.

    \b
    Example: REDIS_URL=redis://127.0.0.1:6379 headrace orchestrator
    """
    from headrace.cli.roles import run_orchestrator

    sys.exit(run_orchestrator())


@app.command()
def worker(handlers: Handlers = None) -> None:
    """Run a worker until SIGTERM.

    It runs handlers for the Valkey that REDIS_URL names. Any number may run. At
    SIGTERM it takes no new work and lets what runs finish, for a while.

    \b
    Exit codes: 0 stopped, 2 bad settings or handlers, 3 Valkey cannot be reached.

    \b
    Example: REDIS_URL=redis://127.0.0.1:6379 headrace worker --handlers handlers
    """
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
