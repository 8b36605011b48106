"""Copies on disk: bounded, verified on every read, shared by processes, never in the way."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from noetl.payloads.disk import DiskCache
from noetl.payloads.locks import locked
from noetl.payloads.store import payload_key

KIB = 1024


def content(number: int, size: int = KIB) -> bytes:
    return number.to_bytes(8, "big") * (size // 8)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key(data: bytes, tenant: str = "acme") -> str:
    return payload_key(tenant, sha(data))


def read(cache: DiskCache, data: bytes) -> object:
    found = cache.get(key(data), sha(data), len(data))
    return found if isinstance(found, str) else bytes(found)


def copies(cache_root: Path) -> list[Path]:
    return [path for path in (cache_root / "copies").rglob("*") if path.is_file()]


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache.open(tmp_path / "cache", 10 * KIB)


class TestCopies:
    def test_bytes_come_back(self, cache: DiskCache) -> None:
        data = content(1)
        assert read(cache, data) == "miss"
        assert cache.put(key(data), data)
        assert cache.put(key(data), data)
        assert read(cache, data) == data
        assert cache.bytes_in_use == KIB

    def test_nothing_is_something_too(self, cache: DiskCache) -> None:
        assert cache.put(key(b""), b"")
        assert read(cache, b"") == b""

    def test_tenants_have_copies_of_their_own(self, cache: DiskCache) -> None:
        data = content(1)
        cache.put(key(data), data)
        assert cache.get(key(data, "other"), sha(data), len(data)) == "miss"

    def test_only_the_owner_reads_them(self, cache: DiskCache, tmp_path: Path) -> None:
        cache.put(key(content(1)), content(1))
        [copy] = copies(tmp_path / "cache")
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700

    @pytest.mark.parametrize("damage", [content(2), content(1)[:-1], content(1) + b"x", b""])
    def test_a_damaged_copy_is_removed(self, cache: DiskCache, tmp_path: Path, damage: bytes) -> None:
        data = content(1)
        cache.put(key(data), data)
        [copy] = copies(tmp_path / "cache")
        copy.write_bytes(damage)
        assert read(cache, data) == "damaged"
        assert read(cache, data) == "miss"
        assert cache.put(key(data), data)
        assert read(cache, data) == data

    def test_a_link_is_not_followed(self, cache: DiskCache, tmp_path: Path) -> None:
        data = content(1)
        cache.put(key(data), data)
        [copy] = copies(tmp_path / "cache")
        copy.rename(tmp_path / "elsewhere")
        copy.symlink_to(tmp_path / "elsewhere")
        assert read(cache, data) == "miss"

    def test_what_was_read_stays_whole_when_its_copy_goes(self, cache: DiskCache) -> None:
        data = content(1)
        cache.put(key(data), data)
        found = cache.get(key(data), sha(data), len(data))
        cache.remove(key(data))
        assert not isinstance(found, str)
        assert bytes(found) == data


class TestBudget:
    def test_what_was_not_read_for_longest_goes_first(self, cache: DiskCache, tmp_path: Path) -> None:
        for number in range(10):
            assert cache.put(key(content(number)), content(number))
            path = cache._path(key(content(number)))
            os.utime(path, ns=(number, number))
        assert read(cache, content(0)) == content(0)
        assert cache.put(key(content(10)), content(10))
        assert cache.bytes_in_use <= 10 * KIB
        assert read(cache, content(0)) == content(0)
        assert read(cache, content(1)) == "miss"
        assert read(cache, content(10)) == content(10)

    def test_it_is_never_exceeded(self, cache: DiskCache) -> None:
        for number in range(100):
            size = 8 * (number % 40 + 1)
            cache.put(key(content(number, size)), content(number, size))
            assert cache.bytes_in_use <= 10 * KIB

    def test_what_would_push_out_the_others_is_not_kept(self, cache: DiskCache) -> None:
        data = content(1, 3 * KIB)
        assert not cache.put(key(data), data)
        assert cache.bytes_in_use == 0

    def test_a_smaller_budget_holds_from_the_next_start(self, cache: DiskCache, tmp_path: Path) -> None:
        for number in range(8):
            cache.put(key(content(number)), content(number))
        assert DiskCache.open(tmp_path / "cache", 4 * KIB).bytes_in_use <= 4 * KIB

    @pytest.mark.parametrize("text", ["", "nonsense", "0"])
    def test_a_sum_that_is_lost_is_taken_again(self, cache: DiskCache, tmp_path: Path, text: str) -> None:
        for number in range(9):
            cache.put(key(content(number)), content(number))
        (tmp_path / "cache" / "sum").write_text(text)
        DiskCache.open(tmp_path / "cache", 10 * KIB)
        for number in range(9, 30):
            cache.put(key(content(number)), content(number))
        assert cache.bytes_in_use <= 10 * KIB

    def test_processes_keep_it_together(self, tmp_path: Path) -> None:
        root = tmp_path / "cache"
        DiskCache.open(root, 10 * KIB)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_fill, args=(root, worker)) for worker in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        cache = DiskCache(root, 10 * KIB)
        assert 0 < cache.bytes_in_use <= 10 * KIB
        assert list((root / "drafts").iterdir()) == []


def _fill(root: Path, worker: int) -> None:
    """Writes and reads as the others do; a copy that is there must be whole."""
    cache = DiskCache(root, 10 * KIB)
    for number in range(150):
        data = content(number * (worker + 1))
        cache.put(key(data), data)
        assert read(cache, data) in (data, "miss")


class TestTrouble:
    def test_a_full_disk_costs_the_copy_and_leaves_nothing(
        self, cache: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(fd: int, data: memoryview) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("noetl.payloads.disk.os.write", full)
        assert not cache.put(key(content(1)), content(1))
        monkeypatch.undo()
        assert list((tmp_path / "cache" / "drafts").iterdir()) == []
        assert read(cache, content(1)) == "miss"

    def test_a_busy_cache_is_done_without(self, cache: DiskCache, tmp_path: Path) -> None:
        with locked(tmp_path / "cache" / "lock"):
            assert not cache.put(key(content(1)), content(1))
        assert cache.put(key(content(1)), content(1))

    def test_drafts_of_the_dead_go_at_the_next_start(self, cache: DiskCache, tmp_path: Path) -> None:
        drafts = tmp_path / "cache" / "drafts"
        (drafts / "1-old").write_bytes(b"x")
        os.utime(drafts / "1-old", (1, 1))
        (drafts / "2-new").write_bytes(b"x")
        DiskCache.open(tmp_path / "cache", 10 * KIB)
        assert [path.name for path in drafts.iterdir()] == ["2-new"]

    def test_a_cache_that_was_deleted_under_us_has_nothing(self, cache: DiskCache, tmp_path: Path) -> None:
        (tmp_path / "cache").rename(tmp_path / "gone")
        assert read(cache, content(1)) == "miss"
        assert not cache.put(key(content(1)), content(1))
