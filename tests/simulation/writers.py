"""Writers: each follows a script, knows what it has read, and retries what was not answered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.kernel.event import Envelope
from noetl.kernel.seal import Seal, seal_in
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import is_dense
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger
from noetl.runtime.sealing import measure
from tests.simulation.actions import Open
from tests.simulation.story import Beat, Known, Telling, beats_of, root_of_script, sealed_by, tell

__all__ = ["Append", "Writer"]


class Append(msgspec.Struct, frozen=True):
    """One append as it goes over the wire. A retry sends exactly this again."""

    batches: tuple[Batch, ...]

    @property
    def stream(self) -> Stream:
        """The first stream it writes to."""
        return self.batches[0].stream


class Writer:
    """One of the rivals for a root. Its memory is `known` and `pending`; a crash takes both."""

    def __init__(self, script: Open, rival: int) -> None:
        self.script = script
        self.rival = rival
        self.root = root_of_script(script)
        self._beats = beats_of(script)
        self.known: Known | None = None
        self.pending: Append | None = None

    @property
    def beats(self) -> int:
        """How long the script is."""
        return len(self._beats)

    def forget(self) -> None:
        """Lose everything that was only in memory."""
        self.known = self.pending = None

    def answered(self, events: Sequence[Envelope]) -> None:
        """Go on from what the ledger has confirmed, unless others have written in between."""
        self.pending = None
        dense = [event for event in events if event.chain_hash is not None]
        if self.known is None or (dense and dense[0].stream_version != self.known.version + 1):
            self.known = None
            return
        for event in events:
            self.known.learn(event)

    async def decide(self, ledger: Ledger, *, reload: bool) -> Append | None:
        """The next append, or None when the script has been told. An unanswered one comes first."""
        if self.pending is not None:
            return self.pending
        if self.known is None or reload:
            self.known = await self._read(ledger)
        beat = next((beat for beat in self._beats if beat.name not in self.known.beats), None)
        if beat is None:
            return None
        return await self._tell(ledger, beat, self.known)

    async def _tell(self, ledger: Ledger, beat: Beat, known: Known) -> Append:
        telling = Telling(script=self.script, rival=self.rival, known=known, beat=beat)
        target = sealed_by(telling)
        if target is not None:
            stream, final = target
            seal = await measure(ledger, stream, self._last_seal(known, stream), final=final)
            telling = msgspec.structs.replace(telling, seal=seal)
        return Append(tuple(tell(telling)))

    def _last_seal(self, known: Known, stream: Stream) -> Seal | None:
        seals = [seal_in(event) for event in known.of_type(self.root.stream_id, "stream.sealed")]
        return next((seal for seal in reversed(seals) if seal and seal.stream_id == stream.stream_id), None)

    async def _read(self, ledger: Ledger) -> Known:
        known = Known()
        await _read_stream(ledger, self.root, known)
        if self.script.kind == "execution":
            stages = [event.event_id for event in known.of_type(self.root.stream_id, "stage.opened")]
            names = [f"{self.root.stream_id}/stage/{stage}" for stage in stages] + [f"{self.root.stream_id}/telemetry"]
            for name in names:
                await _read_stream(ledger, Stream(self.root.tenant_id, name), known)
        head = await ledger.head(self.root)
        if is_dense(self.root.stream_id):
            known.version = head.version if head is not None else 0
        return known


async def _read_stream(ledger: Ledger, stream: Stream, known: Known) -> None:
    after = 0
    while page := await ledger.read(stream, after_version=after):
        for item in page:
            known.learn(item.event)
        after = page[-1].event.stream_version
