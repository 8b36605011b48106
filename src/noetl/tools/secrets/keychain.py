"""The keychain of a playbook: entries resolved on first use, on the worker (DSL.md 10.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from noetl.errors import InvalidInput, NoetlError, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.time import format_time
from noetl.playbook.document import KeychainEntry
from noetl.playbook.templates import Host, TemplateError, paths, render_strict
from noetl.ports.clock import Clock
from noetl.tools.secrets.cache import Held, KeychainCache, Situation
from noetl.tools.secrets.oauth import DEFAULT_LIFETIME, Http, fetch_token
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Environment, Resolver, SecretFiles, Source
from noetl.tools.secrets.types import is_secret

__all__ = ["RENEW_BEFORE", "Keychain", "Means"]

RENEW_BEFORE = 300.0
"""Seconds to live below which an entry with `auto_renew` is renewed before it is used."""

_log = logging.getLogger("noetl.keychain")
_CACHED = ("credential", "oauth2")  # the others cost nothing, and change when what they are made of changes


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has to resolve entries with."""

    credential: Resolver
    clock: Clock
    environment: Environment
    files: SecretFiles
    http: Http | None = None
    cache: KeychainCache
    """Shared by all executions of this process."""


class Keychain:
    """The entries of one playbook as one execution sees them. Everything it hands out the redactor knows first."""

    def __init__(
        self, entries: Sequence[KeychainEntry], means: Means, at: Situation, redactor: Redactor | None = None
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._means = means
        self._at = at
        self._failed: set[str] = set()
        self.redactor = redactor or Redactor()

    async def names_for(self, *written: Any, names: Mapping[str, Any] | None = None) -> dict[str, Json]:
        """What `keychain` stands for in these templates: each entry they name, with its fields.

        An entry that cannot be resolved is logged and left out, so it is undefined. `names` are the other names
        that entries may use, such as `workload`.
        """
        wanted = set(_named(written))
        everything = "" in wanted
        found: dict[str, Held] = {}
        for name in self._entries:  # in order: a later entry may use an earlier one
            if everything or name in wanted:
                await self._resolve(name, found, names or {})
        return {name: held.fields for name, held in found.items() if everything or name in wanted}

    async def _resolve(self, name: str, found: dict[str, Held], names: Mapping[str, Any]) -> None:
        if name in found or name in self._failed:
            return
        entry = self._entries[name]
        try:
            held = await self._obtain(entry, found, names)
        except (NoetlError, TemplateError) as error:
            self._failed.add(name)
            _log.warning(
                "keychain entry '%s' of kind %s is undefined: %s", name, entry.kind, self.redactor.error(error)
            )
            return
        self._tell(entry, held)
        found[name] = held

    async def _obtain(self, entry: KeychainEntry, found: dict[str, Held], names: Mapping[str, Any]) -> Held:
        used = [name for name in self._earlier(entry) if name in set(_named(entry.fields))]
        for name in used:
            await self._resolve(name, found, names)
        known = {name: found[name].fields for name in used if name in found}
        host = Host(now=format_time(self._means.clock.now()))
        fields = render_strict(entry.fields, {**names, "keychain": known}, host=host)
        if entry.kind in _CACHED:
            return await self._cached(entry, fields)
        held = await self._make(entry.kind, fields)
        ends = [found[name].expires_at for name in known]
        return Held(fields=held.fields, expires_at=min((end for end in ends if end is not None), default=None))

    def _earlier(self, entry: KeychainEntry) -> Iterator[str]:
        for name in self._entries:
            if name == entry.name:
                return
            yield name

    async def _cached(self, entry: KeychainEntry, fields: Json) -> Held:
        cache, now = self._means.cache, self._means.clock.now
        digest = cache.digest(entry.kind, fields)
        held = cache.find(self._at, entry.name, digest, now())
        if held is not None and not _is_ending(entry, held, now()):
            return held
        async with cache.one_at_a_time(self._at.tenant, self._at.member(entry.scope), entry.name, digest):
            held = cache.find(self._at, entry.name, digest, now())
            if held is not None and not _is_ending(entry, held, now()):
                return held
            try:
                made = await self._make(entry.kind, fields)
            except Unavailable as error:
                if held is None:
                    raise
                _log.warning("keychain entry '%s' is not renewed yet: %s", entry.name, self.redactor.error(error))
                return held  # it has not expired; the next use tries again
            cache.keep(self._at, entry.scope, entry.name, digest, made)
            return made

    async def _make(self, kind: str, fields: Json) -> Held:
        match kind:
            case "static":
                return Held(fields=_mapping(fields, "map"))
            case "bearer":
                return Held(fields={"token": _text(fields, "token")})
            case "credential":
                return await self._stored(_text(fields, "credential"))
            case "secrets":
                return await self._secrets(fields)
            case "oauth2":
                return await self._token(fields)
            case "google_id_token":
                raise InvalidInput(
                    "google_id_token needs a signer for service accounts, which this release does not have",
                    hint="get the token elsewhere and use a bearer entry, or an oauth2 entry with your token endpoint",
                )
            case _:
                raise InvalidInput(f"keychain kind '{kind}' is not known")

    async def _stored(self, name: str) -> Held:
        credential = await self._means.credential(name)
        ends = self._means.clock.now() + int(DEFAULT_LIFETIME * 1e6)
        return Held(fields=credential.data, expires_at=ends)

    async def _secrets(self, fields: Json) -> Held:
        sources: dict[str, Source] = {"environment": self._means.environment, "file": self._means.files}
        provider = fields.get("provider")
        source = sources.get(provider) if isinstance(provider, str) else None
        if source is None:
            raise InvalidInput(
                f"the secrets provider '{provider}' is not available here",
                hint="use 'environment' or 'file', or store the secret with noetl credential add",
            )
        wanted = _mapping(fields, "map")
        return Held(fields={field: await source.read(str(path)) for field, path in wanted.items()})

    async def _token(self, fields: Json) -> Held:
        if self._means.http is None:
            raise InvalidInput("oauth2 entries cannot be resolved here: there is no HTTP client")
        return await fetch_token(self._means.http, fields, self._means.clock.now())

    def _tell(self, entry: KeychainEntry, held: Held) -> None:
        """Host names and the like are no secrets by themselves, except where the entry has nothing but secrets."""
        mixed = entry.kind in ("credential", "oauth2", "static")
        for field, value in held.fields.items():
            self.redactor.add(f"{entry.name}.{field}", value, secret=not mixed or is_secret(field, value))


def _is_ending(entry: KeychainEntry, held: Held, now: int) -> bool:
    return entry.auto_renew and held.left(now) < RENEW_BEFORE


def _named(value: Any) -> Iterator[str]:
    """The entries that templates name; an empty name where they look one up that cannot be foreseen."""
    if isinstance(value, str):
        yield from (path[1] if len(path) > 1 else "" for path in paths(value) if path[0] == "keychain")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)


def _mapping(fields: Json, name: str) -> Json:
    value = fields.get(name)
    if not isinstance(value, dict) or not value:
        raise InvalidInput(f"the entry has no '{name}' with at least one field", hint=f"{name}: {{field: value}}")
    return value


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"the entry has no '{name}' that is text")
    return value
