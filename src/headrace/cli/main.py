"""The command line: `headrace`. What a command does is imported when it is called, so that help stays quick."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import dlq, executions, keys, workers, workflows

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
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Run it on this server, with its workers' handlers.")
    ] = None,
) -> None:
    """Run one workflow to its end, here or on a server.

    Progress goes to stderr, the output to stdout. Ctrl-C cancels the execution.

    \b
    Exit codes: 0 completed, 1 failed or cancelled, 2 bad definition or usage,
    3 the engine's store or the server cannot be reached, 130 after Ctrl-C.

    \b
    Example: headrace run workflow.yaml --handlers handlers --input 'names=["Ada"]'
    """
    if server is not None:
        from headrace.cli.run_on_server import run_file_on_server

        if handlers:
            raise typer.BadParameter("with --server the handlers are those of its workers: leave --handlers out")
        sys.exit(run_file_on_server(file, inputs or [], input_file, server, json_output=json_output))
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
def dev(
    host: Annotated[str | None, typer.Option(help="Where the API listens, instead of API_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="The API's port, instead of API_PORT.")] = None,
    handlers: Handlers = None,
) -> None:
    """Run the whole service on this machine: API, orchestrator and worker.

    Its stores are under HEADRACE_HOME. Started again there, it goes on with what was
    running.

    \b
    Exit codes: 0 stopped, 2 bad settings or handlers, 3 a store cannot be started.

    \b
    Example: headrace dev --handlers handlers
    """
    from headrace.cli.dev import run_dev

    sys.exit(run_dev(host, port, handlers or []))


@app.command()
def api() -> None:
    """Run the REST API until SIGTERM.

    It records in the SQL store that DATABASE_URL names and reads from the Valkey that
    REDIS_URL names. Any number may run.

    \b
    Exit codes: 0 stopped, 2 bad settings, 3 the SQL store cannot be reached.

    \b
    Example: REDIS_URL=redis://127.0.0.1:6379 headrace api
    """
    from headrace.cli.roles import run_api

    sys.exit(run_api())


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


@app.command()
def migrate(
    check: Annotated[bool, typer.Option("--check", help="Only look: exit 1 if the schema is not up to date.")] = False,
) -> None:
    """Bring the schema of the SQL store up to date.

    Any number may run at the same time.

    \b
    Exit codes: 0, 1 not up to date (--check) or from a newer version, 2 bad settings,
    3 the database cannot be reached.

    \b
    Example: DATABASE_URL=postgresql://headrace@127.0.0.1/headrace headrace migrate
    """
    from headrace.cli.migrate import migrate as bring_up_to_date

    sys.exit(bring_up_to_date(only_check=check))


@app.command()
def doctor(
    audit: Annotated[
        bool, typer.Option("--audit", help="Look for executions that cannot make progress, and say why.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Check settings, stores, clocks, handlers and limits.

    With nothing configured it checks what the embedded mode needs. It also prints the
    settings, with secrets hidden. With --audit it looks at all running executions, straight
    in the stores, with no server in between.

    \b
    Exit codes: 0, 1 there are problems, 2 bad settings.

    \b
    Example: REDIS_URL=redis://127.0.0.1:6379 headrace doctor
    """
    from headrace.cli.doctor import diagnose

    sys.exit(diagnose(audit=audit, json_output=json_output))


app.add_typer(executions.app, name="executions")
app.command()(executions.why)
app.add_typer(dlq.app, name="dlq")
app.command()(workers.workers)
app.command()(workers.queues)
app.add_typer(workflows.app, name="workflows")
app.add_typer(keys.app, name="keys")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from headrace import __version__

        print(f"headrace {__version__}")
        raise typer.Exit


def main() -> None:
    gc.set_threshold(20_000)  # what is imported stays: looking through it again and again is a tenth of a start
    app()
