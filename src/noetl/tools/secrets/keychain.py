"""The keychain of a playbook: entries resolved on first use, on the worker (DSL.md 10.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from noetl.errors import Forbidden, InvalidInput, NoetlError, NotFound, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.time import format_time
from noetl.playbook.document import KeychainEntry
from noetl.playbook.templates import Host, TemplateError, paths, render_strict
from noetl.ports.clock import Clock
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.cache import Held, KeychainCache, Situation
from noetl.tools.secrets.google import fetch_id_token
from noetl.tools.secrets.oauth import DEFAULT_LIFETIME, Http, fetch_token
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Environment, Resolver, SecretFiles, Source
from noetl.tools.secrets.types import is_secret

__all__ = ["RENEW_BEFORE", "Keychain", "Means", "entries_named", "kept_name"]

RENEW_BEFORE = 300.0
"""Seconds to live below which an entry with `auto_renew` is renewed before it is used."""

_log = logging.getLogger("noetl.keychain")
_DIGEST_SHOWN = 32
_CACHED = (
    "credential",
    "oauth2",
    "google_id_token",
)  # the others cost nothing, and change when what they are made of changes


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
        self,
        entries: Sequence[KeychainEntry],
        means: Means,
        at: Situation,
        redactor: Redactor | None = None,
        authority: Authority = EVERYTHING,
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._means = means
        self._at = at
        self._authority = authority
        self._failed: set[str] = set()
        self.redactor = redactor or Redactor()

    async def names_for(self, *written: Any, names: Mapping[str, Any] | None = None) -> dict[str, Json]:
        """What `keychain` stands for in these templates: each entry they name, with its fields."""
        return await self.resolved(entries_named(written), names or {})

    async def resolved(self, wanted: frozenset[str], names: Mapping[str, Any]) -> dict[str, Json]:
        """The entries of these names, with their fields; all of them if one of the names is empty.

        An entry that cannot be resolved is logged and left out, so it is undefined. `names` are the other names
        that entries may use, such as `workload`. Raises Forbidden.
        """
        everything = "" in wanted
        found: dict[str, Held] = {}
        for name in self._entries:  # in order: a later entry may use an earlier one
            if everything or name in wanted:
                await self._resolve(name, found, names)
        return {name: held.fields for name, held in found.items() if everything or name in wanted}

    async def _resolve(self, name: str, found: dict[str, Held], names: Mapping[str, Any]) -> None:
        if name in found or name in self._failed:
            return
        entry = self._entries[name]
        try:
            held = await self._obtain(entry, found, names)
        except Forbidden:
            raise  # nobody should go on as if there was no secret because they may not have it
        except (NoetlError, TemplateError) as error:
            self._failed.add(name)
            _log.warning(
                "keychain entry '%s' of kind %s is undefined: %s", name, entry.kind, self.redactor.error(error)
            )
            return
        self._tell(entry, held)
        found[name] = held

    async def _obtain(self, entry: KeychainEntry, found: dict[str, Held], names: Mapping[str, Any]) -> Held:
        if kept := await self._kept(entry):
            return kept
        mentioned = entries_named(entry.fields)
        used = [name for name in self._earlier(entry) if name in mentioned]
        for name in used:
            await self._resolve(name, found, names)
        known = {name: found[name].fields for name in used if name in found}
        host = Host(now=format_time(self._means.clock.now()))
        fields = render_strict(entry.fields, {**names, "keychain": known}, host=host)
        for name in _credentials_of(entry.kind, fields):
            self._authority.check_credential(name)
        if entry.kind in _CACHED:
            return await self._cached(entry, fields)
        held = await self._make(entry.kind, fields)
        ends = [found[name].expires_at for name in known]
        return Held(fields=held.fields, expires_at=min((end for end in ends if end is not None), default=None))

    async def _kept(self, entry: KeychainEntry) -> Held | None:
        """What somebody has put into the wallet for just this entry of just this document."""
        name = kept_name(self._at.version, entry.name)
        try:
            credential = await self._means.credential(name)
        except NotFound:
            return None
        self._authority.check_credential(name)
        return Held(fields=credential.data)

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
                return await fetch_id_token(self._client(), fields, self._means.credential, self._means.clock.now())
            case _:
                raise InvalidInput(f"keychain kind '{kind}' is not known")

    async def _stored(self, name: str) -> Held:
        credential = await self._means.credential(name)
        ends = self._means.clock.now() + int(DEFAULT_LIFETIME * 1e6)
        return Held(fields=credential.data, expires_at=ends)

    async def _secrets(self, fields: Json) -> Held:
        files = self._means.files
        sources: dict[str, Source] = {
            "environment": self._means.environment, "env": self._means.environment, "file": files, "files": files,
        }  # fmt: skip
        provider = fields.get("provider")
        source = sources.get(provider) if isinstance(provider, str) else None
        if source is None:
            raise InvalidInput(
                f"the secrets provider '{provider}' is not available here: no client for it is installed",
                hint="use 'environment' or 'file', or store the secret with noetl credential add",
            )
        wanted = _mapping(fields, "map")
        return Held(fields={field: await source.read(str(path)) for field, path in wanted.items()})

    async def _token(self, fields: Json) -> Held:
        return await fetch_token(self._client(), fields, self._means.clock.now())

    def _client(self) -> Http:
        if self._means.http is None:
            raise InvalidInput("tokens cannot be fetched here: there is no HTTP client")
        return self._means.http

    def _tell(self, entry: KeychainEntry, held: Held) -> None:
        """Host names and the like are no secrets by themselves, except where the entry has nothing but secrets."""
        mixed = entry.kind in ("credential", "oauth2", "static")
        for field, value in held.fields.items():
            self.redactor.add(f"{entry.name}.{field}", value, secret=not mixed or is_secret(field, value))


def kept_name(document: str, entry: str) -> str:
    """The name in the wallet of values kept for an entry of a document, which is named by its digest."""
    return f"keychain.{document[:_DIGEST_SHOWN]}.{entry}"


def _is_ending(entry: KeychainEntry, held: Held, now: int) -> bool:
    return entry.auto_renew and held.left(now) < RENEW_BEFORE


def entries_named(written: Any) -> frozenset[str]:
    """The entries that templates name; an empty name where they look one up that cannot be foreseen."""
    return frozenset(_named(written))


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (path[1] if len(path) > 1 else "" for path in _paths(value) if path[0] == "keychain")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)


def _paths(text: str) -> frozenset[tuple[str, ...]]:
    if "keychain" not in text:
        return frozenset()
    try:
        return paths(text)
    except TemplateError:  # used as it stands, or refused where it is rendered
        return frozenset()


def _credentials_of(kind: str, fields: Json) -> list[str]:
    """What a resolved entry would take from elsewhere, by name. Variables and files are credentials like others."""
    named = {"credential": ("credential",), "google_id_token": ("service_account_credential", "auth")}.get(kind, ())
    found = [fields[name] for name in named if isinstance(fields.get(name), str)]
    if kind == "secrets" and isinstance(fields.get("map"), dict):
        found += [str(name) for name in fields["map"].values()]
    return found


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
