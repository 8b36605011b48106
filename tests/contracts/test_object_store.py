"""The ObjectStore contract, for each adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.adapters.objects.routed import RoutedObjectStore
from noetl.ports.objects import ObjectStore
from noetl.tools.secrets.keys import FixedKeys
from tests.contracts.object_store import ObjectStoreContract


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()


class TestFilesystemObjectStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> FilesystemObjectStore:
        return await FilesystemObjectStore.open(tmp_path / "objects")


class TestEncryptedMemoryStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> EncryptedObjectStore:
        return EncryptedObjectStore(MemoryObjectStore(), FixedKeys())


class TestEncryptedFilesystemStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> EncryptedObjectStore:
        return EncryptedObjectStore(await FilesystemObjectStore.open(tmp_path / "objects"), FixedKeys())


class TestRoutedStore(ObjectStoreContract):
    """A store with a route beside it, asked for what is its own."""

    @pytest.fixture
    def store(self) -> RoutedObjectStore:
        return RoutedObjectStore(MemoryObjectStore(), {"s3": _opened})


async def _opened() -> ObjectStore:
    return MemoryObjectStore()
