"""Families from the ledger into bundles: whole, once, and never another history over it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from noetl.archive.bundle import Bundle, open_bundle
from noetl.archive.bundle.checking import check_bundle
from noetl.archive.bundle.layout import MANIFEST, object_path
from noetl.archive.bundle.replaying import replay_bundle
from noetl.errors import Conflict, InvalidInput, InvalidSetting, NotFound, Unavailable
from noetl.kernel.upcast import default_registry
from noetl.ports.archives import heads_digest
from noetl.ports.ledger import Stream
from noetl.replay.service import Cutoff
from noetl.runtime.archiving import Archiver
from noetl.runtime.archiving.places import ArchivePlace, open_place, open_uri, uri_of
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded
from noetl.settings import Payloads, Settings
from tests.unit.archive.bundle.golden import SIGNER, FailingStore, all_of, content
from tests.unit.runtime.histories import DOCUMENT, EXECUTION, History, home_at, whole

CHILD, GRANDCHILD = EXECUTION + 1000, EXECUTION + 2000


@pytest.fixture
def archiver(embedded: Embedded, store: FailingStore) -> Archiver:
    return Archiver(embedded, ArchivePlace(store, "s3://cold/deep"), SIGNER)


async def family(embedded: Embedded) -> History:
    history = await whole(embedded)
    await whole(embedded, CHILD, parent=EXECUTION)
    await whole(embedded, GRANDCHILD, parent=CHILD)
    await whole(embedded, EXECUTION + 3000)
    return history


async def bundle_of(store: FailingStore, uri: str) -> Bundle:
    return await open_bundle(store, uri.removeprefix("s3://cold/deep/").strip("/"), trusted=SIGNER.public_key)


async def test_a_family_becomes_one_bundle(embedded: Embedded, archiver: Archiver, store: FailingStore) -> None:
    history = await family(embedded)
    archived = await archiver.archive(history.root)
    assert archived.created
    bundle = await bundle_of(store, archived.entry.uri)
    assert [one.execution_id for one in bundle.manifest.executions] == [str(EXECUTION), str(CHILD), str(GRANDCHILD)]
    expected = [
        item.event
        for number in (EXECUTION, CHILD, GRANDCHILD)
        for item in await embedded.ledger.read_root(Stream("acme", f"execution/{number}"))
    ]
    assert await all_of(bundle.events()) == expected
    assert (await check_bundle(store, bundle.prefix)).problems == []
    assert f"/tenant=acme/project=sales/date=2026-02-28/execution={EXECUTION}" in archived.entry.uri


async def test_the_index_says_what_the_ledger_says(embedded: Embedded, archiver: Archiver) -> None:
    history = await family(embedded)
    entry = (await archiver.archive(history.root)).entry
    heads = [
        head
        for number in (EXECUTION, CHILD, GRANDCHILD)
        for head in await embedded.ledger.heads(root=Stream("acme", f"execution/{number}"))
    ]
    assert entry == await embedded.archives.get(history.root)
    assert entry.stream_heads == heads_digest(heads)
    assert entry.events == sum(head.count for head in heads)
    assert (entry.first_position, entry.last_position) == (1, entry.events)


async def test_asking_for_one_that_was_called_archives_the_whole_family(embedded: Embedded, archiver: Archiver) -> None:
    history = await family(embedded)
    entry = (await archiver.archive(Stream("acme", f"execution/{GRANDCHILD}"))).entry
    assert entry.root == history.root


async def test_again_nothing_happens(embedded: Embedded, archiver: Archiver, store: FailingStore) -> None:
    history = await family(embedded)
    first = await archiver.archive(history.root)
    before = await content(store)
    again = await archiver.archive(history.root)
    assert (again.entry, again.created) == (first.entry, False)
    assert await content(store) == before


async def test_a_changed_history_is_refused_and_the_difference_named(
    embedded: Embedded, archiver: Archiver, store: FailingStore
) -> None:
    history = await family(embedded)
    entry = (await archiver.archive(history.root)).entry
    before = await content(store)
    late = History(embedded, CHILD, parent=EXECUTION)
    await late.tell("model.checkpointed", payload={})
    with pytest.raises(Conflict) as refused:
        await archiver.archive(history.root)
    assert refused.value.message.startswith(
        f"execution/{EXECUTION} is archived with another history, at {entry.uri}: execution/{CHILD} has "
    )
    await whole(embedded, EXECUTION + 4000, parent=EXECUTION)
    with pytest.raises(Conflict, match=f"execution/{EXECUTION + 4000} is only here"):
        await archiver.archive(history.root)
    assert await content(store) == before
    assert await embedded.archives.get(history.root) == entry


async def test_what_has_not_ended_is_not_archived(embedded: Embedded, archiver: Archiver, store: FailingStore) -> None:
    await whole(embedded)
    running = History(embedded, CHILD, parent=EXECUTION)
    await running.begin()
    with pytest.raises(InvalidInput, match=f"execution/{CHILD} is running, it has not ended"):
        await archiver.archive(Stream("acme", f"execution/{EXECUTION}"))
    with pytest.raises(NotFound, match="there is no execution/7"):
        await archiver.archive(Stream("acme", "execution/7"))
    with pytest.raises(InvalidInput, match="'tenant/acme' is not an execution"):
        await archiver.archive(Stream("acme", "tenant/acme"))
    assert await content(store) == {}


async def test_cut_off_anywhere_it_is_finished_later(
    embedded: Embedded, archiver: Archiver, store: FailingStore
) -> None:
    history = await family(embedded)
    at = 0
    while True:
        store.left = at
        try:
            await archiver.archive(history.root)
        except Unavailable:
            assert await embedded.archives.get(history.root) is None
            at += 1
            continue
        break
    made = await content(store)
    assert at >= len(made), "it was cut off before each object"
    assert (await check_bundle(store, next(iter(made)).partition("/events/")[0])).problems == []


async def test_a_bundle_that_the_index_does_not_know_is_put_down(
    embedded: Embedded, store: FailingStore, tmp_path: Path
) -> None:
    """Killed after the manifest and before the index: the bundle is there, and whoever asks again finds it."""
    history = await family(embedded)
    made = (await Archiver(embedded, ArchivePlace(store, "s3://cold"), SIGNER).archive(history.root)).entry
    before = await content(store)
    async with home_at(tmp_path / "other") as other:
        await other.ledger.adopt([item.event for item in await embedded.ledger.read_all()])
        found = await Archiver(other, ArchivePlace(store, "s3://cold"), SIGNER).archive(history.root)
        assert not found.created
        assert msgspec.structs.replace(found.entry, archived_at=made.archived_at) == made
    assert await content(store) == before


async def test_two_at_once_make_one(embedded: Embedded, archiver: Archiver, store: FailingStore) -> None:
    history = await family(embedded)
    second = Archiver(embedded, ArchivePlace(store, "s3://cold/deep"), SIGNER)
    outcomes = await asyncio.gather(archiver.archive(history.root), second.archive(history.root))
    assert sorted(one.created for one in outcomes) == [False, True]
    assert outcomes[0].entry == outcomes[1].entry


async def test_playbooks_are_always_copied_and_results_when_asked_for(
    embedded: Embedded, archiver: Archiver, store: FailingStore, tmp_path: Path
) -> None:
    history = await whole(embedded)
    other = await whole(embedded, EXECUTION + 3000)
    without = await bundle_of(store, (await archiver.archive(history.root)).entry.uri)
    copied = [entry.ref["sha256"] for entry in (await without.results()).objects if entry.copied]
    assert len(copied) == 1
    assert await store.get(f"{without.prefix}/{object_path(copied[0])}") == DOCUMENT
    assert len((await without.results()).objects) == 3
    assert not without.manifest.payloads
    with pytest.raises(Conflict, match="is archived without its payloads"):
        await archiver.archive(history.root, payloads=True)
    copies = await bundle_of(store, (await archiver.archive(other.root, payloads=True)).entry.uri)
    assert all(entry.copied for entry in (await copies.results()).objects)
    assert (await check_bundle(store, copies.prefix)).problems == []


async def test_a_payload_that_is_gone_is_an_error_only_if_it_was_to_be_copied(
    embedded: Embedded, archiver: Archiver
) -> None:
    history = await whole(embedded)
    await embedded.payloads.delete(await history.store(b'"' + b"x" * 5000 + b'"'))
    with pytest.raises(NotFound, match=r"event \d+ needs a payload that is gone"):
        await archiver.archive(history.root, payloads=True)
    assert (await archiver.archive(history.root)).created


async def test_replay_gives_what_replay_of_the_ledger_gives(
    embedded: Embedded, archiver: Archiver, store: FailingStore
) -> None:
    history = await family(embedded)
    bundle = await bundle_of(store, (await archiver.archive(history.root)).entry.uri)
    for number in (EXECUTION, CHILD, GRANDCHILD):
        live = await embedded.replayer.replay(Stream("acme", f"execution/{number}"))
        told = await replay_bundle(bundle, default_registry(), Cutoff(), number)
        assert (told.bundle(), told.checksum()) == (live.bundle(), live.checksum())
    half = (await embedded.ledger.read_root(history.root))[4].event
    cutoff = Cutoff(event_id=half.event_id)
    told = await replay_bundle(bundle, default_registry(), cutoff)
    assert told.bundle() == (await embedded.replayer.replay(history.root, cutoff)).bundle()
    with pytest.raises(NotFound, match="there is no event 7"):
        await replay_bundle(bundle, default_registry(), Cutoff(event_id=7))
    with pytest.raises(InvalidInput, match="positions are those of a ledger"):
        await replay_bundle(bundle, default_registry(), Cutoff(position=7))


async def test_what_tasks_have_printed_comes_along(embedded: Embedded, archiver: Archiver, store: FailingStore) -> None:
    import zstandard

    history = await whole(embedded)
    assert embedded.home is not None
    file = embedded.home.path / "logs" / "executions" / "tenant=acme" / f"{EXECUTION}.jsonl"
    file.parent.mkdir(parents=True)
    line = {"time": "2026-02-27T00:00:00Z", "execution_id": str(EXECUTION), "step": "load", "task": "load"}
    file.write_bytes(msgspec.json.encode({**line, "attempt": 1, "stream": "stdout", "text": "hello"}) + b"\n")
    bundle = await bundle_of(store, (await archiver.archive(history.root)).entry.uri)
    data = zstandard.ZstdDecompressor().decompressobj().decompress(await bundle.part("logs/worker-events.jsonl.zst"))
    printed = [said for said in map(msgspec.json.decode, data.splitlines()) if said["type"] == "printed"]
    assert [said["text"] for said in printed] == ["hello"]


class TestPlaces:
    async def test_by_default_it_is_a_directory_of_the_home(self, tmp_path: Path) -> None:
        place = await open_place(Home(tmp_path / "my home"), Settings())
        assert place.url == (tmp_path / "my home" / "archive").as_uri()
        await place.objects.put(f"noetl/tenant=a%20b/{MANIFEST}", b"{}")
        objects, prefix = await open_uri(uri_of(place.url, "noetl/tenant=a%20b"), Settings())
        assert prefix == ""
        assert await objects.get(MANIFEST) == b"{}"
        objects, _ = await open_uri(str(tmp_path / "my home" / "archive" / "noetl" / "tenant=a%20b"), Settings())
        assert await objects.get(MANIFEST) == b"{}"

    async def test_a_directory_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        for uri in (str(tmp_path / "none"), (tmp_path / "none").as_uri()):
            with pytest.raises(NotFound, match="there is no directory"):
                await open_uri(uri, Settings())
        assert not (tmp_path / "none").exists()

    async def test_it_is_not_where_payloads_are(self, tmp_path: Path) -> None:
        from noetl.history import ArchiveSettings

        url = (tmp_path / "all").as_uri()
        settings = Settings(payloads=Payloads(url=url), archive=ArchiveSettings(url=url + "/"))
        with pytest.raises(InvalidSetting, match="noetl gc would take what is archived for results"):
            await open_place(Home(tmp_path), settings)
        with pytest.raises(InvalidSetting, match=r"archive\.options is set, but not archive\.url"):
            await open_place(Home(tmp_path), Settings(archive=ArchiveSettings(options=("a=b",))))
