"""What every ProjectionStore must do. A subclass brings the fixture `store`, empty."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.stamp import Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore, Saved, Snapshot

ROOT = Stream("acme", "execution/41")


def row(
    row_id: str = "root", version: int = 1, *, root: Stream = ROOT, surface: str = "execution", **fields: Any
) -> ProjectionRow:
    return ProjectionRow(root=root, surface=surface, row_id=row_id, version=version, row=canonical.encode(fields))


def execution(number: int, version: int = 1, *, tenant: str = "acme", **fields: Any) -> ProjectionRow:
    return row(version=version, root=Stream(tenant, f"execution/{number}"), **fields)


def snapshot(position: int, *, root: Stream = ROOT, **fields: Any) -> Snapshot:
    plain = Snapshot(
        root=root,
        position=position,
        event_count=position,
        last_event_id=position * 10,
        last_ingest_time="2026-03-02T08:00:00.000000Z",
        fold_version=1,
        registry_digest="ab" * 32,
        payload_digest_root="cd" * 32,
        checksum="ef" * 32,
        created_at="2026-03-02T08:00:01.000000Z",
        body=bytes(range(256)) * 40,
    )
    return msgspec.structs.replace(plain, **fields)


async def numbers(store: ProjectionStore, **filters: Any) -> list[int]:
    page = await store.query("execution", **filters)
    return [int(found.root.stream_id.split("/")[1]) for found in page.rows]


class ProjectionStoreContract:
    # --- rows

    async def test_rows_are_counted_by_tenant_and_field_up_to_a_number(self, store: ProjectionStore) -> None:
        status = {1: "RUNNING", 2: "RUNNING", 3: "FAILED", 4: "RUNNING"}
        await store.save([execution(number, status=said) for number, said in status.items()])
        await store.save(
            [execution(1, tenant="globex", status="RUNNING"), row("x", surface="commands", status="RUNNING")]
        )
        assert await store.count("execution", tenant_id="acme", where={"status": "RUNNING"}) == 3
        assert await store.count("execution", tenant_id="acme", where={"status": "RUNNING"}, most=2) == 2
        assert await store.count("execution", tenant_id="acme") == 4
        assert await store.count("execution", tenant_id="globex", where={"status": "RUNNING"}) == 1
        assert await store.count("execution", tenant_id="nobody") == 0

    async def test_what_was_saved_is_loaded_byte_for_byte(self, store: ProjectionStore) -> None:
        rows = [row("a", 3, ctx={"f": 0.1, "ü": [None, True, "日本 🙂"]}), row("b", 4, nul="\0", quote="\"'")]
        assert await store.save(rows) == Saved(written=2, stale=0)
        assert await store.load(ROOT) == rows

    async def test_rows_take_the_place_of_all_that_are_there(self, store: ProjectionStore) -> None:
        other = row("a", 9, root=Stream("acme", "execution/42"), n="other")
        forged = [row("a", 9, n="forged"), row("b", 1, n="strange"), row("c", 2, surface="commands", n="strange")]
        await store.save([*forged, other], checkpoint=("p", 7))
        rows = [row("a", 7, n="right"), row("d", 7, surface="loops", n="right")]
        assert await store.replace(ROOT, rows, at=("p", 7)) is True
        assert await store.load(ROOT) == rows
        assert await store.load(other.root) == [other]
        assert await store.save([row("a", 8, n="later")]) == Saved(written=1, stale=0)

    async def test_rows_are_not_replaced_once_the_projector_has_moved(self, store: ProjectionStore) -> None:
        await store.save([row("a", 9, n="nine")], checkpoint=("p", 9))
        assert await store.replace(ROOT, [], at=("p", 8)) is False
        assert await store.replace(ROOT, [], at=("q", 9)) is False
        assert await store.load(ROOT) == [row("a", 9, n="nine")]
        assert await store.replace(ROOT, [], at=("q", 0)) is True
        assert await store.load(ROOT) == []

    async def test_a_row_never_goes_back(self, store: ProjectionStore) -> None:
        await store.save([row("a", 5, n="five")])
        assert await store.save([row("a", 4, n="four")]) == Saved(written=0, stale=1)
        assert await store.save([row("a", 5, n="other five")]) == Saved(written=0, stale=1)
        assert await store.load(ROOT) == [row("a", 5, n="five")]
        assert await store.save([row("a", 6, n="six"), row("b", 1)]) == Saved(written=2, stale=0)
        assert await store.load(ROOT) == [row("a", 6, n="six"), row("b", 1)]

    async def test_of_one_row_saved_twice_at_once_the_later_version_stays(self, store: ProjectionStore) -> None:
        assert await store.save([row("a", 1), row("a", 3), row("a", 2)]) == Saved(written=2, stale=1)
        assert await store.load(ROOT) == [row("a", 3)]

    async def test_writers_at_once_leave_the_newest(self, store: ProjectionStore) -> None:
        versions = [7, 3, 9, 1, 8, 2]
        await asyncio.gather(*(store.save([row("a", version, n=version)]) for version in versions))
        assert await store.load(ROOT) == [row("a", 9, n=9)]

    async def test_nothing_can_be_saved(self, store: ProjectionStore) -> None:
        assert await store.save([]) == Saved(written=0, stale=0)

    async def test_a_checkpoint_is_kept_and_never_goes_back(self, store: ProjectionStore) -> None:
        assert await store.checkpoint("p") == 0
        await store.save([row("a")], checkpoint=("p", 10))
        await store.save([], checkpoint=("p", 7))
        assert await store.checkpoint("p") == 10
        await store.save([row("a")], checkpoint=("p", 11))
        assert await store.checkpoint("p") == 11
        assert await store.checkpoint("q") == 0

    async def test_rows_are_picked_by_their_ids_in_each_surface(self, store: ProjectionStore) -> None:
        other = row("a", root=Stream("acme", "execution/8"))
        await store.save([row("a"), row("b"), row("c"), row("a", surface="commands"), other])
        own = {"execution": ["b", "a", "z"], "commands": {"a", "b"}, "loops": ["a"], "frames": []}
        found = await store.pick({ROOT: own, other.root: {"execution": ["a", "b"]}, Stream("acme", "execution/9"): own})
        assert {(one.root, one.surface, one.row_id) for one in found} == {
            (ROOT, "execution", "a"), (ROOT, "execution", "b"), (ROOT, "commands", "a"), (other.root, "execution", "a"),
        }  # fmt: skip
        assert await store.pick({}) == []
        assert await store.pick({ROOT: {"frames": []}}) == []

    async def test_every_checkpoint_is_known_by_its_projector(self, store: ProjectionStore) -> None:
        assert await store.checkpoints() == {}
        await store.save([row("a")], checkpoint=("p", 10))
        await store.save([], checkpoint=("q", 3))
        assert await store.checkpoints() == {"p": 10, "q": 3}

    async def test_rows_come_by_surface_and_id(self, store: ProjectionStore) -> None:
        keys = [("frames", "10"), ("execution", "root"), ("frames", "9"), ("commands", "b"), ("commands", "B")]
        await store.save([row(row_id, surface=surface) for surface, row_id in keys])
        await store.save([row("elsewhere", root=Stream("acme", "execution/410"), surface="stages")])
        assert [(found.surface, found.row_id) for found in await store.load(ROOT)] == sorted(keys)
        assert [found.row_id for found in await store.load(ROOT, surface="frames")] == ["10", "9"]
        assert await store.load(ROOT, surface="stages") == []

    async def test_rows_come_in_pages(self, store: ProjectionStore) -> None:
        await store.save([row(row_id, surface=surface) for surface in ("frames", "commands") for row_id in "bBaé"])
        await store.save([row("c", root=Stream("acme", "execution/410"), surface="frames")])
        found: list[str] = []
        while rows := await store.page(ROOT, "frames", after=found[-1] if found else "", limit=3):
            found += [item.row_id for item in rows]
        assert found == sorted("bBaé")
        assert await store.page(ROOT, "stages") == []

    async def test_only_the_wanted_ids_are_loaded(self, store: ProjectionStore) -> None:
        await store.save([row(row_id, surface=surface) for surface in ("frames", "commands") for row_id in "abcd"])
        found = await store.load(ROOT, surface="frames", ids=["c", "nobody", "a", "c"])
        assert [item.row_id for item in found] == ["a", "c"]
        assert [(item.surface, item.row_id) for item in await store.load(ROOT, ids=["b"])] == [
            ("commands", "b"), ("frames", "b"),
        ]  # fmt: skip
        assert await store.load(ROOT, surface="frames", ids=[]) == []

    async def test_many_ids_can_be_loaded_at_once(self, store: ProjectionStore) -> None:
        await store.save([row(str(n), surface="frames") for n in range(3000)])
        ids = [str(n) for n in range(0, 6000, 2)]
        assert len(await store.load(ROOT, surface="frames", ids=ids)) == 1500

    async def test_tenants_do_not_share_rows(self, store: ProjectionStore) -> None:
        other = Stream("globex", ROOT.stream_id)
        await store.save([row("a", 5, who="acme"), row("a", 3, root=other, who="globex")])
        assert [found.version for found in await store.load(other)] == [3]
        assert await store.load(Stream("initech", ROOT.stream_id)) == []

    async def test_roots_of_every_kind_have_rows(self, store: ProjectionStore) -> None:
        roots = ["registry/acme/sales/model/churn", "subscription/orders", "tenant/acme"]
        for root in roots:
            await store.save([row("r", root=Stream("acme", root), surface="resource")])
            assert len(await store.load(Stream("acme", root))) == 1
        page = await store.query("resource", newest_first=False)
        assert [found.root.stream_id for found in page.rows] == roots

    # --- query

    async def test_executions_are_ordered_as_numbers(self, store: ProjectionStore) -> None:
        await store.save([execution(number) for number in (9, 10, 100, 2, (1 << 63) - 1)])
        assert await numbers(store) == [(1 << 63) - 1, 100, 10, 9, 2]
        assert await numbers(store, newest_first=False) == [2, 9, 10, 100, (1 << 63) - 1]

    async def test_one_order_is_the_other_reversed(self, store: ProjectionStore) -> None:
        await store.save(
            [
                row(row_id, root=Stream(tenant, f"execution/{number}"), surface="commands")
                for tenant in ("acme", "globex")
                for number in (1, 20, 3)
                for row_id in ("7", "40")
            ]
        )
        newest = list((await store.query("commands")).rows)
        oldest = list((await store.query("commands", newest_first=False)).rows)
        assert len(newest) == 12
        assert newest == oldest[::-1]

    async def test_a_query_sees_one_surface_and_one_tenant(self, store: ProjectionStore) -> None:
        await store.save([execution(1), execution(2, tenant="globex"), row("c", surface="commands")])
        assert await numbers(store) == [2, 1]
        assert await numbers(store, tenant_id="acme") == [1]
        assert (await store.query("frames")).rows == []

    async def test_fields_are_compared_by_value_and_type(self, store: ProjectionStore) -> None:
        await store.save(
            [
                execution(1, status="RUNNING", path="a/b", attempt=1),
                execution(2, status="RUNNING", path="a/c", attempt=2),
                execution(3, status="FAILED", path="a/b", attempt="1"),
                execution(4, path='it\'s "quoted"', deep={"status": "RUNNING"}, attempt=None),
            ]
        )
        assert await numbers(store, where={"status": "RUNNING"}) == [2, 1]
        assert await numbers(store, where={"path": "a/b"}) == [3, 1]
        assert await numbers(store, where={"status": "RUNNING", "path": "a/b"}) == [1]
        assert await numbers(store, where={"attempt": 1}) == [1]
        assert await numbers(store, where={"attempt": "1"}) == [3]
        assert await numbers(store, where={"path": 'it\'s "quoted"'}) == [4]
        assert await numbers(store, where={"status": "running"}) == []
        assert await numbers(store, where={"nothing": 1}) == []
        assert await numbers(store, where={}) == [4, 3, 2, 1]

    async def test_a_row_that_changes_is_found_by_its_new_fields(self, store: ProjectionStore) -> None:
        await store.save([execution(1, 1, status="RUNNING")])
        await store.save([execution(1, 2, status="COMPLETED")])
        assert await numbers(store, where={"status": "RUNNING"}) == []
        assert await numbers(store, where={"status": "COMPLETED"}) == [1]

    @pytest.mark.parametrize("newest_first", [True, False])
    @pytest.mark.parametrize("where", [None, {"status": "RUNNING"}, {"kind": "x"}])
    async def test_pages_neither_repeat_nor_skip_while_rows_change(
        self, store: ProjectionStore, newest_first: bool, where: dict[str, str] | None
    ) -> None:
        fields: dict[str, Any] = {"status": "RUNNING", "kind": "x"}
        wanted = [number * 10 for number in range(1, 13)]
        await store.save([execution(number, **fields) for number in wanted])
        seen: list[int] = []
        cursor, version = None, 1
        while True:
            page = await store.query("execution", where=where, cursor=cursor, limit=5, newest_first=newest_first)
            seen += [int(found.root.stream_id.split("/")[1]) for found in page.rows]
            version += 1
            await store.save([execution(number, version, **fields, n=version) for number in wanted])
            await store.save([execution(number, **fields) for number in (version, 1000 + version)])
            cursor = page.next_cursor
            if cursor is None:
                break
        kept = [number for number in seen if number in wanted]
        assert kept == sorted(wanted, reverse=newest_first)

    async def test_pages_cut_through_the_rows_of_one_root(self, store: ProjectionStore) -> None:
        roots = [Stream(tenant, "execution/7") for tenant in ("acme", "globex")]
        await store.save([row(f"{n}", root=root, surface="frames") for root in roots for n in range(5)])
        seen: list[ProjectionRow] = []
        cursor = None
        for size in (3, 3, 3, 1):
            page = await store.query("frames", cursor=cursor, limit=3)
            assert len(page.rows) == size
            seen += page.rows
            cursor = page.next_cursor
        assert cursor is None
        assert seen == list((await store.query("frames")).rows)

    @pytest.mark.parametrize("cursor", ["nonsense", "WyJhIl0=", "WyJleGVjdXRpb24veCIsImFjbWUiLCJyb290Il0="])
    async def test_a_cursor_that_no_page_gave_is_refused(self, store: ProjectionStore, cursor: str) -> None:
        with pytest.raises(InvalidInput, match="cursor"):
            await store.query("execution", cursor=cursor)

    # --- snapshots

    async def test_a_snapshot_comes_back_as_it_was_kept(self, store: ProjectionStore) -> None:
        kept = snapshot(10)
        assert await store.save_snapshot(kept) is True
        assert await store.snapshots(ROOT, at_or_before=10) == [kept]

    async def test_a_position_has_one_snapshot(self, store: ProjectionStore) -> None:
        await store.save_snapshot(snapshot(10))
        assert await store.save_snapshot(snapshot(10, checksum="00" * 32)) is False
        assert await store.save_snapshot(snapshot(10)) is False
        assert await store.snapshots(ROOT, at_or_before=99) == [snapshot(10)]

    async def test_snapshots_up_to_a_position_come_newest_first(self, store: ProjectionStore) -> None:
        for position in (30, 10, 40, 20):
            await store.save_snapshot(snapshot(position))

        async def found(at_or_before: int, limit: int = 10) -> list[int]:
            return [item.position for item in await store.snapshots(ROOT, at_or_before=at_or_before, limit=limit)]

        assert await found(99) == [40, 30, 20, 10]
        assert await found(30) == [30, 20, 10]
        assert await found(39, limit=2) == [30, 20]
        assert await found(9) == []

    async def test_snapshots_belong_to_one_root_of_one_tenant(self, store: ProjectionStore) -> None:
        other = Stream("globex", ROOT.stream_id)
        assert await store.save_snapshot(snapshot(10))
        assert await store.save_snapshot(snapshot(10, root=other, event_count=3))
        assert [item.event_count for item in await store.snapshots(other, at_or_before=99)] == [3]
        assert await store.drop_snapshots(other, keep=0) == 1
        assert len(await store.snapshots(ROOT, at_or_before=99)) == 1

    async def test_only_the_newest_snapshots_are_kept(self, store: ProjectionStore) -> None:
        for position in (10, 20, 30, 40):
            await store.save_snapshot(snapshot(position))
        assert await store.drop_snapshots(ROOT, keep=2) == 2
        assert [item.position for item in await store.snapshots(ROOT, at_or_before=99)] == [40, 30]
        assert await store.drop_snapshots(ROOT, keep=5) == 0
        assert await store.drop_snapshots(ROOT, keep=0) == 2
        assert await store.snapshots(ROOT, at_or_before=99) == []
