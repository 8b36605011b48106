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
"""How long a session is good for: rows come by the thousand, and tokens are renewed where the keychain is."""


class DistantVault:
    """Opens sessions for the body of one stage. Whether it may have what it asks for, the keeper decides."""

    def __init__(self, plane: RemotePlane) -> None:
        self._plane = plane
        self._redactor = Redactor()
        self._known: dict[str, Any] = {}
        self._wanted: Wanted | None = None
        self._opened: tuple[float, Session] | None = None

    async def open(
        self,
        playbook: Playbook,
        step: Step,
        situation: Situation,
        names: Callable[[], Mapping[str, Any]],
        authority: Authority = EVERYTHING,
    ) -> Session:
        """A session for a frame; frames that follow each other share it. Raises NoetlError."""
        if self._opened is not None and time.monotonic() - self._opened[0] < _SECONDS:
            return self._opened[1]
        if self._wanted is None:
            self._wanted = wanted_by(playbook, step)
        begun, self._known = time.monotonic(), {}
        session = Session(self._credential, None, self._redactor)
        if self._wanted.entries and playbook.keychain:
            session.names = {"keychain": await self._keychain()}
        await session.tokens.fetch(self._wanted.tokens)
        self._opened = (begun, session)
        return session

    async def _credential(self, name: str) -> Credential:
        if name not in self._known:
            self._known[name] = await self._plane.credential(name)
        data: Json = dict(self._known[name])
        return Credential(name=name, type=str(data.pop("type", "")), data=data)

    async def _keychain(self) -> Json:
        found: Json = await self._plane.keychain()
        for name, fields in found.items():
            self._redactor.add(name, fields)
        return found
