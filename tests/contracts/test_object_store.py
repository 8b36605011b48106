"""The ObjectStore contract, for each adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from tests.contracts.object_store import ObjectStoreContract


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()


class TestFilesystemObjectStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> FilesystemObjectStore:
        return await FilesystemObjectStore.open(tmp_path / "objects")
