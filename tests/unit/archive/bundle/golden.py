"""Bundles of the golden histories, and stores that fail when they are told to."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.archive.bundle.layout import Manifest
from noetl.archive.bundle.making import finish_bundle, home_of, prefix_of
from noetl.archive.bundle.story import Story
from noetl.archive.bundle.writer import BundleWriter
from noetl.archive.jsonl import read_jsonl
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.upcast import default_registry
from noetl.ports.objects import ObjectStore
from noetl.tools.secrets.keys import make_key
from noetl.tools.secrets.signing import Signer

CORPUS = Path(__file__).parents[3] / "golden" / "corpus"
SIGNER = Signer(make_key(b"\x01" * 32))
OTHER_SIGNER = Signer(make_key(b"\x02" * 32))
FAMILY = ("calls_parent", "calls_child")


def events_of(name: str) -> list[Envelope]:
    return [event for _, event in read_jsonl(CORPUS / f"{name}.jsonl")]


async def archive(
    objects: ObjectStore,
    histories: list[list[Envelope]],
    *,
    signer: Signer = SIGNER,
    segment_bytes: int = 4096,
) -> tuple[str, Manifest, str]:
    """Write a bundle; its prefix, its manifest and the digest of that."""
    story = Story(default_registry())
    first = histories[0][0]
    home = home_of(first.payload.get("home"))
    prefix = prefix_of(home, first.tenant_id, first.project_id, first.execution_id or 0)
    writer = BundleWriter(objects, prefix, segment_bytes=segment_bytes)
    for events in histories:
        for event in events:
            story.take(event)
        await writer.add(events)
    await writer.close_events()
    return prefix, *await finish_bundle(writer, story, prefix, [], [], signer, payloads=False)


async def golden(objects: ObjectStore, *names: str, signer: Signer = SIGNER) -> tuple[str, Manifest, str]:
    return await archive(objects, [events_of(name) for name in names or FAMILY], signer=signer)


async def content(objects: ObjectStore) -> dict[str, bytes]:
    return {info.key: await objects.get(info.key) async for info in objects.list("")}


class FailingStore(MemoryObjectStore):
    """Refuses the `at`-th write from now on, as a process that is killed there would never have made it."""

    def __init__(self, at: int, error: NoetlError | None = None) -> None:
        super().__init__()
        self.left = at
        self.error = error or Unavailable("the store is away")

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        if self.left == 0:
            raise self.error
        self.left -= 1
        return await super().put(key, data, overwrite=overwrite)


async def all_of(events: AsyncIterator[Envelope]) -> list[Envelope]:
    return [event async for event in events]
