"""The vault: a worker's way to secrets, and the guard that none of them leaves with its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from noetl.engine.decide import Report
from noetl.kernel.event import Json
from noetl.playbook.document import KeychainEntry
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential, Credentials
from noetl.tools.secrets.auth import resolve_auth
from noetl.tools.secrets.cache import KeychainCache, Situation
from noetl.tools.secrets.keychain import Keychain, Means
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.sources import Environment, SecretFiles
from noetl.tools.secrets.tokens import Tokens

__all__ = ["Session", "Vault"]


class Session:
    """The secrets of one command. What it hands out, its redactor knows."""

    def __init__(self, resolver: Callable[[str], Any], encrypt: Callable[[str], str] | None) -> None:
        self._resolver = resolver
        self.redactor = Redactor()
        self.tokens = Tokens(resolver, self.redactor)
        self.encrypt = encrypt
        self.names: dict[str, Any] = {}

    async def auth(self, rendered: Any) -> Json | None:
        """The data of the credentials that a task names. Raises NotFound, InvalidInput."""
        return await resolve_auth(rendered, self._resolver, self.redactor)

    def redacted(self, report: Report) -> Report:
        """The report without a single secret in it."""
        return msgspec.structs.replace(
            report,
            result=self.redactor.value(report.result),
            error=self.redactor.value(report.error),
            set=self.redactor.value(report.set),
            detail=self.redactor.value(report.detail),
        )


class Vault:
    """Opens sessions on the stored credentials of one tenant."""

    def __init__(
        self, credentials: Credentials, clock: Clock, tenant_id: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self._credentials = credentials
        self._tenant_id = tenant_id
        variables = os.environ if environ is None else environ
        self._means = Means(
            credential=self._resolve,
            clock=clock,
            environment=Environment(variables),
            files=SecretFiles(variables),
            cache=KeychainCache(),
        )

    async def open(
        self, entries: tuple[KeychainEntry, ...], situation: Situation, written: Any, names: Mapping[str, Any]
    ) -> Session:
        """A session for a command whose templates are `written`; only the secrets they name are resolved."""
        encrypt = await self._credentials.encrypter() if "encrypt_secret" in str(written) else None
        session = Session(self._resolve, encrypt)
        if entries:
            keychain = Keychain(entries, self._means, situation, session.redactor)
            session.names = {"keychain": await keychain.names_for(written, names=names)}
        await session.tokens.prepare(written)
        return session

    async def _resolve(self, name: str) -> Credential:
        return await self._credentials.resolve(self._tenant_id, name)
