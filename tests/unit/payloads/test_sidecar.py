"""Sidecars: what they say, and that nothing depends on them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator
from pathlib import Path

import msgspec
import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import Unavailable
from noetl.kernel.event import PayloadRef
from noetl.kernel.time import is_canonical_time
from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from noetl.payloads.sidecar import (
    is_sidecar,
    object_of,
    put_with_sidecar,
    read_sidecar,
    remove_sidecar,
    sidecar_key,
    write_sidecar,
)
from noetl.payloads.store import PayloadStore

REF = PayloadRef(uri="noetl://t/p/x/y", sha256="ab" * 32, media_type="text/csv", bytes=3, rows=1, schema_digest="s")
FAILED = b"noetl_payload_sidecars_failed_total 1.0"


class Forbidding(MemoryObjectStore):
    """A store that takes objects and no sidecars."""

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        if is_sidecar(key):
            raise Unavailable("no")
        return await super().put(key, data, overwrite=overwrite)

    async def delete(self, key: str) -> bool:
        if is_sidecar(key):
            raise Unavailable("no")
        return await super().delete(key)


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    found = PrometheusRecorder()
    metrics.install(found)
    yield found
    metrics.uninstall()


async def test_it_says_what_the_reference_says() -> None:
    objects = MemoryObjectStore()
    await write_sidecar(objects, "a/b", REF, encoding="zstd")
    found = await read_sidecar(objects, "a/b")
    assert found is not None
    assert found.created_at is not None
    assert is_canonical_time(found.created_at)
    said = msgspec.to_builtins(found)
    del said["created_at"]
    assert said == {**msgspec.to_builtins(REF), "encoding": "zstd"}
    assert msgspec.json.decode(await objects.get("a/b.meta.json"))["uri"] == REF.uri


async def test_the_first_one_stays_unless_its_object_was_replaced() -> None:
    objects = MemoryObjectStore()
    await write_sidecar(objects, "a", REF)
    other = msgspec.structs.replace(REF, media_type="text/plain")
    await write_sidecar(objects, "a", other)
    assert (await read_sidecar(objects, "a")).media_type == "text/csv"  # type: ignore[union-attr]
    await write_sidecar(objects, "a", other, overwrite=True)
    assert (await read_sidecar(objects, "a")).media_type == "text/plain"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_an_object_and_its_sidecar_are_stored_together(
    kind: str, tmp_path: Path, recorder: PrometheusRecorder
) -> None:
    objects = MemoryObjectStore() if kind == "memory" else await FilesystemObjectStore.open(tmp_path)
    assert await put_with_sidecar(objects, "a", b"abc", REF)
    assert (await read_sidecar(objects, "a")).media_type == "text/csv"  # type: ignore[union-attr]
    assert not await put_with_sidecar(objects, "a", b"xyz", REF)
    assert await objects.get("a") == b"abc"
    assert FAILED not in recorder.text()
    assert await put_with_sidecar(objects, "n" * 250, b"abc", REF)
    assert FAILED in recorder.text()


def test_its_key_is_told_apart() -> None:
    assert is_sidecar(sidecar_key("a/b"))
    assert not is_sidecar("a/b")
    assert object_of(sidecar_key("a/b")) == "a/b"


async def test_a_store_that_takes_none_stores_all_the_same_and_counts(recorder: PrometheusRecorder) -> None:
    payloads = PayloadStore(Forbidding(), "acme", "sales")
    ref = await payloads.store(b"content", media_type="text/csv")
    assert await payloads.fetch(ref) == b"content"
    assert FAILED in recorder.text()
    assert await payloads.delete(ref) is True
    assert b"noetl_payload_sidecars_failed_total 2.0" in recorder.text()


async def test_one_that_cannot_have_a_key_is_counted(recorder: PrometheusRecorder) -> None:
    await write_sidecar(MemoryObjectStore(), "n" * 250, REF)
    assert FAILED in recorder.text()


async def test_removing_none_is_nothing(recorder: PrometheusRecorder) -> None:
    await remove_sidecar(MemoryObjectStore(), "a")
    assert FAILED not in recorder.text()
