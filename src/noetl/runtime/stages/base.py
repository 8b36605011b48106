"""What the keeper of a stage needs of the execution that the stage belongs to, wherever that is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from noetl.data.frame.log import StageLog
from noetl.kernel.event import Draft, Envelope, Json
from noetl.kernel.names import Home
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.ports.ledger import Ledger
from noetl.runtime.driver import Driver, Origin
from noetl.runtime.execution import Execution
from noetl.runtime.telemetry import Telemetry
from noetl.runtime.worker import Work

__all__ = ["About", "Heed", "LedgerBase", "StageBase", "about", "heed_of"]

Heed = Literal["on", "halt", "stop"]
"""Whether a stage is to go on: it may be that no new rows are wanted, or nothing at all."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as far as its stages are concerned."""

    origin: Origin
    principal: str
    document: str
    file: str
    entry: str
    authority: Json
    home: Home


class StageBase(Protocol):
    """Where stages have their executions, their logs and their bytes."""

    @property
    def payloads(self) -> PayloadStore:
        """Bytes."""
        ...

    @property
    def results(self) -> ResultStore:
        """The results of steps."""
        ...

    async def about(self, work: Work) -> About:
        """The execution of a stage."""
        ...

    def log(self, work: Work) -> StageLog:
        """Where its events are."""
        ...

    async def tell(self, work: Work, drafts: Sequence[Draft]) -> Sequence[Envelope]:
        """Write to the execution's telemetry; what cannot be told is no reason to stop."""
        ...

    async def look(self, work: Work) -> Heed:
        """Whether the stage is to go on."""
        ...


class LedgerBase:
    """The base of stages that are kept where the ledger is."""

    def __init__(self, ledger: Ledger, driver: Driver, origin: Origin, telemetry: Telemetry) -> None:
        self._ledger = ledger
        self._driver = driver
        self._origin = origin
        self._telemetry = telemetry

    @property
    def payloads(self) -> PayloadStore:
        """Bytes."""
        return self._driver.keeper.payloads

    @property
    def results(self) -> ResultStore:
        """The results of steps."""
        return self._driver.keeper.results

    async def about(self, work: Work) -> About:
        """The execution of a stage."""
        return about(await self._driver.execution(work.execution_id), self._origin)

    def log(self, _: Work) -> StageLog:
        """The ledger."""
        return self._ledger

    async def tell(self, work: Work, drafts: Sequence[Draft]) -> Sequence[Envelope]:
        """Write to the execution's telemetry."""
        return await self._telemetry.tell(work.execution_id, drafts)

    async def look(self, work: Work) -> Heed:
        """Whether the stage is to go on."""
        return heed_of(await self._driver.latest(work.execution_id))


def about(execution: Execution, origin: Origin) -> About:
    """What its stages have to know of an execution."""
    return About(
        origin=origin,
        principal=execution.principal,
        document=execution.document,
        file=execution.file,
        entry=execution.playbook.entry,
        authority=execution.control.authority,
        home=execution.home,
    )


def heed_of(execution: Execution) -> Heed:
    """Whether the stages of an execution are to go on."""
    control = execution.control
    return "stop" if control.ended is not None else "on" if control.failure is None else "halt"
