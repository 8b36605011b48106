"""The ObjectStore contract for cloud stores, each against an emulator that the tests start."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from noetl.adapters.objects.urls import open_store
from noetl.errors import Unavailable
from noetl.ports.objects import ObjectStore
from tests.contracts.bucket_store import BucketStoreContract
from tests.contracts.object_store import ObjectStoreContract
from tests.services.azurite import azurite_bucket, azurite_server
from tests.services.buckets import Bucket
from tests.services.fake_gcs import fake_gcs_bucket, fake_gcs_server
from tests.services.moto import moto_bucket, moto_server, unfinished_uploads
from tests.services.seaweedfs import seaweedfs_bucket, seaweedfs_server

__all__ = [
    "azurite_bucket", "azurite_server", "fake_gcs_bucket", "fake_gcs_server",
    "moto_bucket", "moto_server", "seaweedfs_bucket", "seaweedfs_server",
]  # fmt: skip


class TestMemoryUrl(ObjectStoreContract):
    keys_are_paths = False

    @pytest.fixture
    async def store(self) -> ObjectStore:
        return await open_store("memory://")


class EmulatedContract(BucketStoreContract):
    @pytest.fixture
    async def store(self, bucket: Bucket) -> ObjectStore:
        return await bucket.open()


class S3Contract(EmulatedContract):
    can_sign = True

    async def unfinished(self, bucket: Bucket) -> list[str]:
        return await asyncio.to_thread(unfinished_uploads, bucket)


class TestMoto(S3Contract):
    @pytest.fixture
    def bucket(self, moto_bucket: Bucket) -> Bucket:
        return moto_bucket

    async def test_a_link_reads_this_object_and_no_other(self) -> None:  # type: ignore[override]
        pytest.skip("moto checks no signatures")

    async def test_of_many_long_streams_exactly_one_wins(self) -> None:  # type: ignore[override]
        pytest.skip("moto looks first and writes later when an upload is completed")


class TestSeaweedFS(S3Contract):
    emptied_folders_vanish = False

    @pytest.fixture
    def bucket(self, seaweedfs_bucket: Bucket) -> Bucket:
        return seaweedfs_bucket


@pytest.mark.timeout(600)  # Azurite may have to be installed first
class TestAzurite(EmulatedContract):
    can_sign = True
    link_key = "a/b=c~1"

    @pytest.fixture
    def bucket(self, azurite_bucket: Bucket) -> Bucket:
        return azurite_bucket

    async def test_a_link_that_would_not_open_is_not_given(self, store: ObjectStore) -> None:
        await store.put("a/ä b", b"content")
        with pytest.raises(Unavailable, match="a link to 'a/ä b' cannot be signed for az://"):
            await store.signed_url("a/ä b", expires_in=timedelta(minutes=5))


@pytest.mark.timeout(600)  # fake-gcs-server may have to be built first
class TestFakeGcs(EmulatedContract):
    @pytest.fixture
    def bucket(self, fake_gcs_bucket: Bucket) -> Bucket:
        return fake_gcs_bucket
