"""Bundles back into ledgers: exactly, as one, and again harmlessly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.archive.bundle import Bundle, open_bundle
from noetl.errors import Conflict, IntegrityMismatch
from noetl.ports.ledger import Stream
from noetl.runtime.archiving import Archiver
from noetl.runtime.archiving.places import ArchivePlace
from noetl.runtime.archiving.restoring import restore
from noetl.runtime.wiring import Embedded
from tests.unit.archive.bundle.golden import SIGNER, FailingStore, content
from tests.unit.runtime.histories import DOCUMENT, EXECUTION, home_at, whole

CHILD = EXECUTION + 1000
URI = "s3://cold/bundle/"


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "home") as opened:
        yield opened


async def archived(embedded: Embedded, *, payloads: bool = False) -> Bundle:
    store = FailingStore(-1)
    history = await whole(embedded)
    await whole(embedded, CHILD, parent=EXECUTION)
    made = await Archiver(embedded, ArchivePlace(store, "s3://cold"), SIGNER).archive(history.root, payloads=payloads)
    return await open_bundle(store, made.entry.uri.removeprefix("s3://cold/").strip("/"))


async def test_on_an_empty_machine_everything_is_as_it_was(embedded: Embedded, tmp_path: Path) -> None:
    bundle = await archived(embedded, payloads=True)
    async with home_at(tmp_path / "empty") as other:
        restored = await restore(other, bundle, URI)
        assert (restored.executions, restored.present, restored.missing_payloads) == (2, 0, 0)
        for number in (EXECUTION, CHILD):
            root = Stream("acme", f"execution/{number}")
            here, there = [[item.event for item in await one.ledger.read_root(root)] for one in (other, embedded)]
            assert here == there
            verified = await other.verifier.verify(root)
            assert verified.ok
            assert verified.replayed_bundle == (await embedded.verifier.verify(root)).replayed_bundle
            for event in here:
                if event.payload_ref is not None:
                    assert await other.payloads.fetch(event.payload_ref)
        entry = await other.archives.get(bundle.root)
        assert entry is not None
        assert (entry.uri, entry.stream_heads) == (URI, bundle.manifest.stream_heads)
        again = await restore(other, bundle, URI)
        assert (again.written, again.present) == (0, restored.written)
        assert not list((tmp_path / "empty").glob(".restore-*"))


async def test_without_copies_the_playbook_comes_back_and_the_rest_is_counted(
    embedded: Embedded, tmp_path: Path
) -> None:
    bundle = await archived(embedded)
    async with home_at(tmp_path / "empty") as other:
        restored = await restore(other, bundle, URI)
        assert (restored.payloads, restored.missing_payloads) == (1, 2)
        assert await other.payloads.fetch(await other.payloads.store(DOCUMENT, media_type="text/plain")) == DOCUMENT


@pytest.mark.parametrize("name", ["segment-000001.jsonl", "results/objects/"])
async def test_a_damaged_bundle_changes_nothing(embedded: Embedded, tmp_path: Path, name: str) -> None:
    bundle = await archived(embedded, payloads=True)
    for key, data in (await content(bundle.objects)).items():
        if name in key:
            await bundle.objects.put(key, data[:-1] + bytes([data[-1] ^ 1]), overwrite=True)
    async with home_at(tmp_path / "empty") as other:
        with pytest.raises(IntegrityMismatch):
            await restore(other, bundle, URI)
        assert await other.ledger.position() == 0
        assert await other.archives.get(bundle.root) is None


async def test_another_history_of_the_same_execution_is_refused(embedded: Embedded, tmp_path: Path) -> None:
    bundle = await archived(embedded)
    async with home_at(tmp_path / "other") as other:
        await whole(other)
        before = await other.ledger.position()
        with pytest.raises(Conflict, match=f"execution {EXECUTION} was not restored"):
            await restore(other, bundle, URI)
        assert await other.ledger.position() == before
