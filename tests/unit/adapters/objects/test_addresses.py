"""Addresses in buckets: who may go where, with which keys. What stores answer is tested in tests/contracts."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects import addresses
from noetl.adapters.objects.addresses import Bucket, Buckets, bucket_of
from noetl.errors import AccessRefused, InvalidInput, NotFound
from noetl.payloads.resolver import NOBODY, Caller

KEYS = {"type": "s3", "access_key_id": "id", "secret_access_key": "planted"}
OWN = Bucket("s3", "ours", "payloads", {"endpoint": "http://10.0.0.1", "region": "eu"})


class Opening:
    """Remembers how stores were opened; each is one in memory."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    async def __call__(
        self, url: str, options: dict[str, Any], credentials: dict[str, str], *, foreign: bool
    ) -> MemoryObjectStore:
        assert foreign, "a stranger's bucket is neither listed nor swept"
        self.asked.append((url, options, credentials))
        return MemoryObjectStore()


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Opening:
    made = Opening()
    monkeypatch.setattr(addresses, "open_store", made)
    return made


async def put(buckets: Buckets, uri: str, caller: Caller = NOBODY) -> None:
    await buckets.write(uri, b"x", caller, overwrite=True)


@pytest.mark.parametrize(
    ("uri", "opened", "options"),
    [
        ("s3://b/k", "s3://b", {}),
        ("gcs://b/k", "gs://b", {}),
        ("azure://c/k", "az://c", {}),
        ("abfs://c@acc.dfs.core.windows.net/k", "az://c", {"account": "acc"}),
        ("abfss://c/k", "az://c", {}),
        ("s3://ours/k", "s3://ours", OWN.options),
    ],
)
async def test_which_store_an_address_leads_to(uri: str, opened: str, options: Any, opening: Opening) -> None:
    await put(Buckets([OWN]), uri)
    assert opening.asked == [(opened, options, {})]


async def test_one_store_is_opened_for_a_bucket_and_a_credential(opening: Opening) -> None:
    buckets = Buckets()
    for caller in (NOBODY, Caller(auth=KEYS), NOBODY, Caller(auth={**KEYS, "secret_access_key": "other"})):
        await put(buckets, "s3://b/k", caller)
    assert [credentials.get("secret_access_key") for *_, credentials in opening.asked] == [None, "planted", "other"]


async def test_the_playbook_says_more_than_the_credential_and_that_more_than_the_settings(opening: Opening) -> None:
    caller = Caller(auth={**KEYS, "endpoint": "http://10.0.0.2", "region": "us"}, options={"region": "de", "method": 1})
    await put(Buckets([OWN]), "s3://ours/k", caller)
    assert opening.asked[0][1] == {"endpoint": "http://10.0.0.2", "region": "de"}


async def test_keys_are_percent_encoded_and_come_back_so(opening: Opening) -> None:
    buckets = Buckets()
    await put(buckets, "s3://b/a%20b/%3F%25.json")
    await put(buckets, "s3://b/other")
    found = [entry.uri async for entry in buckets.list("s3://b/a", NOBODY)]
    assert found == ["s3://b/a%20b/%3F%25.json"]
    assert await buckets.read(found[0], NOBODY, limit=1) == b"x"
    with pytest.raises(NotFound, match="there is no object at 's3://b/A%20b'"):
        await buckets.read("s3://b/A b", NOBODY, limit=1)


async def test_what_this_installation_keeps_is_closed(opening: Opening) -> None:
    buckets = Buckets([OWN, Bucket("gs", "all-ours", "", {})])
    await put(buckets, "s3://ours/payloads-of-mine/k")
    for uri in ("s3://ours/payloads/default/ab", "s3://ours/payloads", "gs://all-ours/k", "gcs://all-ours/k"):
        with pytest.raises(AccessRefused, match="keeps its payloads"):
            await put(buckets, uri)
        with pytest.raises(AccessRefused):
            await buckets.read(uri, NOBODY, limit=1)
        with pytest.raises(AccessRefused):
            [piece async for piece in buckets.stream(uri, NOBODY)]
    store = next(iter(buckets._open.values()))
    await store.put("payloads/default/ab", b"x")
    assert [entry.uri async for entry in buckets.list("s3://ours/", NOBODY)] == ["s3://ours/payloads-of-mine/k"]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://planted:planted@b/k",
        "s3://b/k?X-Amz-Signature=planted",
        "s3://b/k#planted",
        "s3://b:80/k",
        "s3:///planted",
        "s3://[planted/k",
    ],
)
async def test_an_address_that_could_carry_a_secret_is_not_repeated(uri: str, opening: Opening) -> None:
    with pytest.raises(InvalidInput) as refused:
        await put(Buckets(), uri)
    assert "planted" not in str(refused.value)
    assert opening.asked == []


async def test_a_bucket_is_no_object(opening: Opening) -> None:
    with pytest.raises(InvalidInput, match="names a bucket, not an object"):
        await put(Buckets(), "s3://b/")


@pytest.mark.parametrize("caller", [Caller(options={"endpoint": "http://10.0.0.3"})])
async def test_what_the_machine_may_is_not_sent_to_an_address_of_a_playbook(caller: Caller, opening: Opening) -> None:
    with pytest.raises(InvalidInput, match="the credentials of this machine are not sent"):
        await put(Buckets(), "gs://b/k", caller)
    await put(Buckets(), "s3://b/k", Caller(auth={"type": "s3", "anonymous": True, "endpoint": "http://10.0.0.3"}))
    assert opening.asked == [("s3://b", {"anonymous": True, "endpoint": "http://10.0.0.3"}, {})]


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal", "[fe80::1]", "sly.example"])
async def test_endpoints_that_give_out_this_machines_identity_are_blocked(
    host: str, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(name: str, *_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("169.254.169.254" if name == "sly.example" else name, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    caller = Caller(auth={**KEYS, "endpoint": f"http://{host}"})
    with pytest.raises(AccessRefused, match="link-local or a metadata service"):
        await put(Buckets(), "s3://b/k", caller)
    await put(Buckets(allow_link_local=True), "s3://b/k", caller)
    assert len(opening.asked) == 1


def test_the_bucket_of_a_setting() -> None:
    assert bucket_of("s3://b/a/b/", {"region": "eu"}) == Bucket("s3", "b", "a/b", {"region": "eu"})
    assert bucket_of("file:///a", {}) is None
