"""What every Kv must do. A subclass brings the fixture `kv`, empty, on the machine's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from noetl.errors import Conflict
from noetl.ports.kv import NEW, Entry, Kv

PATIENCE = 10.0


async def following(changes: AsyncIterator[Entry]) -> Entry:
    return await asyncio.wait_for(anext(changes), PATIENCE)


async def gone(kv: Kv, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await kv.get(key) is not None:  # noqa: ASYNC110  # nothing tells whoever does not watch
            await asyncio.sleep(0.02)


class KvContract:
    async def test_a_value_is_read_back(self, kv: Kv) -> None:
        assert await kv.get("circuit/crm") is None
        revision = await kv.put("circuit/crm", b"open\0\xff")
        assert await kv.get("circuit/crm") == Entry(key="circuit/crm", value=b"open\0\xff", revision=revision)

    @pytest.mark.parametrize("key", ["a", "a.b", "ends.", ".begins", "with space", "ÄÖ/*>=%", "x" * 300])
    async def test_any_text_is_a_key(self, kv: Kv, key: str) -> None:
        await kv.put(key, b"1")
        found = await kv.get(key)
        assert found is not None
        assert (found.key, [entry.key for entry in await kv.list()]) == (key, [key])

    async def test_an_empty_value_is_a_value(self, kv: Kv) -> None:
        await kv.put("a", b"")
        found = await kv.get("a")
        assert found is not None
        assert found.value == b""

    async def test_revisions_grow_over_all_keys(self, kv: Kv) -> None:
        revisions = [await kv.put(key, b"1") for key in ("a", "b", "a")]
        assert revisions == sorted(set(revisions))
        await kv.delete("a")
        assert await kv.put("a", b"2", expected=NEW) > revisions[-1]

    async def test_of_many_creators_one_wins(self, kv: Kv) -> None:
        tries = await asyncio.gather(
            *(kv.put("leader", f"{n}".encode(), expected=NEW) for n in range(10)), return_exceptions=True
        )
        (winner,) = [n for n, tried in enumerate(tries) if isinstance(tried, int)]
        assert all(isinstance(tried, Conflict) for n, tried in enumerate(tries) if n != winner)
        found = await kv.get("leader")
        assert found is not None
        assert found.value == f"{winner}".encode()

    async def test_a_stale_writer_changes_nothing(self, kv: Kv) -> None:
        first = await kv.put("a", b"1")
        second = await kv.put("a", b"2", expected=first)
        for stale in (first, NEW, second + 100):
            with pytest.raises(Conflict, match="'a'"):
                await kv.put("a", b"3", expected=stale)
            with pytest.raises(Conflict, match="'a'"):
                await kv.delete("a", expected=stale)
        found = await kv.get("a")
        assert found == Entry(key="a", value=b"2", revision=second)

    async def test_a_value_that_is_not_there_has_no_revision(self, kv: Kv) -> None:
        with pytest.raises(Conflict):
            await kv.put("a", b"1", expected=7)

    async def test_a_deleted_value_is_gone_and_can_be_made_again(self, kv: Kv) -> None:
        revision = await kv.put("a", b"1")
        assert await kv.delete("a", expected=revision)
        assert await kv.get("a") is None
        assert not await kv.delete("a")
        assert await kv.list() == []
        await kv.put("a", b"2", expected=NEW)
        with pytest.raises(Conflict):
            await kv.put("a", b"3", expected=revision)

    async def test_a_value_goes_when_its_time_is_up(self, kv: Kv) -> None:
        await kv.put("a", b"1", seconds=1)
        await kv.put("b", b"2")
        assert await kv.get("a") is not None
        await gone(kv, "a")
        assert [entry.key for entry in await kv.list()] == ["b"]
        await kv.put("a", b"3", expected=NEW)
        assert await kv.get("a") is not None

    async def test_values_are_listed_by_prefix_in_order(self, kv: Kv) -> None:
        for key in ("circuit/b", "circuit/a", "cursor/x", "circuit"):
            await kv.put(key, key.encode())
        assert [entry.key for entry in await kv.list("circuit/")] == ["circuit/a", "circuit/b"]
        assert [entry.value for entry in await kv.list("cursor")] == [b"cursor/x"]
        assert len(await kv.list()) == 4

    async def test_a_watcher_sees_what_is_there_and_what_changes(self, kv: Kv) -> None:
        await kv.put("circuit/a", b"1")
        await kv.put("other", b"1")
        changes = kv.watch("circuit/")
        first = await following(changes)
        assert (first.key, first.value) == ("circuit/a", b"1")
        await kv.put("circuit/b", b"2")
        second = await following(changes)
        assert (second.key, second.value) == ("circuit/b", b"2")
        await kv.put("other", b"2")
        await kv.delete("circuit/a")
        third = await following(changes)
        assert (third.key, third.value) == ("circuit/a", None)
        await changes.aclose()  # type: ignore[attr-defined]  # every watch is a generator

    async def test_a_watcher_is_told_when_a_time_is_up(self, kv: Kv) -> None:
        changes = kv.watch()
        await kv.put("a", b"1", seconds=1)
        assert (await following(changes)).value == b"1"
        ended = await following(changes)
        assert (ended.key, ended.value) == ("a", None)
        await changes.aclose()  # type: ignore[attr-defined]  # every watch is a generator
