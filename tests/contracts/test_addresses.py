"""The same artifact tasks on files and in every kind of bucket, each against an emulator that the tests start."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from noetl.adapters.objects.addresses import Buckets
from noetl.errors import AccessRefused, NotFound, Unavailable
from noetl.payloads.resolver import Caller, Resolver
from noetl.tools.base import Call
from tests.contracts.addresses import AddressContract, act, error
from tests.services.azurite import azurite_bucket, azurite_server
from tests.services.buckets import QUICK, Bucket
from tests.services.emulator import free_ports
from tests.services.fake_gcs import fake_gcs_bucket, fake_gcs_server
from tests.services.moto import SECRET, moto_bucket, moto_server
from tests.services.seaweedfs import READER, seaweedfs_bucket, seaweedfs_server

__all__ = [
    "azurite_bucket", "azurite_server", "fake_gcs_bucket", "fake_gcs_server",
    "moto_bucket", "moto_server", "seaweedfs_bucket", "seaweedfs_server",
]  # fmt: skip


def credential(kind: str, bucket: Bucket, **changed: Any) -> dict[str, Any]:
    """What `auth` resolves to: the keys, and how the emulator is reached."""
    return {"type": kind, **QUICK, **bucket.options, **bucket.credentials, **changed}


def opened(link: str) -> bytes:
    with urlopen(link) as answer:
        content: bytes = answer.read()
        return content


class TestFiles(AddressContract):
    @pytest.fixture
    def base(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/store/"


class TestMoto(AddressContract):
    @pytest.fixture
    def base(self, moto_bucket: Bucket) -> str:
        return f"{moto_bucket.url}/some/prefix/"

    @pytest.fixture
    def auth(self, moto_bucket: Bucket) -> dict[str, Any]:
        return credential("s3", moto_bucket)


class TestSeaweedFS(AddressContract):
    @pytest.fixture
    def base(self, seaweedfs_bucket: Bucket) -> str:
        return f"{seaweedfs_bucket.url}/"

    @pytest.fixture
    def auth(self, seaweedfs_bucket: Bucket) -> dict[str, Any]:
        return credential("aws", seaweedfs_bucket)

    async def test_a_link_reads_one_object(self, base: str, auth: dict[str, Any], call: Call) -> None:
        buckets, caller = Buckets(), Caller(auth=auth)
        await buckets.write(f"{base}a", b"text", caller, overwrite=True)
        link = await buckets.link(f"{base}a", caller, expires_in=timedelta(minutes=5))
        assert await asyncio.to_thread(opened, link) == b"text"
        with pytest.raises(NotFound):
            await buckets.link(f"{base}gone", caller, expires_in=timedelta(minutes=5))


class TestAzurite(AddressContract):
    @pytest.fixture
    def base(self, azurite_bucket: Bucket) -> str:
        return f"{azurite_bucket.url}/prefix/"

    @pytest.fixture
    def auth(self, azurite_bucket: Bucket) -> dict[str, Any]:
        return credential("azure", azurite_bucket)


class TestAzuriteByAccount(TestAzurite):
    """The other spelling, in which the account stands in the address."""

    @pytest.fixture
    def base(self, azurite_bucket: Bucket) -> str:
        container = azurite_bucket.url.removeprefix("az://")
        return f"abfss://{container}@{azurite_bucket.options['account']}.dfs.core.windows.net/prefix/"

    @pytest.fixture
    def auth(self, azurite_bucket: Bucket) -> dict[str, Any]:
        return {name: value for name, value in credential("azure", azurite_bucket).items() if name != "account"}


class TestFakeGcs(AddressContract):
    @pytest.fixture
    def base(self, fake_gcs_bucket: Bucket) -> str:
        return f"{fake_gcs_bucket.url}/prefix/"

    @pytest.fixture
    def auth(self, fake_gcs_bucket: Bucket) -> dict[str, Any]:
        return credential("google_oauth", fake_gcs_bucket)


class TestFailures:
    """Each is one message with the place, the cause and the fix, and no secret in it."""

    async def test_wrong_credentials(self, seaweedfs_bucket: Bucket) -> None:
        said = await self.said(
            seaweedfs_bucket.url, credential("s3", seaweedfs_bucket, secret_access_key="a-planted-one")
        )
        assert (said["kind"], said["code"], said["retryable"]) == ("storage_access", "ACCESS_REFUSED", False)
        assert "the credentials are not accepted" in said["message"]
        assert "check the key and its secret" in said["message"]

    async def test_forbidden(self, seaweedfs_bucket: Bucket) -> None:
        auth = credential("s3", seaweedfs_bucket, **READER)
        buckets, uri = Buckets(), f"{seaweedfs_bucket.url}/k"
        with pytest.raises(AccessRefused, match="access is denied"):
            await buckets.write(uri, b"x", Caller(auth=auth), overwrite=True)
        assert [entry async for entry in buckets.list(f"{seaweedfs_bucket.url}/", Caller(auth=auth))] == []

    async def test_no_bucket(self, moto_bucket: Bucket) -> None:
        said = await self.said("s3://no-such-bucket", credential("s3", moto_bucket))
        assert (said["code"], said["retryable"]) == ("ACCESS_REFUSED", False)
        assert "s3://no-such-bucket at http://127.0.0.1:" in said["message"]
        assert "the bucket does not exist (NoSuchBucket) (create it, or correct the name" in said["message"]

    async def test_nobody_listens(self, moto_bucket: Bucket) -> None:
        endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
        said = await self.said(moto_bucket.url, credential("s3", moto_bucket, endpoint=endpoint, retries=0))
        assert (said["kind"], said["code"], said["retryable"]) == ("storage_access", "STORAGE_UNAVAILABLE", True)
        assert f"{moto_bucket.url} at {endpoint} cannot be reached: nothing listens there" in said["message"]

    async def test_a_reader_needs_no_right_to_list(self, seaweedfs_bucket: Bucket) -> None:
        """A bucket of somebody else's is not probed when it is opened, and nothing in it is removed."""
        writer, reader = (Caller(auth=credential("s3", seaweedfs_bucket, **keys)) for keys in ({}, READER))
        uri = f"{seaweedfs_bucket.url}/.hidden/k"
        await Buckets().write(uri, b"x", writer, overwrite=True)
        assert await Buckets().read(uri, reader, limit=1) == b"x"
        with pytest.raises(Unavailable):
            await Buckets().write(uri, b"y", reader, overwrite=True)

    async def said(self, url: str, auth: dict[str, Any]) -> dict[str, Any]:
        call = Call(kind="artifact", auth=auth, resolver=Resolver({"s3": Buckets}))
        found = error(await act(call, "get", f"{url}/k"))
        assert SECRET not in str(found)
        assert "planted" not in str(found)
        return found
