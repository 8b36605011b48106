"""The collector: it finds what is dead, and deletes it when asked to.

Finding reads the log first and the stores afterwards. Deleting looks again: under the lease `gc`, for which everybody
waits who has just stored what was there already, it reads what the log has got since, and the age of the object, and
deletes what is still dead. A collector may be killed at any moment: what it has deleted was dead, and what it has left
is found by the next.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

import msgspec

from noetl.adapters.sqlite.inventory import Candidate, Inventory
from noetl.errors import IntegrityMismatch, LeaseLost, Unavailable
from noetl.observe import metrics
from noetl.payloads.guard import GC_LEASE
from noetl.payloads.sidecar import is_sidecar, object_of, sidecar_key
from noetl.payloads.sweeping.judging import FOREVER, NOTHING_DESCRIBED, OBJECT_IS_DEAD, is_past_grace, why_dead
from noetl.payloads.sweeping.naming import Named, read_key
from noetl.payloads.sweeping.tracing import Damaged, names_inside
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases
from noetl.ports.objects import ObjectInfo, ObjectStore
from noetl.runtime.gc.ownership import OWNER_KEY
from noetl.runtime.gc.references import References
from noetl.runtime.installation import STORE_KEY

__all__ = ["Collector", "Counts", "Progress"]

_LEASE_SECONDS = 30.0
_ONE_DELETION_SECONDS = 15.0
_HELD = 1_000_000
"""Microseconds after which the lease is given back, for those who wait for it."""
_PAUSE_SECONDS = 0.1
_AT_ONCE = 500
_MOST_SHOWN = 10

Progress = Callable[[str, int], None]


class Counts(msgspec.Struct, kw_only=True):
    """What a collection has seen and done."""

    objects: int = 0
    bytes: int = 0
    young: int = 0
    """Dead by all that is known, but not for long enough."""
    foreign: int = 0
    """Objects whose keys are none of ours: they are left alone."""
    deleted: int = 0
    deleted_bytes: int = 0
    spared: int = 0
    """Found dead, and alive again or gone when their turn came."""
    damaged: list[str] = []
    """Objects that are alive and cannot be read, so that what they name is not known; the first few."""


class Collector:
    """Collects in a store what one ledger does not keep alive."""

    def __init__(
        self,
        objects: ObjectStore,
        references: References,
        inventory: Inventory,
        leases: Leases,
        clock: Clock,
        *,
        grace_seconds: float,
        progress: Progress = lambda _phase, _count: None,
    ) -> None:
        self._objects = objects
        self._references = references
        self._inventory = inventory
        self._leases = leases
        self._clock = clock
        self.grace = round(grace_seconds * 1_000_000)
        """Microseconds for which an object must have been there."""
        self._progress = progress
        self._owner = f"gc-{secrets.token_hex(8)}"
        self.counts = Counts()

    # --- Finding ---

    async def find(self, *, trace: bool = True) -> None:
        """Suspect what is dead. With `trace` the names inside of what is alive keep objects alive, too.

        Without, that holds for the lists of a stage's outputs and inputs only: their names are not a user's affair.
        """
        await self._references.catch_up()
        await self._look_through()
        if self._inventory.suspects(limit=1):
            await (self._trace() if trace else self._follow())
            await self._acquit_sidecars()
        self._count_dead()

    def reconsider(self) -> None:
        """Acquit suspects, which somebody else has found, that the log has come to name since."""
        after = ""
        while page := self._inventory.suspects(after=after):
            for suspect in page:
                named = read_key(suspect.key)
                if named is not None and self._reason(named) is None:
                    self._inventory.acquit(suspect.key)
                    self._inventory.acquit(sidecar_key(suspect.key))
            after = page[-1].key
        self._count_dead()

    def _count_dead(self) -> None:
        """Count what is suspected, for those who watch."""
        for total in self._inventory.totals():
            metrics.count("noetl_gc_objects_total", total.kind, "dead", amount=total.objects)

    async def _look_through(self) -> None:
        suspects: list[Candidate] = []
        last, is_last_dead = "", False
        async for info in self._objects.list():
            self.counts.objects += 1
            self.counts.bytes += info.size
            if is_sidecar(info.key):
                # In order of key nothing of ours stands between an object and what describes it.
                found = self._judge_sidecar(info, is_last_dead if last == object_of(info.key) else None)
            else:
                found = self._judge(info)
                last, is_last_dead = info.key, found is not None
            if found is not None:
                suspects.append(found)
            if len(suspects) >= _AT_ONCE:
                self._inventory.suspect(suspects)
                suspects.clear()
            self._progress("looked at objects", self.counts.objects)
        self._inventory.suspect(suspects)

    def _judge(self, info: ObjectInfo) -> Candidate | None:
        """The object as a suspect, or None if it is to stay."""
        named = read_key(info.key)
        if named is None:
            self.counts.foreign += not info.key.endswith((OWNER_KEY, STORE_KEY))
            return None
        reason = self._reason(named)
        if reason is None:
            return None
        if not self._is_past_grace(info):
            self.counts.young += 1
            return None
        return Candidate(info.key, named.kind, reason, info.size, info.modified_at, named.identity)

    def _reason(self, named: Named) -> str | None:
        """Why an object is dead; None if it is alive."""
        until = self._inventory.held_until(named.identity)
        ended = None if named.execution is None else self._inventory.has_ended(named.tenant, named.execution)
        return why_dead(named, until, ended, self._clock.now())

    def _judge_sidecar(self, info: ObjectInfo, is_object_dead: bool | None) -> Candidate | None:
        """What describes an object goes with it; where there is none (None), it goes when it is old enough."""
        if read_key(object_of(info.key)) is None:
            self.counts.foreign += 1
            return None
        if is_object_dead is False:
            return None
        if is_object_dead is None and not self._is_past_grace(info):
            self.counts.young += 1
            return None
        reason = OBJECT_IS_DEAD if is_object_dead else NOTHING_DESCRIBED
        return Candidate(info.key, "sidecar", reason, info.size, info.modified_at, None)

    def _is_past_grace(self, info: ObjectInfo) -> bool:
        return is_past_grace(info.modified_at, self.grace, self._clock.now())

    # --- Names inside of objects ---

    async def _trace(self) -> None:
        """Look into everything that is alive, and into whatever turns out to be alive by that."""
        looked = 0
        async for info in self._objects.list():
            if self._is_alive(info.key):
                await self._acquit_named_in(info.key)
                looked += 1
                self._progress("looked into objects", looked)

    async def _follow(self) -> None:
        """Look into the lists that events name."""
        for looked, key in enumerate(sorted(self._references.listings), start=1):
            if self._is_alive(key):
                await self._acquit_named_in(key)
            self._progress("looked into lists", looked)

    async def _acquit_sidecars(self) -> None:
        after = ""
        while page := self._inventory.suspects(after=after):
            for suspect in page:
                if suspect.kind == "sidecar" and await self._is_object_acquitted(suspect):
                    self._inventory.acquit(suspect.key)
            after = page[-1].key

    def _is_alive(self, key: str) -> bool:
        return not is_sidecar(key) and read_key(key) is not None and not self._inventory.is_suspected(key)

    async def _acquit_named_in(self, key: str) -> None:
        waiting = [key]
        while waiting:
            key = waiting.pop()
            named = read_key(key)
            assert named is not None
            try:
                names = await names_inside(self._objects, key, named)
            except (Damaged, IntegrityMismatch):
                if len(self.counts.damaged) < _MOST_SHOWN:
                    self.counts.damaged.append(key)
                continue
            for identity in names:
                for suspect in self._inventory.suspects_of(identity):
                    self._inventory.acquit(suspect.key)
                    self._inventory.refer({identity: FOREVER})
                    waiting.append(suspect.key)

    async def _is_object_acquitted(self, sidecar: Candidate) -> bool:
        described = object_of(sidecar.key)
        return not self._inventory.is_suspected(described) and await self._objects.head(described) is not None

    # --- Deleting ---

    async def delete(self) -> None:
        """Delete what is suspected and, looked at once more, still dead.

        Raises IntegrityMismatch, and deletes nothing, if an object that is alive cannot be read.
        """
        if self.counts.damaged:
            raise IntegrityMismatch(
                f"object '{self.counts.damaged[0]}' is damaged, so it is not known what it names; nothing was deleted",
                hint="run noetl repair --all first; if it is lost, remove the object or collect with --shallow",
            )
        after = ""
        while page := self._inventory.suspects(after=after, limit=_AT_ONCE):
            try:
                done = await self._delete_some(page)
            except LeaseLost:
                continue  # somebody else has it now, perhaps because this machine was asleep: look again
            after = page[done - 1].key
            self._progress("deleted", self.counts.deleted)
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _delete_some(self, page: Sequence[Candidate]) -> int:
        """Delete under the lease for as long as it may be held; how many were dealt with.

        Whatever goes wrong, the lease is not given back but lapses: a deletion that is under way may still happen.
        """
        lease = await self._take_lease()
        begun = self._clock.now()
        await self._references.catch_up()
        done = 0
        for suspect in page:
            try:
                async with asyncio.timeout(_ONE_DELETION_SECONDS):
                    deleted = await self._delete_if_dead(suspect)
            except TimeoutError:
                raise Unavailable(
                    f"the store does not answer: '{suspect.key}' could not be deleted in {_ONE_DELETION_SECONDS:g} s",
                    hint="try again later; what was deleted so far was dead",
                ) from None
            self._count(suspect, deleted)
            done += 1
            if self._clock.now() - begun > _HELD:
                break
        await self._leases.release(lease)
        return done

    def _count(self, suspect: Candidate, deleted: bool) -> None:
        metrics.count("noetl_gc_objects_total", suspect.kind, "deleted" if deleted else "spared")
        if not deleted:
            self.counts.spared += 1
            return
        self.counts.deleted += 1
        self.counts.deleted_bytes += suspect.size
        metrics.count("noetl_gc_deleted_bytes_total", amount=suspect.size)

    async def _delete_if_dead(self, suspect: Candidate) -> bool:
        objects = self._objects
        if suspect.kind == "sidecar":
            is_needed = await objects.head(object_of(suspect.key)) is not None
            return not is_needed and await objects.delete(suspect.key)
        info, named = await objects.head(suspect.key), read_key(suspect.key)
        if info is None or named is None or self._reason(named) is None or not self._is_past_grace(info):
            return False
        return await objects.delete(suspect.key)

    async def _take_lease(self) -> Lease:
        """The lease; another collector's turn is waited for."""
        while (lease := await self._leases.take(GC_LEASE, self._owner, seconds=_LEASE_SECONDS)) is None:
            await self._clock.sleep(_PAUSE_SECONDS)
        return lease
