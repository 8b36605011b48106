"""What every ArchiveIndex must do. A subclass brings the fixture `archives`, empty."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry, ArchiveIndex

MOMENT = datetime(2026, 5, 16, 12, 34, 56, 789000, tzinfo=UTC)


def root(execution_id: int, tenant_id: str = "acme") -> Stream:
    return Stream(tenant_id, f"execution/{execution_id}")


def entry(execution_id: int = 41, tenant_id: str = "acme", **changes: Any) -> ArchiveEntry:
    fields: dict[str, Any] = {
        "root": root(execution_id, tenant_id),
        "uri": f"s3://cold/noetl/execution={execution_id}/",
        "events": 17,
        "first_position": 3,
        "last_position": 1 << 60,
        "stream_heads": "ab" * 32,
        "manifest_sha256": "cd" * 32,
        "bytes": 1 << 40,
        "archived_at": MOMENT,
        **changes,
    }
    return ArchiveEntry(**fields)


class ArchivesContract:
    async def test_what_was_put_is_found_as_it_was(self, archives: ArchiveIndex) -> None:
        assert await archives.put(entry())
        assert await archives.get(root(41)) == entry()
        assert await archives.get(root(4)) is None
        assert await archives.get(root(41, "globex")) is None

    async def test_the_same_again_changes_nothing(self, archives: ArchiveIndex) -> None:
        await archives.put(entry())
        later = entry(archived_at=MOMENT.replace(year=2027), first_position=9)
        assert not await archives.put(later)
        assert await archives.get(root(41)) == entry()

    @pytest.mark.parametrize(("changed", "named"), [("stream_heads", "history"), ("manifest_sha256", "manifest")])
    async def test_another_history_is_refused(self, archives: ArchiveIndex, changed: str, named: str) -> None:
        await archives.put(entry())
        with pytest.raises(Conflict, match=f"execution/41 is archived with another {named}: s3://cold/"):
            await archives.put(msgspec.structs.replace(entry(), **{changed: "ef" * 32}))
        assert await archives.get(root(41)) == entry()
        assert await archives.put(entry(tenant_id="globex", stream_heads="ef" * 32))

    async def test_of_many_at_once_one_is_put(self, archives: ArchiveIndex) -> None:
        outcomes = await asyncio.gather(*(archives.put(entry()) for _ in range(10)))
        assert sorted(outcomes) == [False] * 9 + [True]

    async def test_of_two_histories_at_once_one_is_refused(self, archives: ArchiveIndex) -> None:
        two = (archives.put(entry(stream_heads=digit * 64)) for digit in "01")
        outcomes = await asyncio.gather(*two, return_exceptions=True)
        assert sum(outcome is True for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 1

    async def test_a_tenants_bundles_come_in_order_of_the_executions(self, archives: ArchiveIndex) -> None:
        for number in (9, 100, 10, 1, 99):
            await archives.put(entry(number))
        await archives.put(entry(50, "globex"))
        seen: list[Stream] = []
        while page := await archives.page("acme", after=seen[-1] if seen else None, limit=2):
            assert len(page) <= 2
            seen += [one.root for one in page]
        assert seen == [root(number) for number in (1, 9, 10, 99, 100)]
        assert await archives.page("nobody") == []
