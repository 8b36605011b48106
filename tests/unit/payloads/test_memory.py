"""What a process keeps of what it has read."""

from __future__ import annotations

from noetl.payloads.memory import MemoryCache


def test_the_least_recently_used_goes_first() -> None:
    cache = MemoryCache[str](100)
    for name in "abcd":
        assert cache.put(name, name.upper(), 25)
    assert cache.get("a") == "A"
    assert cache.put("e", "E", 25)
    assert cache.get("b") is None
    assert [cache.get(name) for name in "acde"] == ["A", "C", "D", "E"]
    assert cache.bytes_in_use == 100


def test_a_value_that_would_push_out_the_others_is_not_kept() -> None:
    cache = MemoryCache[str](100)
    cache.put("a", "A", 25)
    assert not cache.put("b", "B", 26)
    assert (cache.get("a"), cache.get("b"), cache.bytes_in_use) == ("A", None, 25)


def test_a_value_that_is_put_again_counts_once() -> None:
    cache = MemoryCache[str](100)
    cache.put("a", "A", 25)
    cache.put("a", "A2", 10)
    assert (cache.get("a"), cache.bytes_in_use) == ("A2", 10)
    cache.remove("a")
    cache.remove("a")
    assert (cache.get("a"), cache.bytes_in_use) == (None, 0)
