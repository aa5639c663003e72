"""Secrets at their only place: a worker has their values, and puts them into a config just before its handler gets it.

Where they go is said by `Work.secrets`, which the orchestrator made from the definition's templates alone. The config
itself is never searched, so text that looks like a reference stays text. What comes out goes to the handler, and is
written nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import BadValue
from headrace.model.messages import Secret, SecretText

MOST_CHARACTERS = 4 << 20  # of all texts with secrets of one config: a loop may name a long secret often

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class SecretMissing(Exception):
    """A config names a secret that this worker does not have."""


class Secrets:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def put_into(self, config: msgspec.Raw, texts: Sequence[SecretText]) -> msgspec.Raw:
        """The config with the texts in their places; raises SecretMissing, or BadValue where they do not fit."""
        self._check(texts)
        filled = _decode(config)
        for text in texts:
            _put(filled, text.path, "".join(map(self._piece, text.pieces)))
        return msgspec.Raw(_encode(filled))

    def _check(self, texts: Sequence[SecretText]) -> None:
        """That all are there and, before anything is built, that it will not be too large."""
        pieces = [piece for text in texts for piece in text.pieces]
        names = {piece.secret for piece in pieces if isinstance(piece, Secret)}
        if missing := sorted(names - self._values.keys()):
            several = len(missing) > 1
            raise SecretMissing(
                f"secret{'s' * several} {', '.join(missing)} {'are' if several else 'is'} not set on this worker: "
                f"set {', '.join(f'HEADRACE_SECRET_{name}' for name in missing)}"
            )
        if sum(len(self._piece(piece)) for piece in pieces) > MOST_CHARACTERS:
            raise BadValue(f"the texts with secrets have more than {MOST_CHARACTERS:,} characters")

    def _piece(self, piece: str | Secret) -> str:
        return piece if isinstance(piece, str) else self._values[piece.secret]


def _put(config: Any, path: Sequence[str | int], text: str) -> None:
    *way, last = path
    try:
        for step in way:
            config = config[step]
        config[last]  # only what is there is replaced
        config[last] = text
    except (LookupError, TypeError):
        raise BadValue("the places of the secrets do not fit the config") from None
