"""From source to Jinja's syntax tree, without giving Jinja anything that could hurt it.

Jinja's lexer is linear, but its parser is recursive. So the tokens are checked first: their number, open brackets and
blocks, chains that the parser follows recursively, tags that templates do not have. The parser gets tokens that we
converted ourselves, since Jinja would turn 5,000 digits into an exception of another kind. What comes out is a tree
whose size and depth are known, so later passes may be recursive.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import jinja2
from jinja2 import lexer, nodes
from jinja2.parser import Parser

from headrace.errors import TemplateLimit, TemplateSyntaxError
from headrace.model.template.budget import LIMITS

RawToken = tuple[int, str, str]

_environment: Final = jinja2.Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701  # never compiles
_lexer: Final = _environment.lexer

_TAGS: Final = frozenset({"if", "elif", "else", "endif", "for", "endfor", "set", "endset", "with", "endwith", "print"})
_OPENING: Final = frozenset({"if", "for", "with"})
_CLOSING: Final = frozenset({"endif", "endfor", "endset", "endwith"})
_IGNORED: Final = frozenset({"whitespace", "comment_begin", "comment", "comment_end", "raw_begin", "raw_end"})
_NUMBERS: Final = frozenset({"integer", "float"})
_TAG_ENDS: Final = frozenset({"variable_end", "block_end"})


def has_syntax(source: str) -> bool:
    return "{" in source and ("{{" in source or "{%" in source or "{#" in source)


def parse(source: str) -> tuple[nodes.Template, bool]:
    """The syntax tree, and whether the source is exactly one `{{ expression }}`."""
    if len(source) > LIMITS.source_characters:
        raise TemplateLimit(f"a template has at most {LIMITS.source_characters:,} characters, not {len(source):,}")
    try:
        raw = _drop_dollars(source, _lex(source))
        _check(raw)
        parser = Parser(_environment, "")
        parser.stream = lexer.TokenStream(_convert(raw), None, None)
        tree = parser.parse()
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntaxError(f"line {error.lineno}: {(error.message or '')[:300]}") from None
    except RecursionError:
        raise TemplateLimit("it is nested too deeply") from None
    _measure(tree)
    return tree, _is_lone(source, raw)


def _lex(source: str) -> list[RawToken]:
    raw: list[RawToken] = []
    for token in _lexer.tokeniter(source, None):
        if token[1] != "whitespace":
            raw.append(token)
            if len(raw) > LIMITS.tokens:
                raise TemplateLimit(f"line {token[0]}: a template has at most {LIMITS.tokens:,} tokens")
    return raw


def _drop_dollars(source: str, raw: list[RawToken]) -> list[RawToken]:
    """`${{ x }}` is `{{ x }}`, as in other tools. After `{{-` only if the dollar is not before stripped blanks."""
    if "${{" not in source:
        return raw
    result: list[RawToken] = []
    for token in raw:
        if token[1] == "variable_begin" and result and result[-1][1] == "data" and result[-1][2].endswith("$"):
            line, kind, data = result.pop()
            if "$" + token[2] not in source:
                data += "$"
            if len(data) > 1:
                result.append((line, kind, data[:-1]))
        result.append(token)
    return result


def _is_lone(source: str, raw: list[RawToken]) -> bool:
    return (
        source.endswith("}}")
        and raw[0][1] == "variable_begin"
        and raw[-1][1] == "variable_end"
        and sum(token[1] == "variable_begin" for token in raw) == 1
    )


def _check(raw: list[RawToken]) -> None:
    """Refuse what the recursive parser could not survive, and tags that templates do not have."""
    brackets = blocks = unary = inline = 0
    tag = ""
    assigns = opened = False
    for line, kind, value in raw:
        if opened:
            opened = False
            tag = _known_tag(line, value) if kind == "name" else ""
            blocks += (tag in _OPENING) - (tag in _CLOSING)
        if kind == "operator":
            unary = unary + 1 if value in "+-" else 0
            brackets += (value in "([{") - (value in ")]}")
            assigns = assigns or (value == "=" and brackets == 0)
        elif kind == "name":
            unary = unary + 1 if value == "not" else 0
            inline += value == "else"
        elif kind == "block_begin":
            opened, assigns = True, False
        elif kind in _TAG_ENDS:
            blocks += kind == "block_end" and tag == "set" and not assigns
            brackets = unary = inline = 0
            tag = ""
        else:
            unary = 0
            if kind in _NUMBERS and len(value) > LIMITS.number_characters:
                raise TemplateLimit(f"line {line}: a number of {len(value):,} characters is too long")
        _limit(line, brackets, LIMITS.open_brackets, "brackets within brackets")
        _limit(line, blocks, LIMITS.open_blocks, "blocks within blocks")
        _limit(line, max(unary, inline), LIMITS.inline_chain, "operators or `else` in a row")


def _limit(line: int, count: int, limit: int, what: str) -> None:
    if count > limit:
        raise TemplateLimit(f"line {line}: more than {limit} {what}")


def _known_tag(line: int, tag: str) -> str:
    if tag not in _TAGS:
        raise TemplateSyntaxError(
            f"line {line}: there is no {{% {tag[:40]} %}} in templates; there are if, for, set, with and raw"
        )
    return tag


def _convert(raw: list[RawToken]) -> Iterator[lexer.Token]:
    """What Jinja's own conversion does, with numbers and escapes that cannot fail in unforeseen ways."""
    for line, kind, value in raw:
        if kind in _IGNORED:
            continue
        if kind == "operator":
            yield lexer.Token(line, lexer.operators[value], value)
        elif kind == "name":
            if not value.isidentifier():
                raise TemplateSyntaxError(f"line {line}: {value[:40]!r} is not a name")
            yield lexer.Token(line, kind, value)
        elif kind == "string":
            yield lexer.Token(line, kind, _unescape(line, value[1:-1]))
        elif kind in _NUMBERS:
            yield lexer.Token(line, kind, _number(line, value))  # type: ignore[arg-type]
        else:
            yield lexer.Token(line, kind, value)


def _number(line: int, value: str) -> int | float:
    digits = value.replace("_", "")
    number = float(digits) if any(mark in digits for mark in ".eE") and digits[:2].lower() != "0x" else int(digits, 0)
    if number > LIMITS.integer and (isinstance(number, int) or math.isinf(number)):
        raise TemplateLimit(f"line {line}: the number {value[:20]} is too large")
    return number


_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "0": "\0", "/": "/"}


def _unescape(line: int, text: str) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 1:
            return _ESCAPED.get(code, match[0])
        number = int(code[1:], 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise TemplateSyntaxError(f"line {line}: {match[0]} is not a character")
        return chr(number)

    return _ESCAPE.sub(replacement, text)


def _measure(tree: nodes.Template) -> None:
    """Bound the number of nodes and the depth. Never recursive: a chain of filters is as deep as it is long."""
    count = depth = 0
    level: list[nodes.Node] = [tree]
    while level:
        depth += 1
        count += len(level)
        if count > LIMITS.syntax_nodes:
            raise TemplateLimit(f"a template has at most {LIMITS.syntax_nodes:,} syntax nodes")
        if depth > LIMITS.syntax_depth:
            raise TemplateLimit(
                f"line {level[0].lineno}: it is nested or chained more than {LIMITS.syntax_depth} levels deep"
            )
        level = [child for node in level for child in node.iter_child_nodes()]
