"""Bearer tokens for the template function `token(credential)`.

Rendering does not wait, so the tokens are there before it begins: the names that templates give are found and resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from noetl.errors import InvalidInput
from noetl.ports.credentials import Credential
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Resolver

__all__ = ["Tokens", "token_of", "tokens_asked"]

_CALL = re.compile(r"\btoken\(\s*(?:'([^']+)'|\"([^\"]+)\")\s*\)")
_FIELDS = ("token", "access_token", "id_token", "secret", "api_key", "key", "value")


class Tokens:
    """Gives the tokens that were prepared; an object of it is the `token` of a template's host."""

    def __init__(self, resolver: Resolver, redactor: Redactor) -> None:
        self._resolver = resolver
        self._redactor = redactor
        self._tokens: dict[str, str] = {}

    async def prepare(self, *written: Any) -> None:
        """Resolve every credential that these templates ask a token of. Raises NotFound, InvalidInput, Forbidden."""
        await self.fetch(tokens_asked(written))

    async def fetch(self, names: frozenset[str]) -> None:
        """Resolve these credentials. Raises NotFound, InvalidInput, Forbidden."""
        for name in sorted(names - self._tokens.keys()):
            token = token_of(await self._resolver(name))
            self._redactor.add(f"{name}.token", token)
            self._tokens[name] = token

    def __call__(self, name: str) -> str:
        """The token of a credential."""
        if name not in self._tokens:
            raise InvalidInput(
                "token() was asked for a credential that is not written out in the template",
                hint="write the name in quotes: token('my_credential')",
            )
        return self._tokens[name]


def token_of(credential: Credential) -> str:
    """The text that goes behind `Bearer`."""
    for field in _FIELDS:
        value = credential.data.get(field)
        if isinstance(value, str) and value:
            return value
    raise InvalidInput(
        f"credential '{credential.name}' of type {credential.type} has no token",
        hint="use a bearer credential, or an oauth2 entry in the playbook's keychain",
    )


def tokens_asked(written: Any) -> frozenset[str]:
    """The credentials that templates ask a token of."""
    return frozenset(_asked(written))


def _asked(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (found[1] or found[2] for found in _CALL.finditer(value))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _asked(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _asked(inner)
