"""Whose a store is."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import InvalidInput
from noetl.runtime.gc.ownership import OWNER_KEY, check_owner, claim


def ledger(key: bytes | None) -> MemoryLedger:
    return MemoryLedger(VirtualClock(0), mac_key=key)


async def test_a_store_is_whose_mark_is_in_it() -> None:
    objects, ours, theirs = MemoryObjectStore(), ledger(b"a" * 32), ledger(b"b" * 32)
    with pytest.raises(InvalidInput, match="nobody has said"):
        await check_owner(objects, ours)
    await claim(objects, ours)
    await claim(objects, ours)
    await check_owner(objects, ours)
    for asked in (check_owner, claim):
        with pytest.raises(InvalidInput, match="another ledger"):
            await asked(objects, theirs)


async def test_the_mark_does_not_give_the_key_away() -> None:
    objects = MemoryObjectStore()
    await claim(objects, ledger(b"a" * 32))
    assert b"a" * 32 not in await objects.get(OWNER_KEY)
    assert (b"a" * 32).hex().encode() not in await objects.get(OWNER_KEY)


async def test_each_route_has_a_mark_of_its_own() -> None:
    objects, ours = MemoryObjectStore(), ledger(b"a" * 32)
    await claim(objects, ours)
    with pytest.raises(InvalidInput, match="nobody has said"):
        await check_owner(objects, ours, "route=s3/")


async def test_a_ledger_without_its_key_owns_nothing() -> None:
    with pytest.raises(InvalidInput, match="wallet's key"):
        await claim(MemoryObjectStore(), ledger(None))


async def test_a_mark_that_cannot_be_understood_is_nobodys() -> None:
    objects = MemoryObjectStore()
    await objects.put(OWNER_KEY, b"{")
    with pytest.raises(InvalidInput, match="cannot be understood"):
        await check_owner(objects, ledger(b"a" * 32))
