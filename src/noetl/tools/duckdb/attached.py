"""Other databases and cloud storage, by alias: what has to be said to DuckDB before the statements run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.kernel.event import Json
from noetl.tools.values import BadField

__all__ = ["Attachment", "attachments_of"]

# What DuckDB calls it -> what a credential may call it.
_POSTGRES = {
    "HOST": ("db_host", "host"),
    "PORT": ("db_port", "port"),
    "USER": ("db_user", "user", "username"),
    "PASSWORD": ("db_password", "password"),
    "DATABASE": ("db_name", "dbname", "database"),
}
_BUCKET = {
    "KEY_ID": ("key_id", "access_key_id", "aws_access_key_id", "access_key"),
    "SECRET": ("secret_key", "secret_access_key", "aws_secret_access_key", "secret"),
    "SESSION_TOKEN": ("session_token", "aws_session_token"),
    "REGION": ("region", "aws_region"),
    "ENDPOINT": ("endpoint", "endpoint_url"),
    "URL_STYLE": ("url_style",),
    "USE_SSL": ("use_ssl",),
    "SCOPE": ("scope",),
}
_HIDDEN = ("PASSWORD", "SECRET", "SESSION_TOKEN")


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """What to run first, what to run in the end, and what no message may show."""

    setup: list[str]
    undo: list[str]
    extension: str = ""
    hidden: list[str] = []


def attachments_of(auth: Any, gcs: Any) -> list[Attachment]:
    """Read `auth` and `gcs_credential`. Raises BadField."""
    found = [_attachment(alias, entry) for alias, entry in _aliases(auth)]
    if gcs is not None:
        if not isinstance(gcs, Mapping):
            raise _refused("gcs_credential has not been resolved")
        found.append(_attachment("gcs", {"type": "gcs_hmac", **gcs}))
    return found


def _aliases(auth: Any) -> list[tuple[str, Json]]:
    if auth is None or auth == {}:
        return []
    if not isinstance(auth, Mapping):
        raise _refused("the credential has not been resolved")
    one = "type" in auth or not all(isinstance(entry, Mapping) for entry in auth.values())
    pairs = [("db", auth)] if one else list(auth.items())
    return [(alias, {**entry, **(entry.get("data") or {})}) for alias, entry in pairs]


def _attachment(alias: str, entry: Json) -> Attachment:
    kind = str(entry.get("type") or entry.get("tool") or entry.get("service") or _guess(entry)).lower()
    name = _identifier(alias)
    if kind in ("postgres", "postgresql"):
        secret = _secret(f"noetl_{alias}", "postgres", entry, _POSTGRES)
        attach = f"ATTACH '' AS {name} (TYPE postgres, SECRET {_identifier(f'noetl_{alias}')})"
        return Attachment(
            setup=[secret, attach], undo=[f"DETACH {name}", f"DROP SECRET {_identifier(f'noetl_{alias}')}"],
            extension="postgres", hidden=_hidden(entry, _POSTGRES),
        )  # fmt: skip
    if kind in ("s3", "gcs", "gcs_hmac"):
        secret = _secret(alias, "s3" if kind == "s3" else "gcs", entry, _BUCKET)
        return Attachment(
            setup=[secret], undo=[f"DROP SECRET {name}"], extension="httpfs", hidden=_hidden(entry, _BUCKET)
        )
    if kind in ("duckdb", "sqlite") and (path := entry.get("path") or entry.get("database")):
        return Attachment(
            setup=[f"ATTACH {_literal(path)} AS {name} (TYPE {kind})"], undo=[f"DETACH {name}"],
            extension="" if kind == "duckdb" else kind,
        )  # fmt: skip
    raise _refused(f"the credential '{alias}' is of type '{kind}', which duckdb cannot attach")


def _guess(entry: Json) -> str:
    if "db_host" in entry or "host" in entry:
        return "postgres"
    return "s3" if any(name in entry for name in _BUCKET["KEY_ID"]) else "unknown"


def _secret(name: str, kind: str, entry: Json, names: Mapping[str, tuple[str, ...]]) -> str:
    values = [f"{target} {_literal(value)}" for target, value in _given(entry, names).items()]
    return f"CREATE OR REPLACE TEMPORARY SECRET {_identifier(name)} ({', '.join([f'TYPE {kind}', *values])})"


def _given(entry: Json, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        target: next(entry[name] for name in choices if entry.get(name) is not None)
        for target, choices in names.items()
        if any(entry.get(name) is not None for name in choices)
    }


def _hidden(entry: Json, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [str(value) for target, value in _given(entry, names).items() if target in _HIDDEN and value]


def _literal(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(message: str) -> BadField:
    return BadField(message, kind="auth", code="CREDENTIAL_INVALID")
