"""The vault: a worker's way to secrets, and the guard that none of them leaves with its report."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.kernel.event import Json
from noetl.playbook.document import Playbook, Step
from noetl.playbook.mentions import mentions
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.auth import resolve_auth
from noetl.tools.secrets.cache import KeychainCache, Situation
from noetl.tools.secrets.keychain import Keychain, Means, entries_named
from noetl.tools.secrets.logs import RedactingFilter
from noetl.tools.secrets.oauth import Answer, Request
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Environment, Resolver, SecretFiles, with_environment
from noetl.tools.secrets.tokens import Tokens, tokens_asked

if TYPE_CHECKING:
    from noetl.tools.http.tokens import TokenClient

__all__ = ["OpensSessions", "ResolvesCredentials", "Session", "Vault", "Wanted", "wanted_by"]

_KEPT = 4096
_ANY = re.compile(rb"keychain|token|encrypt_secret")
_ENCRYPTS = re.compile(rb"encrypt_secret")
_NAMING = frozenset({"gcs_credential", "script", "source", "target"})
"""Fields in which a credential may be named."""


class Session:
    """The secrets of one command. What it hands out, its redactor knows."""

    def __init__(self, resolver: Resolver, encrypt: Callable[[str], str] | None, redactor: Redactor) -> None:
        self._resolver = resolver
        self.redactor = redactor
        self.tokens = Tokens(resolver, redactor)
        self.encrypt = encrypt
        self.names: dict[str, Any] = {}
        self._known: dict[str, Json | None] = {}

    async def auth(self, rendered: Any) -> Json | None:
        """The data of the credentials that a task names. Raises NotFound, InvalidInput, Forbidden.

        Of one credential it is the same object for as long as the session lasts: the rows of a frame share it.
        """
        if not isinstance(rendered, str):
            return await resolve_auth(rendered, self._resolver, self.redactor)
        if rendered not in self._known:
            self._known[rendered] = await resolve_auth(rendered, self._resolver, self.redactor)
        return self._known[rendered]

    async def resolved(self, auth: Any, fields: Json) -> tuple[Json | None, Json]:
        """The credentials and the fields of a task, as its call has them. Raises as `auth` does."""
        known = self._known.get(auth) if type(auth) is str else None
        if known is None and auth is not None:
            known = await self.auth(auth)
        return known, await self.fields(fields)

    async def fields(self, rendered: Json) -> Json:
        """The fields of a task with the credentials resolved that they name. Raises as `auth` does."""
        if _NAMING.isdisjoint(rendered):
            return rendered
        if isinstance(rendered.get("gcs_credential"), str):
            rendered = {**rendered, "gcs_credential": await self.auth(rendered["gcs_credential"])}
        script = rendered.get("script")
        source = script.get("source") if isinstance(script, dict) else None
        if isinstance(script, dict) and isinstance(source, dict) and source.get("auth"):
            known = {**source, "auth": await self.auth(source["auth"])}
            rendered = {**rendered, "script": {**script, "source": known}}
        for name in ("source", "target"):  # the sides of a transfer
            side = rendered.get(name)
            if isinstance(side, dict) and side.get("auth"):
                rendered = {**rendered, name: {**side, "auth": await self.auth(side["auth"])}}
        return rendered

    def redacted(self, said: Report | Suspension) -> Report | Suspension:
        """What a worker says, without a single secret in it."""
        if self.redactor.is_empty:
            return said
        clean = self.redactor.value
        if isinstance(said, Suspension):
            return msgspec.structs.replace(said, call=clean(said.call), state=clean(said.state))
        return msgspec.structs.replace(
            said,
            result=clean(said.result),
            error=clean(said.error),
            set=clean(said.set),
            detail=clean(said.detail),
        )


class Wanted(msgspec.Struct, frozen=True):
    """The secrets that the text of a step asks for."""

    entries: frozenset[str]
    tokens: frozenset[str]
    encrypts: bool


_NOTHING = Wanted(frozenset(), frozenset(), encrypts=False)
_SOMETHING = Wanted(frozenset(), frozenset(), encrypts=True)


class ResolvesCredentials(Protocol):
    """What a vault needs of the wallet, which may be far away."""

    async def resolve(self, tenant_id: str, name: str) -> Credential:
        """The credential with its values. Raises NotFound, InvalidInput, Forbidden."""
        ...

    async def encrypter(self) -> Callable[[str], str]:
        """A function that seals a text under the current key. Raises Unavailable where the key is not to be had."""
        ...


class OpensSessions(Protocol):
    """Whoever opens sessions for commands: the vault itself, or one that asks it from far away."""

    async def open(
        self,
        playbook: Playbook,
        step: Step,
        situation: Situation,
        names: Callable[[], Mapping[str, Any]],
        authority: Authority = EVERYTHING,
    ) -> Session:
        """A session for a command of a step. Raises NoetlError."""
        ...


class Vault:
    """Opens sessions on the stored credentials of one tenant.

    All commands of an execution share one redactor: a secret that one of them has seen is a secret in the report
    of the next, too. `guard` is for the handlers of this process's log.
    """

    def __init__(
        self,
        credentials: ResolvesCredentials,
        clock: Clock,
        tenant_id: str,
        environ: Mapping[str, str] | None = None,
        client: Callable[[], TokenClient] | None = None,
    ) -> None:
        self._credentials = credentials
        self._tenant_id = tenant_id
        variables = os.environ if environ is None else environ
        environment = Environment(variables)
        self._resolve = with_environment(self._stored, environment)
        self._make_client = client
        self._client: TokenClient | None = None
        self._means = Means(
            credential=self._resolve,
            clock=clock,
            environment=environment,
            files=SecretFiles(variables),
            http=None if client is None else self._ask,
            cache=KeychainCache(),
        )
        self._wanted: OrderedDict[tuple[str, str], Wanted] = OrderedDict()
        self._redactors: dict[str, Redactor] = {}
        self.guard = RedactingFilter()

    async def open(
        self,
        playbook: Playbook,
        step: Step,
        situation: Situation,
        names: Callable[[], Mapping[str, Any]],
        authority: Authority = EVERYTHING,
    ) -> Session:
        """A session for a command of a step; only the secrets that its templates name are resolved.

        `names` are asked for only if an entry is resolved, which may use them. Raises NoetlError.
        """
        wanted = self._wanted_by(playbook, step, situation.version)
        encrypt = await self._credentials.encrypter() if wanted.encrypts else None
        redactor = self._redactor(situation.execution)
        session = Session(_checked(self._resolve, authority), encrypt, redactor)
        if wanted.entries and playbook.keychain:
            keychain = Keychain(playbook.keychain, self._means, situation, redactor, authority)
            session.names = {"keychain": await keychain.resolved(wanted.entries, names())}
        if wanted.tokens:
            await session.tokens.fetch(wanted.tokens)
        return session

    def forget(self, execution: str) -> None:
        """An execution is over: let go of what was only for it."""
        self._means.cache.forget(execution)
        self._redactors.pop(execution, None)

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.close()

    async def _ask(self, request: Request) -> Answer:
        """Ask a token endpoint. Few runs do, so the client is made by the first that does."""
        if self._client is None:
            assert self._make_client is not None
            self._client = self._make_client()
        return await self._client(request)

    def _redactor(self, execution: str) -> Redactor:
        if execution not in self._redactors:
            self._redactors[execution] = Redactor()
            self.guard.watch(self._redactors[execution])
        return self._redactors[execution]

    def _wanted_by(self, playbook: Playbook, step: Step, version: str) -> Wanted:
        """What a step asks for; its text is looked through once for each version of the document."""
        if version and self._asks_nothing(playbook, version):
            return _NOTHING
        key = (version, step.name)
        found = self._wanted.get(key) if version else None
        if found is None:
            found = wanted_by(playbook, step)
            self._wanted[key] = found
            if len(self._wanted) > _KEPT:
                self._wanted.popitem(last=False)
        return found

    def _asks_nothing(self, playbook: Playbook, version: str) -> bool:
        """Whether no step of a document asks for anything, as most do not; looked up once, for all of its steps."""
        key = (version, "")
        if key not in self._wanted:
            text = (playbook.steps, playbook.workbook)
            self._wanted[key] = _SOMETHING if mentions(text, _ANY) else _NOTHING
        return self._wanted[key] is _NOTHING

    async def _stored(self, name: str) -> Credential:
        return await self._credentials.resolve(self._tenant_id, name)


def _checked(resolve: Resolver, authority: Authority) -> Resolver:
    """A resolver that gives only what may be used, and looks each up once: the rows of a frame ask for the same."""
    found: dict[str, Credential] = {}

    async def checked(name: str) -> Credential:
        authority.check_credential(name)
        if name not in found:
            found[name] = await resolve(name)
        return found[name]

    return checked


def wanted_by(playbook: Playbook, step: Step) -> Wanted:
    """The secrets that a step names, itself or through the workbook."""
    text = (step, playbook.workbook if _calls_workbook(step) else {})
    if not mentions(text, _ANY):
        return _NOTHING
    written = msgspec.to_builtins(text)
    return Wanted(entries_named(written), tokens_asked(written), mentions(text, _ENCRYPTS))


def _calls_workbook(step: Step) -> bool:
    return any(task.kind == "workbook" for task in step.tasks)
