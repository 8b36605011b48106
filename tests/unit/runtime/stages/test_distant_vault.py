"""Sessions of slots in another process: frames that follow each other share one, for a moment."""

from __future__ import annotations

from typing import Any, cast

import pytest

from noetl.playbook import load
from noetl.runtime.stages import distant_vault
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.stages.distant_vault import DistantVault
from noetl.runtime.vault import Session
from noetl.tools.secrets.cache import Situation

PLAYBOOK = load(
    """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: x, path: x}
workflow:
  - step: start
    tool: {kind: http, url: "http://localhost", auth: crm}
""",
    "x.yaml",
)
SITUATION = Situation(tenant="default", execution="1", tree="1", version="v", path="x")


class Plane:
    """A keeper that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def credential(self, alias: str) -> Any:
        self.asked.append(alias)
        return {"type": "bearer", "token": f"secret-{len(self.asked)}"}


async def opened(vault: DistantVault) -> Session:
    return await vault.open(PLAYBOOK, PLAYBOOK.steps["start"], SITUATION, dict)


async def test_frames_that_follow_each_other_share_a_session() -> None:
    plane = Plane()
    vault = DistantVault(cast("RemotePlane", plane))
    first, second = await opened(vault), await opened(vault)
    assert first is second
    auth, fields = await first.resolved("crm", {"url": "x"})
    assert auth == {"type": "bearer", "token": "secret-1"}
    assert (await second.resolved("crm", fields))[0] is auth
    assert (await second.resolved({"name": "crm"}, fields))[0] == auth
    assert plane.asked == ["crm"]


async def test_a_session_that_is_old_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = Plane()
    vault = DistantVault(cast("RemotePlane", plane))
    monkeypatch.setattr(distant_vault, "_SECONDS", 0.0)
    tokens = [(await (await opened(vault)).resolved("crm", {}))[0] for _ in range(2)]
    assert tokens == [{"type": "bearer", "token": "secret-1"}, {"type": "bearer", "token": "secret-2"}]
