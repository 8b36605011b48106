"""A home part of whose history has left its ledger: everybody who reads, keeps or rebuilds still has all of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from noetl.adapters.sqlite.eventlog import SqliteEventLog, Term
from noetl.adapters.sqlite.inventory import Inventory
from noetl.errors import Archived, Conflict, IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import Recorded
from noetl.ports.ledger import Audited, Stream
from noetl.ports.shadows import Drift
from noetl.runtime.archiving import Archiver, open_archiver
from noetl.runtime.archiving.restoring import restore
from noetl.runtime.forgetting import open_retention
from noetl.runtime.gc.collection import Request, collect
from noetl.runtime.gc.references import References
from noetl.runtime.holds import Holds
from noetl.runtime.rebuild import ALL_ARCHIVES, rebuild_rows
from noetl.runtime.repair.needs import needs_of
from noetl.runtime.unpacking import bundles
from noetl.runtime.vacuum import vacuum_ledger
from noetl.runtime.wiring import Embedded
from noetl.settings import LakeSettings, Ledger
from tests.unit.runtime.histories import EXECUTION, home_at, whole

CHILD, OTHER = EXECUTION + 1000, EXECUTION + 3000
ROOTS = [Stream("acme", f"execution/{number}") for number in (EXECUTION, CHILD, OTHER)]


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    """A family that is archived, and an execution that is not."""
    async with home_at(tmp_path / "home") as opened:
        await whole(opened)
        await whole(opened, CHILD, parent=EXECUTION)
        await whole(opened, OTHER)
        await opened.projector.catch_up()
        await (await archiver_of(opened)).archive(ROOTS[0])
        yield opened


async def archiver_of(embedded: Embedded) -> Archiver:
    assert embedded.home is not None
    return await open_archiver(embedded, embedded.home, embedded.settings)


async def forget(embedded: Embedded) -> list[str | None]:
    retention = open_retention(embedded, embedded.settings, min_age=0)
    return [verdict.reason async for verdict, _ in retention.sweep(apply=True)]


async def log_of(embedded: Embedded) -> list[list[Recorded]]:
    return [list(await embedded.ledger.read_root(root)) for root in ROOTS]


async def test_what_has_left_is_read_and_proven_as_before(embedded: Embedded) -> None:
    before = await log_of(embedded)
    assert await forget(embedded) == [None, "unarchived"]
    assert len(await embedded.ledger.forgotten()) == 2
    assert await log_of(embedded) == before
    for root in ROOTS:
        assert (await embedded.verifier.verify(root)).ok
    assert (await embedded.verifier.verify_ledger()).problems == []


async def test_it_comes_back_exactly(embedded: Embedded) -> None:
    everything = await embedded.ledger.read_all(limit=1000)
    entry = await embedded.archives.get(ROOTS[0])
    assert entry is not None
    await forget(embedded)
    bundle = await bundles(embedded.settings)(entry.uri)
    restored = await restore(embedded, bundle, entry.uri)
    assert (restored.executions, restored.present) == (2, 0)
    assert await embedded.ledger.read_all(limit=1000) == everything
    assert list(await embedded.ledger.forgotten()) == []
    assert (await embedded.verifier.verify_ledger()).problems == []
    assert await forget(embedded) == [None, "unarchived"]
    again = await restore(embedded, bundle, entry.uri)
    assert again.written == restored.written
    assert (await restore(embedded, bundle, entry.uri)).present == restored.written


async def test_its_objects_stay_alive(embedded: Embedded) -> None:
    await forget(embedded)
    request = Request(grace_seconds=0, delete=True, trace=True, claim=False, shared=[], directory=None)
    found = await collect(embedded, request, lambda _phase, _count: None)
    assert (found.counts.deleted, found.objects) == (0, 0)
    needed = {need.key async for need in needs_of(embedded.ledger)}
    assert {need.key async for need in needs_of(embedded.ledger, ROOTS[0])} <= needed


async def test_without_its_archive_nothing_is_collected_and_a_proof_says_so(embedded: Embedded) -> None:
    await forget(embedded)
    assert embedded.home is not None
    embedded.home.archive.rename(embedded.home.path / "elsewhere")
    request = Request(grace_seconds=0, delete=True, trace=True, claim=False, shared=[], directory=None)
    with pytest.raises(NotFound, match="there is no directory"):
        await collect(embedded, request, lambda _phase, _count: None)
    found = await embedded.verifier.verify(ROOTS[1])
    assert (found.ok, found.archive is not None) == (False, True)
    assert "there is no directory" in found.problems[0].what
    assert (await embedded.verifier.verify(ROOTS[2])).ok


async def test_a_hole_that_nobody_explains_is_found(embedded: Embedded) -> None:
    await forget(embedded)
    assert embedded.home is not None
    with sqlite3.connect(embedded.home.ledger) as connection:
        connection.execute("DELETE FROM forgotten_run WHERE root = ?", (ROOTS[1].stream_id,))
    (problem,) = (await embedded.verifier.verify_ledger()).problems
    assert "missing" in problem.what


async def test_a_forged_note_of_where_it_is_is_found(embedded: Embedded) -> None:
    await forget(embedded)
    assert embedded.home is not None
    with sqlite3.connect(embedded.home.ledger) as connection:
        connection.execute("UPDATE forgotten SET uri = 'file:///elsewhere/' WHERE root = ?", (ROOTS[1].stream_id,))
    (problem,) = (await embedded.verifier.verify_ledger()).problems
    assert "does not match its MAC" in problem.what


async def test_events_that_came_back_beside_their_note_are_found(embedded: Embedded) -> None:
    before = embedded.ledger
    rows = await before.read_root(ROOTS[2])
    assert embedded.home is not None
    await forget(embedded)
    with sqlite3.connect(embedded.home.ledger) as connection:
        connection.execute(
            "UPDATE event SET position = (SELECT min(first_position) FROM forgotten_run) WHERE position = ?",
            (rows[0].position,),
        )
    (problem,) = (await embedded.verifier.verify_ledger()).problems
    assert "is forgotten, and yet it is there" in problem.what


async def test_whoever_reads_the_file_is_told(embedded: Embedded) -> None:
    end = await embedded.ledger.position()
    assert embedded.home is not None
    with SqliteEventLog(embedded.home.ledger) as log:
        assert sum(len(page) for page in log.pages(["event_id"], [], 0, end)) == end
        await forget(embedded)
        with pytest.raises(NotFound, match=r"has left .* for an archive"):
            list(log.pages(["event_id"], [], 0, end))
        with pytest.raises(Archived):
            list(log.pages(["event_id"], [Term("execution_id", "=", CHILD)], 0, end))
        asked = [Term("tenant_id", "=", "acme"), Term("execution_id", "in", [OTHER])]
        assert sum(len(page) for page in log.pages(["event_id"], asked, 0, end)) > 0
        assert list(log.pages(["event_id"], [Term("tenant_id", "=", "globex")], 0, end)) == []


async def test_a_lake_that_was_asked_for_and_is_empty_keeps_everything(embedded: Embedded, tmp_path: Path) -> None:
    asked = msgspec.structs.replace(embedded.settings, lake=LakeSettings(path=str(tmp_path / "lake")))
    retention = open_retention(embedded, asked, min_age=0)
    assert [verdict.reason async for verdict, _ in retention.sweep(apply=True)] == ["lake", "unarchived"]


async def test_the_file_becomes_smaller(embedded: Embedded) -> None:
    assert embedded.home is not None
    await forget(embedded)
    before, after = await vacuum_ledger(embedded.home, embedded.settings, full=False)
    assert after < before
    assert (await embedded.verifier.verify_ledger()).problems == []
    with pytest.raises(InvalidInput, match="--full is for a ledger in Postgres"):
        await vacuum_ledger(embedded.home, embedded.settings, full=True)


async def test_a_ledger_on_jetstream_keeps_everything(embedded: Embedded) -> None:
    settings = msgspec.structs.replace(embedded.settings, ledger=Ledger(mode="wal"))
    with pytest.raises(InvalidInput, match="cannot leave a ledger in WAL mode"):
        open_retention(embedded, settings)


class TestHolds:
    async def test_a_hold_keeps_its_family_until_it_is_released(self, embedded: Embedded) -> None:
        holds = Holds(embedded, embedded.settings)
        held = await holds.place(ROOTS[1], "case 4711")
        assert (held.execution_id, held.reason) == (str(CHILD), "case 4711")
        assert list(await holds.list("acme")) == [held]
        assert await forget(embedded) == ["held", "unarchived"]
        await holds.release(ROOTS[1], "it is closed")
        assert list(await holds.list("acme")) == []
        assert await forget(embedded) == [None, "unarchived"]
        said = [item.event for item in await embedded.ledger.read_root(Stream("acme", "tenant/acme"))]
        assert [event.event_type for event in said] == ["hold.placed", "hold.released"]
        assert [event.payload["reason"] for event in said] == ["case 4711", "it is closed"]

    async def test_what_is_not_held_cannot_be_released(self, embedded: Embedded) -> None:
        with pytest.raises(NotFound, match=rf"no hold on execution/{OTHER}"):
            await Holds(embedded, embedded.settings).release(ROOTS[2], "why not")

    @pytest.mark.parametrize("reason", ["", "  ", "x" * 2001])
    async def test_a_hold_needs_a_reason(self, embedded: Embedded, reason: str) -> None:
        with pytest.raises(InvalidInput, match="a reason has from 1 to 2000 characters"):
            await Holds(embedded, embedded.settings).place(ROOTS[0], reason)

    async def test_only_executions_are_held(self, embedded: Embedded) -> None:
        with pytest.raises(InvalidInput, match="is not an execution"):
            await Holds(embedded, embedded.settings).place(Stream("acme", "tenant/acme"), "x")


class TestRebuild:
    async def rebuild(self, embedded: Embedded, *, accept: bool = True, archives: str | None = None) -> Drift:
        assert embedded.home is not None
        return await rebuild_rows(
            embedded.home, embedded.settings, decide=lambda drift: accept or not drift.wrong, archives=archives
        )

    async def rows(self, embedded: Embedded) -> list[object]:
        return [list(await embedded.projections.load(root)) for root in ROOTS]

    def damage(self, embedded: Embedded) -> None:
        assert embedded.home is not None
        with sqlite3.connect(embedded.home.ledger) as connection:
            connection.execute(
                "UPDATE projection SET row = replace(row, 'COMPLETED', 'FAILED') WHERE surface = 'execution' "
                "AND root = ?",
                (ROOTS[0].stream_id,),
            )
            connection.execute("DELETE FROM projection WHERE root = ? AND surface = 'commands'", (ROOTS[2].stream_id,))
            connection.execute(
                "INSERT INTO projection SELECT 'commands', 1, 'execution/1', tenant_id, row_id, version, row "
                "FROM projection WHERE surface = 'commands' LIMIT 1"
            )

    @pytest.mark.parametrize(("gone", "archives"), [(False, "file://"), (True, None), (True, ALL_ARCHIVES)])
    async def test_the_same_rows_come_of_log_and_archive(
        self, embedded: Embedded, gone: bool, archives: str | None
    ) -> None:
        if gone:
            await forget(embedded)
        before = await self.rows(embedded)
        drift = await self.rebuild(embedded, accept=False, archives=archives)
        assert (drift.wrong, drift.late, drift.replaced) == (0, 0, True)
        assert await self.rows(embedded) == before
        assert embedded.home is not None
        assert not list(embedded.home.path.glob("rebuild.db*"))

    async def test_wrong_rows_are_named_and_replaced_when_accepted(self, embedded: Embedded) -> None:
        before = await self.rows(embedded)
        await forget(embedded)
        self.damage(embedded)
        damaged = await self.rows(embedded)
        drift = await self.rebuild(embedded, accept=False)
        assert {(one.root, one.what) for one in drift.first} == {
            (ROOTS[0].stream_id, "different"), (ROOTS[2].stream_id, "missing"), ("execution/1", "extra"),
        }  # fmt: skip
        assert (drift.replaced, await self.rows(embedded)) == (False, damaged)
        assert (await self.rebuild(embedded)).replaced
        assert await self.rows(embedded) == before
        assert (await self.rebuild(embedded, accept=False)).wrong == 0
        for root in ROOTS:
            assert (await embedded.verifier.verify(root)).ok

    async def test_rows_that_are_late_are_no_mistake(self, embedded: Embedded) -> None:
        self.damage(embedded)
        late = await whole(embedded, EXECUTION + 4000)
        assert (await self.rebuild(embedded, accept=False)).wrong > 0
        drift = await self.rebuild(embedded)
        assert (drift.late, drift.replaced) == (1, True)
        later = await whole(embedded, EXECUTION + 5000)
        drift = await self.rebuild(embedded, accept=False)
        assert (drift.wrong, drift.late, drift.replaced) == (0, 1, True)
        assert (await embedded.projector.catch_up()).events == 0
        for history in (late, later):
            assert (await embedded.verifier.verify(history.root)).ok

    async def test_one_that_dies_changes_nothing(self, embedded: Embedded) -> None:
        self.damage(embedded)
        damaged = await self.rows(embedded)
        assert embedded.home is not None

        def die(_: Drift) -> bool:
            raise RuntimeError("killed")

        with pytest.raises(RuntimeError):
            await rebuild_rows(embedded.home, embedded.settings, decide=die)
        assert await self.rows(embedded) == damaged
        assert (await self.rebuild(embedded)).replaced

    async def test_two_at_once_are_one_too_many(self, embedded: Embedded) -> None:
        from noetl.adapters.sqlite.shadow import open_shadow

        assert embedded.home is not None
        async with open_shadow(embedded.home.ledger, embedded.clock, busy_timeout=1.0):
            with pytest.raises(Conflict, match="another process is rebuilding"):
                await self.rebuild(embedded)

    async def test_an_archive_that_does_not_hold_changes_nothing(self, embedded: Embedded) -> None:
        assert embedded.home is not None
        before = await self.rows(embedded)
        (segment,) = embedded.home.archive.rglob("segment-000001.jsonl.zst")
        segment.write_bytes(segment.read_bytes()[:-5])
        with pytest.raises(IntegrityMismatch, match="segment-000001"):
            await self.rebuild(embedded, archives=ALL_ARCHIVES)
        assert await self.rows(embedded) == before


class _ComesBack:
    """A ledger to which an archived family comes back when somebody has read it to the end."""

    def __init__(self, embedded: Embedded, uri: str) -> None:
        self._embedded = embedded
        self._uri = uri

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        page = await self._embedded.ledger.audit(root=root, after_position=after_position, limit=limit)
        if root is None and not page:
            await restore(self._embedded, await bundles(self._embedded.settings)(self._uri), self._uri)
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedded.ledger, name)


async def test_what_comes_back_behind_a_reader_is_referred_to_all_the_same(embedded: Embedded) -> None:
    entry = await embedded.archives.get(ROOTS[0])
    assert entry is not None
    every = len(await embedded.ledger.read_all(limit=1000))
    await forget(embedded)
    with Inventory() as inventory:
        references = References(cast(Any, _ComesBack(embedded, entry.uri)), inventory)
        await references.catch_up()
    assert not await embedded.ledger.forgotten()
    assert references.events == every
