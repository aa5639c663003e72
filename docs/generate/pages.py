"""Where the generated blocks are: finds their places in a page and fills them."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate import chaos, commands, fields, handlers, metrics, settings, templates

PAGES = Path(__file__).parents[1] / "reference"
WITH_BLOCKS = (*sorted(PAGES.glob("*.md")), PAGES.parent / "how-we-test-it.md")
BLOCKS = {
    **fields.BLOCKS,
    **templates.BLOCKS,
    **handlers.BLOCKS,
    **commands.BLOCKS,
    **settings.BLOCKS,
    **metrics.BLOCKS,
    **chaos.BLOCKS,
}

_block = re.compile(r"<!-- made by make docs: (?P<name>[^\n]+?) -->\n.*?<!-- end -->", re.DOTALL)


def filled(page: str) -> str:
    """The page with all of its blocks as the code says."""
    return _block.sub(lambda found: _made(found["name"]), page)


def names_in(page: str) -> list[str]:
    return [found["name"] for found in _block.finditer(page)]


def _made(name: str) -> str:
    return f"<!-- made by make docs: {name} -->\n\n{BLOCKS[name]()}\n\n<!-- end -->"
