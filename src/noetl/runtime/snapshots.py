"""Snapshots by a policy: when one is due, who takes it, and whether it is what a replay would give.

Whoever projects only notes that a root has come far enough, or has ended. The snapshot is taken aside: by a task of a
server or a projector, or, where nothing runs for long, by the next command that has the time. A note is lost with the
process that would have written it; then there is one snapshot fewer, and a replay takes longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping

import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.kv import Entry, Kv
from noetl.ports.ledger import Stream
from noetl.ports.projections import ProjectionStore, Snapshot
from noetl.replay.service import Replayer
from noetl.settings import Snapshots as Policy

__all__ = ["Snapshots"]

_DUE = "snapshots/due/"
_AT_ONCE = 50_000
"""A command that only passes by takes no snapshot of a root with more events: that would keep it for seconds."""
_LEFT_AFTER = 120_000_000
"""Microseconds after which a note counts as left behind by a process that is gone."""
_LOOK_SECONDS = 60.0
_log = logging.getLogger("noetl.snapshots")


class _Note(msgspec.Struct, frozen=True):
    tenant_id: str
    stream_id: str
    events: int
    at: int


class Snapshots:
    """Notes what is due, and takes it when there is time."""

    def __init__(self, replayer: Replayer, projections: ProjectionStore, kv: Kv, clock: Clock, policy: Policy) -> None:
        self._replayer = replayer
        self._projections = projections
        self._kv = kv
        self._clock = clock
        self._policy = policy
        self._own: dict[Stream, int] = {}
        self._noted = asyncio.Event()
        self._served = False

    def is_due(self, before: int, after: int, *, ended: bool) -> bool:
        """Whether a root that had so many events, and now has so many, and has `ended` with them, is due for one."""
        every, least = self._policy.every, self._policy.on_completion
        return bool((every and before // every != after // every) or (least and ended and after > least))

    async def note(self, due: Mapping[Stream, int]) -> None:
        """Remember roots that are due, with how many events they have. Where that cannot be kept it is let go."""
        for root, events in due.items():
            note = _Note(root.tenant_id, root.stream_id, events, self._clock.now())
            with contextlib.suppress(Unavailable):
                await self._kv.put(_key(root), msgspec.json.encode(note))
            self._own[root] = events
        if due:
            self._noted.set()

    async def take_due(self) -> int:
        """Take what was noted, here or by processes that are gone, unless a task does; how many were taken.

        Roots that are so large that it would be felt are left to a server or a projector.
        """
        if self._served:
            return 0
        return await self._take_all(most=_AT_ONCE)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Have a task take what is due, for as long as the block runs."""
        task = asyncio.create_task(self._serve())
        self._served = True
        try:
            yield
        finally:
            self._served = False
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def take(self, root: Stream) -> Snapshot | None:
        """One snapshot of a root as it is; None if it was compared with a replay and is not what that gives.

        Then all snapshots of the root go: each is made from the one before it.
        """
        taken = await self._replayer.snapshot(root)
        metrics.count("noetl_snapshots_total", "taken")
        if self._is_sampled(taken):
            reason = await self._replayer.refute(taken)
            metrics.count("noetl_snapshots_total", "verified" if reason is None else "mismatch")
            if reason is not None:
                _log.error("the snapshot of %s at position %d is dropped: %s", root.stream_id, taken.position, reason)
                await self._projections.drop_snapshots(root, keep=0)
                return None
        await self._projections.drop_snapshots(root, keep=self._policy.keep)
        return taken

    async def _serve(self) -> None:
        while True:
            try:
                await self._take_all(most=None)
            except Unavailable as error:
                _log.warning("snapshots wait: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._noted.wait()

    async def _take_all(self, *, most: int | None) -> int:
        self._noted.clear()
        taken = 0
        for entry in await self._kv.list(_DUE):
            note = _read(entry)
            root = Stream(note.tenant_id, note.stream_id)
            is_left = self._clock.now() - note.at >= _LEFT_AFTER
            if (root in self._own or is_left) and (most is None or note.events <= most):
                taken += await self._settle(root, entry)
        return taken

    async def _settle(self, root: Stream, entry: Entry) -> bool:
        taken = False
        try:
            taken = await self.take(root) is not None
        except Unavailable:
            raise  # it is noted, and there is a next time
        except NoetlError as error:  # of this root there can be none
            metrics.count("noetl_snapshots_total", "failed")
            _log.warning("there is no snapshot of %s: %s", root.stream_id, error)
        self._own.pop(root, None)
        with contextlib.suppress(NoetlError):  # noted again meanwhile
            await self._kv.delete(entry.key, expected=entry.revision)
        return taken

    def _is_sampled(self, snapshot: Snapshot) -> bool:
        """The same snapshots in whichever process they are taken, and however long it lives."""
        if not self._policy.sample:
            return False
        name = f"{snapshot.root.tenant_id}\0{snapshot.root.stream_id}\0{snapshot.position}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self._policy.sample == 0


def _key(root: Stream) -> str:
    return f"{_DUE}{root.tenant_id}/{root.stream_id}"


def _read(entry: Entry) -> _Note:
    assert entry.value is not None  # it was listed
    return msgspec.json.decode(entry.value, type=_Note)
