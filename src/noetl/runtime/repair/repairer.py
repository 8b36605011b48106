"""The repairer: it reads every object that is needed, and asks one source after the other for those that are not sound.

It may run beside executions. What it overwrites is an object that events refer to and that is not what they say, with
exactly the bytes they say; so it does not matter who else reads, writes or repairs it at the same time.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from noetl.errors import Corruption, InvalidInput
from noetl.observe import metrics
from noetl.payloads.sidecar import write_sidecar
from noetl.payloads.spool import Digest, Spool
from noetl.payloads.sweeping.soundness import Condition, condition_of
from noetl.ports.objects import ObjectStore
from noetl.runtime.repair.needs import Need

__all__ = ["Condition", "Finding", "Repairer", "Report", "Source"]

Outcome = Literal["repaired", "repairable", "lost"]


class Source(Protocol):
    """Where right bytes may come from."""

    name: str

    def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """What there is that may be the bytes, best first. Raises nothing but errors of ours."""
        ...


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is not as it should be, and what came of it."""

    outcome: Outcome
    condition: Condition
    source: str | None
    key: str
    uri: str
    sha256: str
    bytes: int
    execution_id: int | None
    event_id: int
    event_type: str
    step: str | None
    row: int | None
    attempt: int | None
    tried: Sequence[str] = ()
    """What the sources had to say that could not give it."""


class Report(msgspec.Struct, kw_only=True):
    """What a repair has looked at and done."""

    objects: int = 0
    bytes: int = 0
    findings: list[Finding] = []

    def having(self, outcome: Outcome) -> list[Finding]:
        """The findings that came to this."""
        return [finding for finding in self.findings if finding.outcome == outcome]


class _Answer(NamedTuple):
    source: str | None
    tried: list[str]


class Repairer:
    """Repairs one store from some sources, in their order."""

    def __init__(
        self,
        objects: ObjectStore,
        sources: Sequence[Source],
        *,
        dry_run: bool = False,
        progress: Callable[[str, int], None] = lambda _phase, _count: None,
    ) -> None:
        self._objects = objects
        self._sources = sources
        self._dry_run = dry_run
        self._progress = progress
        self.report = Report()

    async def look_at(self, need: Need) -> None:
        """See that an object is there and sound, or make it so."""
        self.report.objects += 1
        self._progress("looked at objects", self.report.objects)
        await self.mend(need)

    async def mend(self, need: Need) -> Finding | None:
        """Make an object sound that may not be; None if it was."""
        condition = await condition_of(self._objects, need.key, sha256=need.ref.sha256, size=need.ref.bytes)
        if condition is None:
            self.report.bytes += need.ref.bytes
            metrics.count("noetl_repair_objects_total", "sound")
            return None
        source, tried = await self._repair(need)
        done: Outcome = "repairable" if self._dry_run else "repaired"
        finding = _finding(need, condition, "lost" if source is None else done, source, tried)
        self.report.findings.append(finding)
        metrics.count("noetl_repair_objects_total", finding.outcome)
        return finding

    async def _repair(self, need: Need) -> _Answer:
        tried: list[str] = []
        for source in self._sources:
            try:
                async for offer in source.offers(need):
                    problem = await self._accept(need, offer)
                    if problem is None:
                        return _Answer(source.name, tried)
                    tried.append(f"{source.name}: {problem}")
            except (InvalidInput, Corruption) as error:
                tried.append(f"{source.name}: {error}")
        return _Answer(None, tried)

    async def _accept(self, need: Need, offer: AsyncIterable[bytes]) -> str | None:
        """Store what is offered if it is what was lost; else what it is instead."""
        spool = Spool()
        try:
            await spool.fill(offer)
            if not _is_wanted(spool.digest, need):
                return f"has sha256 {spool.digest.sha256}, {spool.digest.size} bytes"
            if not self._dry_run:
                await self._objects.put(need.key, spool.content(), overwrite=True)
                await write_sidecar(self._objects, need.key, need.ref, encoding=_encoding(need), overwrite=True)
            return None
        finally:
            await spool.close()


def _is_wanted(digest: Digest, need: Need) -> bool:
    return (digest.size, digest.sha256) == (need.ref.bytes, need.ref.sha256)


def _encoding(need: Need) -> str | None:
    return "zstd" if need.ref.key is not None else None


def _finding(need: Need, condition: Condition, outcome: Outcome, source: str | None, tried: Sequence[str]) -> Finding:
    return Finding(
        outcome=outcome,
        condition=condition,
        source=source,
        key=need.key,
        uri=need.ref.uri,
        sha256=need.ref.sha256,
        bytes=need.ref.bytes,
        execution_id=need.event.execution_id,
        event_id=need.event.event_id,
        event_type=need.event.event_type,
        step=need.step,
        row=need.row,
        attempt=need.attempt,
        tried=tried if outcome == "lost" else (),
    )
