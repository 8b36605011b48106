"""Projections and snapshots say what the log says: where they say something else, they are made anew from it."""

from __future__ import annotations

import msgspec

from noetl.errors import NotFound
from noetl.kernel.tail import Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.service import Cutoff, Replayer
from noetl.replay.shares import progress_of
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR

__all__ = ["RowRepairer", "RowReport"]

_TRIES = 20


class RowReport(msgspec.Struct, kw_only=True):
    """What was found of one root's rows and log."""

    stream_id: str
    rows: int = 0
    """Rows that were not what the log says."""
    snapshots: int = 0
    """Snapshots that could not be used."""
    problems: list[str] = []
    """What is wrong with the log itself, which nothing here can mend."""

    @property
    def is_sound(self) -> bool:
        """Whether there was nothing to do and nothing that cannot be done."""
        return not (self.rows or self.snapshots or self.problems)


class RowRepairer:
    """Rebuilds rows and snapshots of one root at a time."""

    def __init__(
        self, verifier: Verifier, replayer: Replayer, projections: ProjectionStore, *, dry_run: bool = False
    ) -> None:
        self._verifier = verifier
        self._replayer = replayer
        self._projections = projections
        self._dry_run = dry_run

    async def look_at(self, root: Stream) -> RowReport:
        """Compare, and rebuild what differs. A log that is not sound is left as it is, and its rows with it."""
        found = await self._verifier.verify(root)
        report = RowReport(stream_id=root.stream_id, problems=[problem.what for problem in found.problems])
        if report.problems:
            return report
        report.rows = len({(one.surface, one.row) for one in found.differences})
        if report.rows and not self._dry_run and not await self._rebuild(root):
            report.problems.append("its rows could not be rebuilt: it is being projected all the time")
        report.snapshots = await self._mend_snapshots(root)
        return report

    async def _rebuild(self, root: Stream) -> bool:
        for _ in range(_TRIES):
            position = await self._projections.checkpoint(PROJECTOR)
            shared = (await progress_of(self._projections, PROJECTOR)).is_shared
            rows = await self._rows(root, Cutoff() if shared else Cutoff(position=position))
            if await self._projections.replace(root, rows, at=(PROJECTOR, position)):
                return True
        return False

    async def _rows(self, root: Stream, cutoff: Cutoff) -> list[ProjectionRow]:
        """Where shares are projected, rows may be ahead of any checkpoint, and must not go back: then everything."""
        try:
            replayed = await self._replayer.replay(root, cutoff, snapshots=False)
        except NotFound:
            return []  # rows of something that was never in the log
        return [
            ProjectionRow(
                root=root, surface=name, row_id=row_id, version=cutoff.position or replayed.position, row=row.encoded()
            )
            for name in replayed.state.surfaces
            for row_id, row in replayed.state.rows(name)
        ]

    async def _mend_snapshots(self, root: Stream) -> int:
        try:
            replayed = await self._replayer.replay(root, Cutoff())
        except NotFound:
            return 0
        if replayed.rejected and not self._dry_run:
            await self._projections.drop_snapshots(root, keep=0)
            await self._replayer.snapshot(root)
        return len(replayed.rejected)
