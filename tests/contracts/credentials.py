"""What every store of credentials must do. A subclass brings `open_store`, which opens one wallet with any keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import InvalidInput, InvalidName, NotFound
from noetl.kernel.time import format_time
from noetl.ports.credentials import Credential, CredentialInfo, Credentials
from noetl.tools.secrets.envelope import decrypt_text
from noetl.tools.secrets.keys import FixedKeys, Keys, make_key

SECRET = "correct-horse/battery+staple"
OpenStore = Callable[[Keys], Credentials]


def bearer(name: str = "crm", token: str = SECRET) -> Credential:
    return Credential(name=name, type="bearer", data={"token": token})


async def names(store: Credentials, tenant: str = "acme", kind: str | None = None) -> list[str]:
    return [info.name for info in (await store.list(tenant, kind=kind)).credentials]


@pytest.fixture
def keys() -> FixedKeys:
    return FixedKeys()


class CredentialsContract:
    @pytest.fixture
    def store(self, open_store: OpenStore, keys: FixedKeys) -> Credentials:
        return open_store(keys)

    async def test_what_was_stored_is_resolved(self, store: Credentials, clock: VirtualClock) -> None:
        data = {"url": "nats://n:4222", "password": SECRET, "options": {"größe": [1, 2.5, None, True, "🙂"]}}
        given = Credential(name="bus", type="nats", description="the bus", tags=("eu", "test"), data=data)
        info = await store.put("acme", given)
        assert info == CredentialInfo(
            tenant_id="acme",
            name="bus",
            type="nats",
            description="the bus",
            tags=("eu", "test"),
            fields=("url", "password", "options"),
            version=1,
            key_id=info.key_id,
            created_at=format_time(clock.now()),
            updated_at=format_time(clock.now()),
        )
        assert await store.get("acme", "bus") == info
        assert await store.resolve("acme", "bus") == given

    async def test_it_names_the_key_of_new_records_also_without_it(self, open_store: OpenStore) -> None:
        keys = FixedKeys()
        store = open_store(keys)
        assert await store.key_id() is None
        first = (await store.put("acme", bearer())).key_id
        assert await open_store(FixedKeys()).key_id() == first
        assert await store.key_id() == first
        renewed = (await store.rotate()).key_id
        assert await store.key_id() == renewed != first

    async def test_storing_again_makes_the_next_version(self, store: Credentials, clock: VirtualClock) -> None:
        first = await store.put("acme", bearer())
        clock.advance(60)
        second = await store.put("acme", bearer(token="another one"))
        assert (second.version, second.created_at) == (2, first.created_at)
        assert second.updated_at > first.updated_at
        assert (await store.resolve("acme", "crm")).data == {"token": "another one"}

    async def test_a_name_that_is_taken_is_kept_if_so_wished(self, store: Credentials) -> None:
        await store.put("acme", bearer(), replace=False)
        with pytest.raises(InvalidInput, match="there is a credential 'crm' already"):
            await store.put("acme", bearer(token="another one"), replace=False)
        assert (await store.resolve("acme", "crm")).data == {"token": SECRET}

    async def test_tenants_do_not_see_each_other(self, store: Credentials) -> None:
        await store.put("acme", bearer())
        await store.put("globex", bearer(token="of globex"))
        assert (await store.resolve("acme", "crm")).data == {"token": SECRET}
        await store.remove("globex", "crm")
        assert await names(store) == ["crm"]
        for asked in (store.get, store.resolve, store.remove):
            with pytest.raises(NotFound, match="there is no credential 'crm'"):
                await asked("globex", "crm")

    async def test_a_list_has_no_values_and_goes_on_where_it_ended(self, store: Credentials) -> None:
        for number in range(7):
            await store.put("acme", bearer(f"c{number}"))
        await store.put("acme", Credential(name="b", type="secret", data={"secret": SECRET}))
        first = await store.list("acme", limit=5)
        rest = await store.list("acme", limit=5, cursor=first.next_cursor)
        assert [info.name for info in (*first.credentials, *rest.credentials)] == ["b", *(f"c{n}" for n in range(7))]
        assert rest.next_cursor is None
        assert SECRET not in repr((first, rest))
        assert await names(store, kind="secret") == ["b"]

    async def test_what_was_removed_is_gone_and_may_come_back(self, store: Credentials) -> None:
        await store.put("acme", bearer())
        await store.remove("acme", "crm")
        assert await names(store) == []
        assert (await store.put("acme", bearer())).version == 1

    @pytest.mark.parametrize("name", ["", "a b", "a/b", "../up", ".hidden", "ä", "a" * 129, "a\n"])
    async def test_a_name_that_is_none_is_refused(self, name: str, store: Credentials) -> None:
        with pytest.raises(InvalidName):
            await store.put("acme", bearer(name))

    async def test_a_credential_that_lacks_a_field_is_refused_and_nothing_is_stored(self, store: Credentials) -> None:
        given = Credential(name="pg", type="postgres", data={"db_host": "h", "db_password": SECRET})
        with pytest.raises(InvalidInput, match="of type postgres has no db_user, db_name") as caught:
            await store.put("acme", given)
        assert SECRET not in str(caught.value)
        assert await names(store) == []

    async def test_another_key_opens_nothing_and_stores_nothing(
        self, store: Credentials, open_store: OpenStore
    ) -> None:
        right = (await store.put("acme", bearer())).key_id
        wrong = make_key()
        other = open_store(FixedKeys([wrong], place="elsewhere"))
        for attempt in (other.resolve("acme", "crm"), other.put("acme", bearer("new")), other.rotate()):
            with pytest.raises(InvalidInput, match=f"{right}, but elsewhere holds {wrong.id} instead") as caught:
                await attempt
            assert caught.value.hint is not None
            assert "NOETL_WALLET__KEK" in caught.value.hint
        assert await names(other) == ["crm"], "what there is can be seen without the key"
        assert (await store.resolve("acme", "crm")).data == {"token": SECRET}

    async def test_without_a_key_nothing_new_is_made_up(self, store: Credentials, open_store: OpenStore) -> None:
        await store.put("acme", bearer())
        with pytest.raises(InvalidInput, match="holds no key"):
            await open_store(FixedKeys()).put("acme", bearer("new"))

    async def test_a_rotation_wraps_everything_with_a_new_key(
        self, store: Credentials, open_store: OpenStore, keys: FixedKeys
    ) -> None:
        before = [await store.put(tenant, bearer()) for tenant in ("acme", "globex")]
        rotation = await store.rotate()
        assert (rotation.previous_key_id, rotation.key_version, rotation.rewrapped) == (before[0].key_id, 2, 2)
        newest = (await keys.load()).newest
        assert newest is not None
        assert newest.id == rotation.key_id != rotation.previous_key_id
        with_new = open_store(FixedKeys([newest]))
        for tenant in ("acme", "globex"):
            assert (await with_new.resolve(tenant, "crm")).data == {"token": SECRET}
            info = await with_new.get(tenant, "crm")
            assert (info.version, info.key_id) == (1, newest.id), "the data is what it was"

    async def test_a_writer_that_knows_the_old_key_only_learns_of_the_new_one(
        self, store: Credentials, open_store: OpenStore, keys: FixedKeys
    ) -> None:
        await store.put("acme", bearer())
        other = open_store(keys)
        await other.resolve("acme", "crm")
        rotation = await store.rotate(retire=True)
        assert (await other.put("acme", bearer("new"))).key_id == rotation.key_id
        assert (await other.resolve("acme", "crm")).data == {"token": SECRET}

    async def test_older_keys_stay_until_they_are_retired(self, store: Credentials, keys: FixedKeys) -> None:
        await store.put("acme", bearer())
        await store.rotate()
        await store.rotate()
        assert len((await keys.load()).keys) == 3
        last = await store.rotate(retire=True)
        assert [key.id for key in (await keys.load()).keys] == [last.key_id]
        assert (await store.resolve("acme", "crm")).data == {"token": SECRET}

    async def test_a_rotation_that_was_cut_off_goes_on_with_its_key(self, store: Credentials, keys: FixedKeys) -> None:
        current = (await store.put("acme", bearer())).key_id
        left_behind = (await keys.renew(current)).newest
        assert left_behind is not None
        assert (await store.put("acme", bearer("new"))).key_id == current, "until it is finished the old key holds"
        assert (await store.rotate()).key_id == left_behind.id

    async def test_an_empty_wallet_has_nothing_to_rotate(self, store: Credentials) -> None:
        with pytest.raises(InvalidInput, match="no credential was stored yet"):
            await store.rotate()

    async def test_many_writers_at_once(self, store: Credentials) -> None:
        infos = await asyncio.gather(*(store.put("acme", bearer(token=f"token {n}")) for n in range(20)))
        assert sorted(info.version for info in infos) == list(range(1, 21))
        assert len({info.key_id for info in infos}) == 1

    async def test_a_text_can_be_sealed_for_elsewhere(self, store: Credentials, keys: FixedKeys) -> None:
        encrypt = await store.encrypter()
        word = encrypt(SECRET)
        assert SECRET not in word
        assert word != encrypt(SECRET)
        assert decrypt_text(await keys.load(), word) == SECRET
