"""What every command begins with: settings and handlers, with words for what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import logs
from headrace.errors import HeadraceError
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.worker.registry import Registry

USAGE = 2


class Usage(Exception):
    """The command was called with something that cannot be used; the lines say what."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


def load_settings() -> Settings:
    """The settings; from here on the secret ones among them are kept out of the logs."""
    from pydantic import ValidationError

    try:
        settings = Settings()
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            print(f"headrace: setting {name}: {problem['msg']}", file=sys.stderr)
        sys.exit(USAGE)
    logs.hide(settings.confidential)
    return settings


def load_registry(modules: Sequence[str], settings: Settings) -> Registry:
    from headrace.worker.registry import Registry

    try:
        return Registry.load(modules, settings)
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)
        sys.exit(USAGE)
