"""Several servers of one installation: who has another key, or another store, does not join."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import Corruption, InvalidInput
from noetl.ports.credentials import Credential
from noetl.runtime.installation import STORE_KEY, Means, join
from noetl.tools.secrets.keys import FixedKeys, make_key
from tests.scribe import START


class Site:
    """What servers share, and what each brings."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.kv = MemoryKv(self.clock)
        self.keys = FixedKeys()
        self.credentials = MemoryCredentials(self.clock, self.keys)
        self.objects = MemoryObjectStore()

    def means(self, **other: Any) -> Means:
        usual: dict[str, Any] = {
            "kv": self.kv, "credentials": self.credentials, "ledger_key": b"k" * 32, "wallet_keys": self.keys,
            "objects": self.objects, "store": "s3://ours",
        }  # fmt: skip
        return Means(**usual | other)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_servers_with_the_same_join(site: Site) -> None:
    await join(site.means())
    await join(site.means())


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"ledger_key": None}, "this server has no key to seal the log with"),
        ({"ledger_key": b"x" * 32}, "the key that this server seals the log with is"),
        ({"wallet_keys": FixedKeys()}, "memory holds no key"),
        ({"wallet_keys": FixedKeys([make_key(b"y" * 32)])}, "the other servers seal credentials with key kek-"),
        ({"objects": MemoryObjectStore(), "store": "s3://mine"}, "s3://mine here, which is not the store of the other"),
    ],
)
async def test_one_with_something_else_does_not(site: Site, other: dict[str, Any], problem: str) -> None:
    await join(site.means())
    with pytest.raises(InvalidInput, match=problem) as caught:
        await join(site.means(**other))
    assert caught.value.hint is not None


async def test_one_that_is_refused_has_made_nothing(site: Site) -> None:
    await join(site.means())
    keys, objects = FixedKeys(), MemoryObjectStore()
    for other in ({"wallet_keys": keys}, {"objects": objects}):
        with pytest.raises(InvalidInput):
            await join(site.means(**other))
    assert (await keys.load()).keys == ()
    assert await objects.head(STORE_KEY) is None


async def test_after_a_rotation_the_new_key_is_asked_for(site: Site) -> None:
    await join(site.means())
    await site.credentials.put("acme", Credential(name="crm", type="bearer", data={"token": "t"}))
    old = await site.keys.load()
    await site.credentials.rotate(retire=True)
    await join(site.means())
    with pytest.raises(InvalidInput, match="seal credentials"):
        await join(site.means(wallet_keys=FixedKeys(old.keys)))


async def test_what_cannot_be_understood_is_said(site: Site) -> None:
    await site.kv.put("installation", b"[]")
    with pytest.raises(Corruption, match="value 'installation', cannot be understood"):
        await join(site.means())
    await site.kv.delete("installation")
    await join(site.means())
    await site.objects.put(STORE_KEY, b"{", overwrite=True)
    with pytest.raises(InvalidInput, match="not the store"):
        await join(site.means())
