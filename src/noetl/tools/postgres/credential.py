"""From a credential to the parameters of a connection."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.values import BadField, truth

__all__ = ["CONNECTION_FIELDS", "Place", "PoolSize", "place_of", "pool_of"]

# What a credential may call it -> what libpq calls it.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "host": ("db_host", "host"),
    "port": ("db_port", "port"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
    "dbname": ("db_name", "dbname", "database"),
    "sslmode": ("sslmode",),
    "sslrootcert": ("sslrootcert",),
    "application_name": ("application_name",),
    "connect_timeout": ("connect_timeout",),
}
_TEXT = ("dsn", "connection_string", "url")
CONNECTION_FIELDS = frozenset(name for names in _NAMES.values() for name in names) | frozenset(_TEXT)
"""Where a database is and who may enter belongs to a credential: none of these may stand in a task."""

CONNECT_SECONDS = 10


class Place(msgspec.Struct, frozen=True, dict=True):
    """One database as one user."""

    parameters: dict[str, str]
    text: str = ""

    @cached_property
    def key(self) -> str:
        """Tells places apart without holding the password."""
        return hashlib.sha256(msgspec.json.encode((self.parameters, self.text), order="sorted")).hexdigest()


class PoolSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections, and how long to wait for one."""

    name: str = ""
    min_size: int = 0
    """Idle connections that are kept however long nobody asks."""
    max_size: int = 10
    max_waiting: int = 1000
    timeout: float = 30.0


_USUAL = PoolSize()


def place_of(auth: Any) -> Place:
    """Read the credential, which may stand under one alias. Raises BadField."""
    data = _data(auth)
    text = next((str(data[name]) for name in _TEXT if data.get(name)), "")
    found = {
        target: str(value)
        for target, names in _NAMES.items()
        if (value := next((data[name] for name in names if data.get(name) is not None), None)) is not None
    }
    if not text and "host" not in found:
        raise _refused("the credential has no db_host")
    found.setdefault("connect_timeout", str(CONNECT_SECONDS))
    found.setdefault("application_name", "noetl")
    return Place(found, text)


def _data(auth: Any) -> Json:
    if auth is None or auth == {}:
        raise BadField("a postgres task needs auth", code="FIELD_MISSING")
    if not isinstance(auth, Mapping):
        raise _refused("the credential has not been resolved")
    if isinstance(auth.get("data"), Mapping):
        return dict(auth["data"])
    if CONNECTION_FIELDS & auth.keys():
        return dict(auth)
    if len(auth) == 1 and isinstance(inner := next(iter(auth.values())), Mapping):
        return _data(inner)
    raise _refused("the credential is not one of a Postgres database")


def pool_of(value: Any) -> PoolSize | None:
    """The `pool` of a task; None when it wants a connection of its own."""
    if value is None:
        return _USUAL
    if not isinstance(value, Mapping):
        return _USUAL if truth({"pool": value}, "pool", default=True) else None
    try:
        size = msgspec.convert(dict(value), PoolSize, strict=False)
    except msgspec.ValidationError as error:
        raise BadField(f"pool: {error}") from None
    if not (0 <= size.min_size <= size.max_size and size.max_size > 0 and size.timeout > 0 and size.max_waiting >= 0):
        raise BadField("pool: needs 0 <= min_size <= max_size, max_size of at least 1, and a timeout above 0")
    return size


def _refused(message: str) -> BadField:
    return BadField(message, kind="auth", code="CREDENTIAL_INVALID")
