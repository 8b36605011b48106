"""What slots of other processes are given beside frames: the means to run the body, secrets, and calls.

Nothing of it is in the task that Spark carries: that has an address and a token, and the rest is asked for with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from noetl.data.frame.protocol import StagePlan
from noetl.engine.pipeline import RunTask
from noetl.kernel.event import Json
from noetl.kernel.lazy import plain
from noetl.playbook.document import Task
from noetl.runtime.worker import Work, Worker
from noetl.settings import Ledger, Settings

__all__ = ["CallRequest", "Called", "Kit", "Support"]


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """The stage, and the installation that it belongs to."""

    plan: StagePlan
    settings: Settings
    home: str
    directory: str
    scratch: str


class CallRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row calls a playbook. The same key finds the same execution, however often it is asked for."""

    key: str
    task: str
    input: Json
    fields: Json
    timeout: float | None = None
    own_timeout: Any = None
    """What the task itself says of its time."""


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call."""

    result: Any = None
    error: Json | None = None


class Support:
    """Gives the slots of one stage what they need."""

    def __init__(self, plan: StagePlan, work: Work, worker: Worker, settings: Settings, home: Path) -> None:
        self._work = work
        self._worker = worker
        self._kit = Kit(
            plan=plan,
            settings=msgspec.structs.replace(settings, ledger=Ledger()),  # slots write no events, and need no password
            home=str(home.absolute()),
            directory=str(worker.directory.absolute()),
            scratch=str(worker.scratch.absolute()),
        )

    def kit(self) -> Kit:
        """The means to run the body."""
        return self._kit

    async def keychain(self) -> Json:
        """The entries that the step names. Raises NoetlError."""
        session = await self._worker.open_session(self._work)
        found: Json = {} if session is None else session.names.get("keychain", {})
        return found

    async def call(self, asked: CallRequest) -> Called:
        """Call a playbook for a row, and wait for its end."""
        task = Task(name=asked.task, kind="playbook", timeout=asked.own_timeout)
        wanted = RunTask(
            task=task, input=asked.input, fields=asked.fields, auth=None, timeout=asked.timeout, attempt=1, visit=1
        )
        outcome = await self._worker.call(self._work, wanted, asked.key)
        return Called(result=plain(outcome.result), error=outcome.error)
