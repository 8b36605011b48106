"""What every Catalog must do. A subclass brings the fixture `catalog`, empty, on `clock`."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.catalog import Catalog, CatalogEntry


async def register(catalog: Catalog, path: str, content: str = "x", kind: str = "playbook") -> CatalogEntry:
    return await catalog.register("acme", path, kind, content)


async def listed(catalog: Catalog, **filters: Any) -> list[str]:
    return [entry.path for entry in (await catalog.list("acme", **filters)).entries]


class CatalogContract:
    async def test_what_was_registered_is_found(self, catalog: Catalog, clock: VirtualClock) -> None:
        content = "name: größer 🙂\r\n\ttail \n"
        entry = await register(catalog, "guide/hello", content)
        assert entry == CatalogEntry(
            catalog_id=entry.catalog_id,
            tenant_id="acme",
            path="guide/hello",
            version=1,
            kind="playbook",
            sha256=hashlib.sha256(content.encode()).hexdigest(),
            content=content,
            created_at=format_time(clock.now()),
        )
        assert await catalog.get("acme", "guide/hello") == entry

    async def test_every_version_has_a_number_of_its_own(self, catalog: Catalog) -> None:
        entries = [await register(catalog, path) for path in ("a", "b", "a")]
        entries.append(await catalog.register("other", "a", "playbook", "x"))
        assert len({entry.catalog_id for entry in entries}) == len(entries)
        assert await catalog.by_id("acme", entries[2].catalog_id) == entries[2]
        for number in (entries[3].catalog_id, 0, -1, 10**6, 2**63 - 1):
            with pytest.raises(NotFound, match=f"no entry {number}"):
                await catalog.by_id("acme", number)

    async def test_every_registration_makes_the_next_version(self, catalog: Catalog) -> None:
        entries = [await register(catalog, "a", content) for content in ("one", "two", "two")]
        assert [entry.version for entry in entries] == [1, 2, 3]
        assert await catalog.get("acme", "a") == entries[2]
        assert await catalog.get("acme", "a", 2) == entries[1]
        assert await catalog.versions("acme", "a") == entries

    async def test_registrations_at_once_get_versions_of_their_own(self, catalog: Catalog) -> None:
        entries = await asyncio.gather(*(register(catalog, "a", f"content {n}") for n in range(20)))
        assert sorted(entry.version for entry in entries) == list(range(1, 21))
        assert sorted(entries, key=lambda entry: entry.version) == list(await catalog.versions("acme", "a"))

    async def test_outer_slashes_do_not_count(self, catalog: Catalog) -> None:
        first = await register(catalog, "/guide/hello/")
        second = await register(catalog, "guide/hello")
        assert (first.path, second.version) == ("guide/hello", 2)
        assert await catalog.get("acme", "//guide/hello") == second
        assert await catalog.versions("acme", "guide/hello/") == [first, second]
        assert await listed(catalog, prefix="/guide/") == ["guide/hello"]

    @pytest.mark.parametrize("path", ["a", "A-b_c.d/0", "v1.2/x", "-", "..."])
    async def test_letters_digits_and_some_marks_make_a_path(self, catalog: Catalog, path: str) -> None:
        assert (await register(catalog, path)).path == path

    @pytest.mark.parametrize(
        "path", ["", "/", "a//b", "a b", "a\n", "größe", "a/../b", "..", "./a", "a@1", "a%2Fb", "a\\b", "x" * 600]
    )
    async def test_other_paths_are_refused_by_name(self, catalog: Catalog, path: str) -> None:
        for call in (register(catalog, path), catalog.get("acme", path), catalog.versions("acme", path)):
            with pytest.raises(InvalidInput, match="path") as refused:
                await call
            assert not isinstance(refused.value, NotFound)
        assert await listed(catalog) == []

    async def test_a_document_without_utf8_form_is_refused(self, catalog: Catalog) -> None:
        with pytest.raises(InvalidInput, match="surrogate"):
            await register(catalog, "a", "lone \ud800")
        assert await listed(catalog) == []

    async def test_what_is_not_there_is_not_found(self, catalog: Catalog) -> None:
        await register(catalog, "a")
        with pytest.raises(NotFound, match="'b'"):
            await catalog.get("acme", "b")
        for version in (0, 2, -1):
            with pytest.raises(NotFound, match=f"version {version}"):
                await catalog.get("acme", "a", version)
        with pytest.raises(NotFound, match="ab" * 32):
            await catalog.by_digest("acme", "ab" * 32)
        assert await catalog.versions("acme", "b") == []

    async def test_a_digest_finds_the_first_entry_with_that_content(self, catalog: Catalog) -> None:
        first = await register(catalog, "z", "same")
        await register(catalog, "a", "same")
        await register(catalog, "z", "same")
        assert await catalog.by_digest("acme", first.sha256) == first

    async def test_tenants_do_not_see_each_other(self, catalog: Catalog) -> None:
        entry = await register(catalog, "a", "content")
        other = await catalog.register("globex", "a", "playbook", "other")
        assert other.version == 1
        assert await listed(catalog) == ["a"]
        assert await catalog.get("acme", "a") == entry
        with pytest.raises(NotFound):
            await catalog.by_digest("globex", entry.sha256)
        assert await catalog.versions("initech", "a") == []

    async def test_the_latest_of_each_path_is_listed_in_order(self, catalog: Catalog) -> None:
        for path in ("b", "a/c", "a", "a-b", "a.b", "B", "b"):
            await register(catalog, path, f"{path} again")
        page = await catalog.list("acme")
        assert [(entry.path, entry.version) for entry in page.entries] == [
            ("B", 1), ("a", 1), ("a-b", 1), ("a.b", 1), ("a/c", 1), ("b", 2),
        ]  # fmt: skip
        assert page.next_cursor is None

    async def test_a_list_can_be_narrowed_by_prefix_and_kind(self, catalog: Catalog) -> None:
        for path in ("guide/a", "guide/b", "guided", "other"):
            await register(catalog, path)
        await register(catalog, "guide/b", kind="credential")
        assert await listed(catalog, prefix="guide") == ["guide/a", "guide/b", "guided"]
        assert await listed(catalog, prefix="guide/") == ["guide/a", "guide/b"]
        assert await listed(catalog, prefix="guide/", kind="playbook") == ["guide/a"]
        assert await listed(catalog, kind="credential") == ["guide/b"]
        assert await listed(catalog, prefix="no such") == []
        assert await listed(catalog, prefix="%") == []

    async def test_pages_follow_each_other_while_documents_are_added(self, catalog: Catalog) -> None:
        for n in range(7):
            await register(catalog, f"p/{n}")
        seen, cursor = [], None
        while True:
            page = await catalog.list("acme", prefix="p/", cursor=cursor, limit=3)
            seen += [entry.path for entry in page.entries]
            await register(catalog, "p/0", "changed")
            await register(catalog, "p/00", "before the cursor")
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [f"p/{n}" for n in range(7)]

    async def test_a_page_that_ends_exactly_is_the_last(self, catalog: Catalog) -> None:
        for n in range(4):
            await register(catalog, f"p/{n}")
        page = await catalog.list("acme", limit=2)
        assert (await catalog.list("acme", cursor=page.next_cursor, limit=2)).next_cursor is None

    @pytest.mark.parametrize("cursor", ["nonsense", "p/1", "WyJhIiwiYiJd", "§"])
    async def test_a_cursor_that_no_page_gave_is_refused(self, catalog: Catalog, cursor: str) -> None:
        with pytest.raises(InvalidInput, match="cursor"):
            await catalog.list("acme", cursor=cursor)
