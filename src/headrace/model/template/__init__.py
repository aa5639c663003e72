"""Templates: Jinja's syntax, our own bounded evaluation, exact references.

`compile` turns a source into a Template, once per definition; `Template.render` gives its value for the outputs of the
ancestors. Jinja2 only parses: its compiler and sandbox never run, since neither bounds time or memory. The tree becomes
closures that read plain JSON values and pay for everything they do, so that the worst template ends in an error.

    syntax        source to checked syntax tree       budget      the limits, and what is left of them
    statements    if, for, set, with as closures      values      reading, comparing, calculating
    expressions   expressions as closures             filters     filters on text and numbers
    scope         local names and references          collections filters on lists and objects
    paths         following a.b[0]                    predicates  the tests behind `is`
    builtins      tables of filters and tests         secrets     text that only a worker can complete

What a template means:

- A source that is exactly one `{{ expression }}` keeps the expression's type. Every other one gives text, in which a
  string stands as it is and all else as compact JSON: true, null, 1.5, [1,2], {"a":1}. A source without template
  syntax is text that stands for itself.
- `${{ x }}` is `{{ x }}`. A dollar sign before a value is written `{{ "$" }}{{ x }}`, or `$${{ x }}`.
- `{{ node.output }}` is the whole of `node` where that has no key `output`.
- A missing key, index or root is MissingValue. `default(...)` stands in for anything missing within its operand, and
  `is defined` asks. The first or last element of an empty list is missing too.
- An inline `if` without `else` gives empty text.
- Arithmetic is on numbers alone, within 64 bits; `+` also joins two texts or two lists, `~` joins anything as text.
- `{{ secret.NAME }}` stands for a value that only a worker knows. It may stand alone or within text, and nothing can
  be done with it: no filter, no operator, no condition. Rendering gives `Sealed` for a text that has any in it.
- A lone path, `{{ a.b }}`, hands on the very value of the context and pays nothing for it. Whatever else a lone
  expression gives is measured as if it were written as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

from headrace.errors import TemplateError, TemplateLimit
from headrace.model.template import syntax
from headrace.model.template.budget import LIMITS, Frame, Limits
from headrace.model.template.paths import Evaluate, split_path
from headrace.model.template.secrets import Sealed, referenced, sealed
from headrace.model.template.statements import StatementCompiler

__all__ = ["LIMITS", "Limits", "Sealed", "Template", "compile"]


class Template:
    """A compiled template. Immutable; it may be rendered any number of times.

    `references` are the paths that it may read from the context, each as far as it is constant: `{{ a.b[0][i] }}` has
    ("a", "b", "0"). `roots` are their first names. `constant` says that the source is plain text.
    """

    __slots__ = ("_evaluate", "_slots", "constant", "references", "roots", "source")

    def __init__(self, source: str, evaluate: Evaluate | None, references: frozenset[tuple[str, ...]], slots: int):
        self.source = source
        self.constant = evaluate is None
        self.references = references
        self.roots = frozenset(path[0] for path in references)
        self._evaluate: Evaluate = evaluate or (lambda frame: source)
        self._slots = slots

    def render(self, context: Mapping[str, Any]) -> Any:
        """The template's value; Sealed, if it has secrets in it.

        MissingValue, TemplateLimit or TemplateError say what went wrong, and where.
        """
        try:
            return self._evaluate(Frame(context, self._slots))
        except TemplateError as error:
            raise type(error)(f"{error}, in the template {shortened(self.source)}") from None
        except (RecursionError, MemoryError):
            raise TemplateLimit(f"too deep or too large, in the template {shortened(self.source)}") from None

    def __repr__(self) -> str:
        return f"<Template {shortened(self.source)}>"


def compile(source: str) -> Template:  # noqa: A001  # read as template.compile
    """Compile a source, or say what is wrong with it by TemplateSyntaxError or TemplateLimit."""
    if not syntax.has_syntax(source):
        return Template(source, None, frozenset(), 0)
    try:
        tree, lone = syntax.parse(source)
        compiler = StatementCompiler()
        evaluate = _lone(compiler, tree) if lone else _text(compiler, tree)
    except TemplateError as error:
        raise type(error)(f"{error}, in the template {shortened(source)}") from None
    except RecursionError:
        raise TemplateLimit(f"nested too deeply, in the template {shortened(source)}") from None
    return Template(source, evaluate, frozenset(compiler.references), compiler.scope.slot_count)


def shortened(source: str) -> str:
    """A source as error messages show it: on one line, not too long."""
    line = " ".join(source[:400].split())
    return line if len(line) <= 120 and len(source) <= 400 else f"{line[:117]}..."


def _text(compiler: StatementCompiler, tree: nodes.Template) -> Evaluate:
    body = compiler.block(tree.body)
    finish: Callable[[list[str]], str | Sealed] = sealed if compiler.has_secrets else "".join

    def evaluate(frame: Frame) -> str | Sealed:
        out: list[str] = []
        body(frame, out)
        return finish(out)

    return evaluate


def _lone(compiler: StatementCompiler, tree: nodes.Template) -> Evaluate:
    """The only expression of the source, with its type."""
    output = tree.body[0]
    assert isinstance(output, nodes.Output)  # noqa: S101  # the tokens said so
    if referenced(output.nodes[0]) is not None:
        return _text(compiler, tree)
    evaluate = compiler.expression(output.nodes[0])
    if isinstance(split_path(output.nodes[0])[0], nodes.Name):
        return evaluate

    def measured(frame: Frame) -> Any:
        value = evaluate(frame)
        frame.produce(frame.weigh(value))
        return value

    return measured
