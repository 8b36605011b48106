"""One repair from beginning to end: the objects of an execution or of all, then rows and snapshots."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from noetl.engine.pipeline import RunTask
from noetl.kernel.event import Json
from noetl.ports.ledger import Stream
from noetl.runtime.home import Home
from noetl.runtime.origin import origin_of
from noetl.runtime.repair.archived import ArchiveSource
from noetl.runtime.repair.copies import BufferSource, CatalogSource, FileSource, ReplicaSource, TierSource
from noetl.runtime.repair.needs import Looked, inside_of, needs_of
from noetl.runtime.repair.remaking import Bench, LoopSource, RerunSource
from noetl.runtime.repair.repairer import Finding, Repairer, Report, Source
from noetl.runtime.repair.rows import RowRepairer, RowReport
from noetl.runtime.stores import open_replica
from noetl.runtime.tooling import tooling_of
from noetl.runtime.wiring import Embedded
from noetl.runtime.worker import Work, Worker
from noetl.tools.base import Outcome, failed

__all__ = ["Repair", "Request", "repair"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a repair."""

    root: Stream | None = None
    """An execution; None for everything in the ledger."""
    dry_run: bool = False
    spark: bool = False
    """Whether Spark reads the objects, of the whole ledger."""
    rerun: bool = False
    """Whether tasks without effects may be run again for a result that nothing else gives."""
    directory: Path = Path()
    """Where tasks that are run again find their files."""


class Repair(msgspec.Struct, kw_only=True):
    """What came of a repair."""

    objects: Report
    rows: list[RowReport] = []
    """Of those that were not sound."""

    @property
    def lost(self) -> list[Finding]:
        """The objects that nothing could give."""
        return self.objects.having("lost")

    @property
    def is_sound(self) -> bool:
        """Whether everything is there and right by now."""
        waiting = self.objects.having("repairable")
        return not (self.lost or waiting or any(report.problems for report in self.rows))


async def repair(
    embedded: Embedded,
    home: Home,
    request: Request,
    progress: Callable[[str, int], None] = lambda _phase, _count: None,
) -> Repair:
    """Look at everything that was asked for, and bring back what can be brought back.

    Objects come in the order of the log: what a later one is made from has been looked at before it.
    """
    async with _sources(embedded, home, request) as sources:
        repairer = Repairer(embedded.objects, sources, dry_run=request.dry_run, progress=progress)
        if request.spark:
            from noetl.runtime.repair.in_spark import repair_in_spark

            await repair_in_spark(embedded, repairer, progress)
        else:
            looked = Looked()
            async for need in needs_of(embedded.ledger, request.root, looked):
                await repairer.look_at(need)
                async for inner in inside_of(embedded.objects, need):
                    if looked.is_new(inner.key):
                        await repairer.look_at(inner)
    rows = RowRepairer(embedded.verifier, embedded.replayer, embedded.projections, dry_run=request.dry_run)
    reports: list[RowReport] = []
    verified = 0
    async for root in _roots(embedded, request):
        report = await rows.look_at(root)
        if not report.is_sound:
            reports.append(report)
        verified += 1
        progress("verified", verified)
    return Repair(objects=repairer.report, rows=reports)


async def _roots(embedded: Embedded, request: Request) -> AsyncIterator[Stream]:
    if request.root is not None:
        yield request.root
        return
    async for root in embedded.verifier.roots():
        yield root


@contextlib.asynccontextmanager
async def _sources(embedded: Embedded, home: Home, request: Request) -> AsyncIterator[list[Source]]:
    """The sources in the order in which they are asked: what costs least comes first."""
    scratch = home.path / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as opened:
        bench = Bench(embedded, Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="repair-", dir=scratch))))
        sources: list[Source] = [TierSource(embedded)]
        replica = await open_replica(home, embedded.settings)
        if replica is not None:
            sources.append(ReplicaSource(replica))
        sources.append(ArchiveSource(embedded))
        sources += [CatalogSource(embedded.catalog), FileSource(), BufferSource(home.path), LoopSource(bench)]
        if request.rerun:
            tooling = tooling_of(embedded, origin_of(embedded.settings), directory=request.directory, scratch=scratch)
            opened.push_async_callback(tooling.close)
            worker = Worker(
                tooling.registry,
                embedded.clock,
                _calls_nobody,
                request.directory,
                scratch,
                tooling.vault,
                tooling.env,
            )
            sources.append(RerunSource(bench, worker, tooling.registry))
        yield sources


async def _calls_nobody(_work: Work, _asked: RunTask) -> Json | Outcome:
    """A playbook that is called has effects of its own."""
    return failed("unknown", "NOT_RERUN", "a playbook is not called for a repair")
