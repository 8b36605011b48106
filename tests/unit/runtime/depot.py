"""A ledger with golden histories, some of them archived, and a clock to let them grow old."""

from __future__ import annotations

import datetime

import msgspec

from noetl.adapters.memory.archives import MemoryArchives
from noetl.archive.bundle import Bundle, open_bundle
from noetl.archive.whole import WholeLedger
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry, heads_digest
from noetl.ports.forgetting import Forgotten
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.forgetting import Retention
from noetl.runtime.judging import Judge, Verdict, tenant_stream
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.unpacking import unpacked
from tests.unit.archive.bundle.golden import archive, events_of
from tests.unit.replay.shop import Shop

DAY = 24 * 3600.0


class Depot(Shop):
    """The shop, with archives."""

    def __init__(self) -> None:
        super().__init__()
        self.archives = MemoryArchives()
        self.clock.advance(100 * DAY)
        self.lake: int | None = None
        self.projected: int | None = None
        self.whole = WholeLedger(self.ledger, unpacked(self.open))
        self.judge = Judge(
            self.ledger, self.projections, self.replayer, self.archives, self.open, self.clock,
            min_age=30 * DAY, projected=self.get_projected, lake=self.get_lake,
        )  # fmt: skip
        self.retention = Retention(self.judge, self.whole, self.projections)
        self.whole_replayer = Replayer(self.whole, self.projections, self.registry, self.clock, self.payloads)
        self.verifier = Verifier(self.whole, self.projections, self.whole_replayer, PROJECTOR)

    async def open(self, uri: str) -> Bundle:
        return await open_bundle(self.objects, uri.removeprefix("memory://"))

    async def get_projected(self) -> int | None:
        return self.projected

    async def get_lake(self) -> int | None:
        return self.lake

    async def take(self, *names: str) -> Stream:
        """Take in golden histories; the first one's root."""
        for name in names:
            await self.ledger.adopt(events_of(name))
        await self.projector.catch_up()
        first = events_of(names[0])[0]
        return Stream(first.tenant_id, first.stream_id)

    async def archive(self, root: Stream, *called: Stream) -> ArchiveEntry:
        """Archive a root and those it has called."""
        members = [root, *called]
        items = [await self.ledger.read_root(member) for member in members]
        prefix, manifest, sha256 = await archive(self.objects, [[item.event for item in one] for one in items])
        entry = ArchiveEntry(
            root=root,
            uri=f"memory://{prefix}",
            events=manifest.events,
            first_position=min(item.position for one in items for item in one),
            last_position=max(item.position for one in items for item in one),
            stream_heads=heads_digest([head for one in members for head in await self.ledger.heads(root=one)]),
            manifest_sha256=sha256,
            bytes=manifest.bytes,
            archived_at=datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC),
        )
        await self.archives.put(entry)
        return entry

    async def say(self, event_type: str, stream: Stream, **fields: object) -> None:
        """One more event in a stream."""
        plain = Draft(
            event_type=event_type, tenant_id=stream.tenant_id, organization_id="retail", project_id="sales",
            principal="user:ada", producer="noetl://tenant/acme",
        )  # fmt: skip
        await self.ledger.append([Batch(stream=stream, drafts=[msgspec.structs.replace(plain, **fields)])])

    async def hold(self, root: Stream, what: str = "placed") -> None:
        await self.say(
            f"hold.{what}", tenant_stream(root), aggregate_type="hold", aggregate_id=root.stream_id.split("/")[1],
            payload={"reason": "case 4711"},
        )  # fmt: skip

    async def sweep(self, *, apply: bool = True) -> dict[str, tuple[Verdict, list[Forgotten]]]:
        return {verdict.root.stream_id: (verdict, gone) async for verdict, gone in self.retention.sweep(apply=apply)}

    async def reason(self, root: Stream) -> str | None:
        verdict, _ = await self.judge.judge(root, await self.judge.active())
        return verdict.reason
