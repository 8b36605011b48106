"""What credentials of a known type consist of, and which of their fields are secret (DSL.md 10.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from noetl.errors import InvalidInput, InvalidName
from noetl.kernel.names.segments import show
from noetl.ports.credentials import Credential

__all__ = ["TYPES", "Field", "check_credential", "check_name", "check_type", "is_secret", "missing_fields"]

MAX_DATA_BYTES = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_MAX_PORT = 65535


class Field(NamedTuple):
    """A field that a type has: whether it must be there, and the other names it may go by."""

    name: str
    required: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name the field may have."""
        return (self.name, *self.aliases)


TYPES: Mapping[str, tuple[Field, ...]] = {
    "postgres": (
        Field("db_host"), Field("db_port", required=False), Field("db_user"),
        Field("db_password", required=False), Field("db_name"),
    ),
    "nats": (Field("url"), Field("user", required=False), Field("password", required=False)),
    "kafka": (Field("brokers"),),
    "pubsub": (),
    "secret": (Field("secret"),),
    "bearer": (Field("token"),),
    "basic": (Field("username", aliases=("user",)), Field("password")),
    "api_key": (),
    "s3": (),
    "gcs_hmac": (),
    "gcs_service_account": (),
    "snowflake": (),
    "google_oauth": (),
    "auth0": (),
}  # fmt: skip

# What may be shown of data. Anything not named here is a secret: a field we do not know could be one.
_PUBLIC = frozenset(
    {"db_host", "db_port", "db_user", "db_name", "db_schema", "host", "port", "user", "username", "database", "dbname",
     "schema", "warehouse", "role", "account", "region", "bucket", "endpoint", "endpoint_url", "url", "uri", "brokers",
     "bootstrap_servers", "topic", "group", "subscription", "project", "project_id", "domain", "audience", "scope",
     "scopes", "token_type", "token_uri", "auth_uri", "grant_type", "expires_in", "expires_at", "header", "header_name",
     "client_email", "client_id", "key_id", "type", "sslmode", "ssl_mode", "security_protocol", "sasl_mechanism",
     "universe_domain", "method", "service", "source", "driver"}
)  # fmt: skip


def is_secret(field: str, value: Any = None) -> bool:
    """Whether a field of a credential must not be shown. An address with a password in it is one."""
    return field.lower() not in _PUBLIC or (isinstance(value, str) and bool(_password_of(value)))


def _password_of(address: str) -> str | None:
    if "@" not in address:
        return None
    try:
        return urlsplit(address).password
    except ValueError:
        return None


def check_name(name: str) -> str:
    """The name itself. Raises InvalidName."""
    if not _NAME.fullmatch(name):
        raise InvalidName(
            f"{show(name)} is not a credential name",
            hint="use at most 128 letters, digits, '_', '-' and '.', beginning with a letter, a digit or '_'",
        )
    return name


def check_type(text: str) -> str:
    """The type itself, known or not. Raises InvalidName."""
    if not _TYPE.fullmatch(text):
        raise InvalidName(f"{show(text)} is not a credential type", hint=f"known types: {', '.join(TYPES)}")
    return text


def missing_fields(kind: str, data: Mapping[str, Any], *, optional: bool = False) -> list[Field]:
    """The fields that a credential of this type lacks; with `optional` also those it could do without."""
    return [
        field
        for field in TYPES.get(kind, ())
        if (field.required or optional) and not any(_is_there(data.get(name)) for name in field.names)
    ]


def check_credential(credential: Credential) -> None:
    """Raise InvalidInput for what its type does not allow. No message repeats a value."""
    check_name(credential.name)
    check_type(credential.type)
    missing = missing_fields(credential.type, credential.data)
    if missing:
        raise InvalidInput(
            f"credential '{credential.name}' of type {credential.type} has no {_listed(missing)}",
            hint=f"a {credential.type} credential consists of {_shape(credential.type)}",
        )
    _check_shape(credential.name, credential.data)
    for field in TYPES.get(credential.type, ()):
        for name in field.names:
            if name in credential.data:
                _check_value(credential.name, name, credential.data[name])


def _check_shape(name: str, data: object) -> None:
    if not isinstance(data, dict) or not data:
        raise InvalidInput(f"credential '{name}' has no data", hint="give at least one field")
    if any(not isinstance(field, str) or not field.strip() for field in data):
        raise InvalidInput(f"credential '{name}' has a field without a name")
    try:
        size = len(msgspec.json.encode(data))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(f"credential '{name}' has data that is not JSON") from None
    if size > MAX_DATA_BYTES:
        raise InvalidInput(f"credential '{name}' has {size} bytes of data, the limit is {MAX_DATA_BYTES}")


def _check_value(name: str, field: str, value: Any) -> None:
    if field == "db_port":
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _MAX_PORT:
            raise InvalidInput(f"credential '{name}': db_port is not a number between 1 and {_MAX_PORT}")
    elif field == "brokers":
        if not isinstance(value, str | list):
            raise InvalidInput(f"credential '{name}': brokers is not text or a list")
    elif not isinstance(value, str):
        raise InvalidInput(f"credential '{name}': {field} is not text", hint=f'write it in quotes: {field}: "..."')


def _is_there(value: Any) -> bool:
    return value is not None and value not in ("", [])


def _listed(fields: Iterable[Field]) -> str:
    return ", ".join(" or ".join(field.names) for field in fields)


def _shape(kind: str) -> str:
    return ", ".join(field.name if field.required else f"[{field.name}]" for field in TYPES[kind])
