"""Every exception that Headrace raises on purpose, each with a stable code.

HeadraceError
├── InvalidDefinition      a definition has problems; all of them are in .problems
├── InvalidInput           input_params do not fit the definition's `inputs`; all problems in .problems
├── InvalidRequest         what was asked for does not fit the execution; all problems in .problems
├── TemplateError          a template cannot be compiled or rendered
│   ├── TemplateSyntaxError    it does not parse, or uses what templates may not use
│   ├── MissingValue           it reads something that is not there
│   └── TemplateLimit          it went over a budget (length, syntax nodes, steps, depth, output)
├── BadValue               a value that cannot be stored as JSON (NaN, lone surrogate, NUL, too large, ...)
├── HandlerNotFound        no handler of this name, or a handler module that cannot be imported
├── Retry                  raised by handlers: try again, after `after` seconds if given
├── Fatal                  raised by handlers: do not try again
├── ExecutionNotFound
├── NodeNotFound           the execution is there, and has no such node
├── WorkflowNotFound       there is no workflow of this name and version
├── KeyReused              an idempotency key came with another body
├── Conflict               the state of the execution does not allow this
├── StoreUnavailable       Valkey cannot be reached
│   └── StoreFull              it takes no new work: it is short of memory
├── RecordUnavailable      the SQL store cannot be reached
├── RecordUnsupported      its address cannot be used, or it was made with another number of partitions
└── StoreUnsupported       Valkey is there, but with a version, format or setting we must not run on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document, and where: the path into it, the node, and the line if known.

    `part` is a name in the template at that path, if the problem is about one.
    """

    code: str
    message: str
    loc: tuple[str | int, ...] = ()
    node: str | None = None
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    part: str = field(default="", compare=False)

    def __str__(self) -> str:
        where = f"node {self.node}: " if self.node else ""
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{where}{self.message}"


class HeadraceError(Exception):
    code = "error"


class _Problems(HeadraceError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidDefinition(_Problems):
    code = "invalid_definition"


class InvalidInput(_Problems):
    code = "invalid_input"


class InvalidRequest(_Problems):
    code = "invalid_request"


class TemplateError(HeadraceError):
    code = "template_error"


class TemplateSyntaxError(TemplateError):
    code = "syntax"


class MissingValue(TemplateError):
    code = "template_missing_value"


class TemplateLimit(TemplateError):
    code = "template_limit"


class BadValue(HeadraceError):
    code = "bad_value"


class HandlerNotFound(HeadraceError):
    code = "handler_not_found"


class Retry(HeadraceError):
    """Raise this in a handler to have the node tried again, within its retry policy."""

    code = "retry"

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        if after is not None and not 0 <= after < float("inf"):
            raise ValueError("after must be a number of seconds, not negative")
        super().__init__(message)
        self.after = after


class Fatal(HeadraceError):
    """Raise this in a handler to fail the node for good."""

    code = "fatal"


class ExecutionNotFound(HeadraceError):
    code = "execution_not_found"


class NodeNotFound(HeadraceError):
    code = "node_not_found"


class WorkflowNotFound(HeadraceError):
    code = "workflow_not_found"


class KeyReused(HeadraceError):
    code = "idempotency_key_reused"


class Conflict(HeadraceError):
    code = "conflict"


class StoreUnavailable(HeadraceError):
    code = "store_unavailable"


class StoreFull(StoreUnavailable):
    code = "store_full"


class RecordUnavailable(HeadraceError):
    code = "record_unavailable"


class RecordUnsupported(HeadraceError):
    code = "record_unsupported"


class StoreUnsupported(HeadraceError):
    code = "store_unsupported"
