"""Secrets for slots of another process: asked for over the stage's plane, kept for a moment, redacted as at home."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from noetl.kernel.event import Json
from noetl.playbook.document import Playbook, Step
from noetl.ports.credentials import Credential
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.vault import Session, Wanted, wanted_by
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.cache import Situation
from noetl.tools.secrets.redaction import Redactor

__all__ = ["DistantVault"]

_SECONDS = 15.0
"""How long an answer is good for: rows come by the thousand, and tokens are renewed where the keychain is."""


class DistantVault:
    """Opens sessions for the body of one stage. Whether it may have what it asks for, the keeper decides."""

    def __init__(self, plane: RemotePlane) -> None:
        self._plane = plane
        self._redactor = Redactor()
        self._known: dict[str, tuple[float, Any]] = {}
        self._wanted: Wanted | None = None

    async def open(
        self,
        playbook: Playbook,
        step: Step,
        situation: Situation,
        names: Callable[[], Mapping[str, Any]],
        authority: Authority = EVERYTHING,
    ) -> Session:
        """A session for a frame. Raises NoetlError."""
        if self._wanted is None:
            self._wanted = wanted_by(playbook, step)
        session = Session(self._credential, None, self._redactor)
        if self._wanted.entries and playbook.keychain:
            session.names = {"keychain": await self._keychain()}
        await session.tokens.fetch(self._wanted.tokens)
        return session

    async def _credential(self, name: str) -> Credential:
        data: Json = dict(await self._fresh(f"credential {name}", lambda: self._plane.credential(name)))
        return Credential(name=name, type=str(data.pop("type", "")), data=data)

    async def _keychain(self) -> Json:
        found: Json = await self._fresh("keychain", self._plane.keychain)
        for name, fields in found.items():
            self._redactor.add(name, fields)
        return found

    async def _fresh(self, what: str, ask: Callable[[], Any]) -> Any:
        known = self._known.get(what)
        if known is None or time.monotonic() - known[0] > _SECONDS:
            known = self._known[what] = (time.monotonic(), await ask())
        return known[1]
