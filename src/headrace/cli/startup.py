"""What every command begins with: settings and handlers, with words for what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.settings import Settings
from headrace.worker.registry import Registry

USAGE = 2


def load_settings() -> Settings:
    from pydantic import ValidationError

    try:
        return Settings()
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            print(f"headrace: setting {name}: {problem['msg']}", file=sys.stderr)
        sys.exit(USAGE)


def load_registry(modules: Sequence[str]) -> Registry:
    try:
        return Registry.load(modules)
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)
        sys.exit(USAGE)
