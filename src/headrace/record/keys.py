"""API keys. A key is shown once, when it is made; what is kept is its SHA-256, which is enough for a random one."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update
from uuid_utils import uuid7

from headrace.errors import BadValue
from headrace.record.acceptance import audit_line
from headrace.record.clock import now_ms
from headrace.record.database import Database
from headrace.record.tables import api_keys, audit
from headrace.settings import SCOPES

PREFIX = "hr_"
SECRET_BYTES = 32
NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    name: str
    hash: str
    scopes: frozenset[str]
    created_ms: int
    revoked_ms: int | None = None


def key_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, scopes: Collection[str], actor: str) -> tuple[Key, str]:
        """The key's row, and its secret, which nobody can read again."""
        _check(name, scopes)
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        key = Key(str(uuid7()), name, key_hash(secret), frozenset(scopes), now_ms())
        row = {
            "id": key.id,
            "name": key.name,
            "hash": key.hash,
            "scopes": " ".join(scope for scope in SCOPES if scope in key.scopes),
            "created_ms": key.created_ms,
        }
        async with self._database.write() as connection:
            await connection.execute(insert(api_keys), [row])
            await connection.execute(insert(audit), [audit_line(actor, "create_key", detail=key.id)])
        return key, secret

    async def revoke(self, key_id: str, actor: str) -> bool:
        """False: there is no such key, or it was revoked before."""
        change = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_ms.is_(None))
        async with self._database.write() as connection:
            if not (await connection.execute(change.values(revoked_ms=now_ms()))).rowcount:
                return False
            await connection.execute(insert(audit), [audit_line(actor, "revoke_key", detail=key_id)])
        return True

    async def all(self) -> list[Key]:
        """Also the revoked ones, oldest first."""
        async with self._database.read() as connection:
            return [_key(row) for row in await connection.execute(select(api_keys).order_by(api_keys.c.id))]

    async def find(self, secret_hash: str) -> Key | None:
        """The key in force with this hash."""
        query = select(api_keys).where(api_keys.c.hash == secret_hash, api_keys.c.revoked_ms.is_(None))
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else _key(row)


def _check(name: str, scopes: Collection[str]) -> None:
    if not 0 < len(name) <= NAME_CHARS or not name.isprintable():
        raise BadValue(f"a key's name has 1 to {NAME_CHARS} printable characters")
    if not scopes or not set(scopes) <= set(SCOPES):
        raise BadValue(f"a key has one or more of the scopes {', '.join(SCOPES)}")


def _key(row: Row[Any]) -> Key:
    return Key(row.id, row.name, row.hash, frozenset(row.scopes.split()), row.created_ms, row.revoked_ms)
