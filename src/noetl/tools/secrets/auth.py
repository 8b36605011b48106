"""What a task's `auth` stands for (DSL.md 10.1): credential data, or such data by alias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Resolver
from noetl.tools.secrets.types import is_secret

__all__ = ["resolve_auth"]

_NAMES = ("credential", "key", "name")
_ENTRY = frozenset({*_NAMES, "source", "tool", "service", "type", "provider", "oauth_credential", "scope"})


async def resolve_auth(auth: Any, resolver: Resolver, redactor: Redactor) -> Json | None:
    """The data of a rendered `auth`, with the credential's `type` beside its fields. Raises NotFound, InvalidInput.

    The redactor learns every value first, under the name of the credential.
    """
    if auth is None or auth in ("", {}):
        return None
    if isinstance(auth, str) or _is_entry(auth):
        return await _resolve_one(auth, resolver, redactor)
    if not isinstance(auth, Mapping):
        raise InvalidInput("auth is not the name of a credential or a mapping", hint="auth: my_credential")
    return {str(alias): await _resolve_one(entry, resolver, redactor) for alias, entry in auth.items()}


async def _resolve_one(entry: Any, resolver: Resolver, redactor: Redactor) -> Json:
    fields: Mapping[str, Any] = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping):
        raise InvalidInput("an entry of auth is not the name of a credential or a mapping")
    if fields.get("source") not in (None, "credential") or fields.get("provider"):
        source = fields.get("provider") or fields.get("source")
        raise InvalidInput(
            f"auth from '{source}' is not available here: no client for it is installed",
            hint="store it with noetl credential add and name it",
        )
    name = next((fields[key] for key in _NAMES if isinstance(fields.get(key), str) and fields[key]), None)
    if name is None:
        raise InvalidInput(
            "an entry of auth names no credential", hint="auth: {source: credential, key: my_credential}"
        )
    credential = await resolver(name)
    for field, value in credential.data.items():
        redactor.add(f"{name}.{field}", value, secret=is_secret(field, value))
    return {**credential.data, "type": fields.get("type") or credential.type}


def _is_entry(auth: Any) -> bool:
    """Known keys with a name or a source among them are one entry; anything else maps aliases."""
    if not isinstance(auth, Mapping) or not auth.keys() <= _ENTRY:
        return False
    return any(isinstance(auth.get(key), str) for key in _NAMES) or auth.get("source") in ("credential", "adc")
