"""Secrets of commands that run far from the wallet: asked for under the lease of the command that names them."""

from __future__ import annotations

import contextvars
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from noetl.errors import Unavailable
from noetl.observe.logs import filtered
from noetl.playbook.document import Playbook, Step
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential
from noetl.runtime.remote.client import Hand, RemoteControlPlane
from noetl.runtime.vault import Session, Vault
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.cache import Situation

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noetl.tools.http.tokens import TokenClient

__all__ = ["IN_HAND", "RemoteCredentials", "Vaults", "in_hand"]

IN_HAND: contextvars.ContextVar[Hand] = contextvars.ContextVar("noetl_command_in_hand")
"""The command that the running task works on."""
_KEPT = 1024


def in_hand() -> Hand:
    """The command that is being worked on."""
    return IN_HAND.get()


class RemoteCredentials:
    """The wallet, as far as a command may open it."""

    def __init__(self, control: RemoteControlPlane) -> None:
        self._control = control

    async def resolve(self, tenant_id: str, name: str) -> Credential:
        """A credential that the command in hand names. Raises NotFound, Forbidden, LeaseLost."""
        return await self._control.credential(in_hand(), name)

    async def encrypter(self) -> Callable[[str], str]:
        """The key stays with the server. Raises Unavailable."""
        raise Unavailable(
            "encrypt_secret cannot be used on a worker: the key of the wallet stays with the server",
            hint="store the secret with noetl credential add, and name it",
        )


class Vaults:
    """A vault for each tenant, and what they remember of executions for as long as these are at work here."""

    def __init__(
        self,
        control: RemoteControlPlane,
        clock: Clock,
        client: Callable[[], TokenClient],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._credentials = RemoteCredentials(control)
        self._clock = clock
        self._client = client
        self._environ = os.environ if environ is None else environ
        self._vaults: dict[str, Vault] = {}
        self._guards: list[AbstractContextManager[None]] = []
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def open(
        self,
        playbook: Playbook,
        step: Step,
        situation: Situation,
        names: Callable[[], Mapping[str, Any]],
        authority: Authority = EVERYTHING,
    ) -> Session:
        """A session for a command. Raises NoetlError."""
        self._note(situation.tenant, situation.execution)
        return await self._of(situation.tenant).open(playbook, step, situation, names, authority)

    async def close(self) -> None:
        """Let go of connections, and of the log's filters."""
        for guard in self._guards:
            guard.__exit__(None, None, None)
        for vault in self._vaults.values():
            await vault.close()

    def _of(self, tenant_id: str) -> Vault:
        if tenant_id not in self._vaults:
            vault = Vault(self._credentials, self._clock, tenant_id, self._environ, self._client)
            guard = filtered(vault.guard)
            guard.__enter__()
            self._guards.append(guard)
            self._vaults[tenant_id] = vault
        return self._vaults[tenant_id]

    def _note(self, tenant_id: str, execution: str) -> None:
        """Nobody tells a worker that an execution is over: those that were not seen for longest are forgotten."""
        self._seen[tenant_id, execution] = None
        self._seen.move_to_end((tenant_id, execution))
        if len(self._seen) > _KEPT:
            (tenant, oldest), _ = self._seen.popitem(last=False)
            self._vaults[tenant].forget(oldest)
