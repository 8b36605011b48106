"""What was archived with its payloads comes back from the bundle, and only if it is what the log says."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.archive.bundle.layout import object_path
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.runtime.archiving import Archiver
from noetl.runtime.archiving.places import open_place
from tests.unit.archive.bundle.golden import SIGNER
from tests.unit.runtime.repair.test_repair import ROWS, Site, book, only, site, task

__all__ = ["site"]


async def archived(site: Site, *, payloads: bool) -> Path:
    """A run whose task may have effects, and the directory of its bundle."""
    execution = await site.run(book({"step": "make", "tool": task(ROWS, pure=False)}))
    embedded = site.plant.embedded
    archiver = Archiver(embedded, await open_place(site.home, embedded.settings), SIGNER)
    entry = (await archiver.archive(Stream("default", execution_stream(execution)), payloads=payloads)).entry
    return Path(entry.uri.removeprefix("file://"))


async def test_a_result_comes_back_from_the_bundle_of_its_execution(site: Site) -> None:
    await archived(site, payloads=True)
    need = await site.need("call.done")
    whole = site.content(need)
    (site.store / need.key).unlink()
    found = only(await site.repair(dry_run=True))
    assert (found.outcome, found.source) == ("repairable", "archive")
    assert only(await site.repair()).outcome == "repaired"
    assert site.content(need) == whole
    assert (await site.repair()).is_sound


@pytest.mark.parametrize("loss", ["without payloads", "changed", "directory gone"])
async def test_a_bundle_that_does_not_have_it_gives_nothing(site: Site, loss: str) -> None:
    bundle = await archived(site, payloads=loss != "without payloads")
    need = await site.need("call.done")
    (site.store / need.key).unlink()
    if loss == "changed":
        (bundle / object_path(need.ref.sha256)).write_bytes(b"something else")
    if loss == "directory gone":
        bundle.rename(bundle.with_name("elsewhere"))
    found = only(await site.repair())
    assert (found.outcome, found.condition) == ("lost", "missing")
    said = [line for line in found.tried if line.startswith("archive: ")]
    assert len(said) == (loss != "without payloads")
