"""One root examined: are its events in the lake what was written, and are its live rows what they come to?

The walk along its streams, the seals and the fold are those of `noetl verify`. The events come from a lake; what they
are held against, the heads of streams and the rows of projections, comes from the ledger's own database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.fold import fold_root
from noetl.data.bulk.merging import Chunk
from noetl.errors import Corruption, InvalidEvent
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Record
from noetl.kernel.fold import ROOT_ID
from noetl.kernel.fold.surface import checksum_of_rows
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Audited
from noetl.ports.projections import ProjectionRow
from noetl.replay.service import Replayed
from noetl.replay.verify import Problem, check_seals, head_fault
from noetl.replay.walk import StreamWalk

__all__ = ["Examined", "Live", "SealSizes", "Standing", "examine_root"]

SealSizes = Mapping[str, frozenset[int]]
"""By stream, at which sizes it was sealed."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What the database has of a root, and where its ledger ended when that was read."""

    heads: Sequence[StreamHead]
    rows: Sequence[ProjectionRow]
    position: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where things were, when it was decided what to compare."""

    lake: int
    projected: int
    is_shared: bool
    """Whether single roots may be projected further than all of them."""


class Examined(msgspec.Struct, kw_only=True):
    """What examining a root has shown."""

    root: Stream
    events: int = 0
    streams: int = 0
    unsealed: int = 0
    problems: list[Problem] = []
    """Of the events in the lake."""
    live: list[Problem] = []
    """Of what they were held against. It may have moved meanwhile, and is worth another look."""
    is_behind: bool = False
    """Whether the ledger has events of it that the lake has not: then nothing live was compared."""


class _Hashes(msgspec.Struct, frozen=True):
    envelope_checksum: str
    chain_hash: str | None = None


_record = msgspec.json.Decoder(Record).decode
_hashes = msgspec.json.Decoder(_Hashes).decode


def examine_root(
    root: Stream,
    chunks: Iterable[Chunk],
    live: Live,
    sizes: SealSizes,
    registry: UpcasterRegistry,
    standing: Standing,
) -> Examined:
    """Walk along the events of a root, fold them on the way as far as its rows go, and compare."""
    found = Examined(root=root)
    walks: dict[str, StreamWalk] = {}
    walked = _walked(chunks, walks, sizes, found)
    replayed = _fold(root, walked, live, registry, standing, found)
    for _ in walked:
        pass
    found.problems += check_seals(walks)
    found.streams = len(walks)
    found.unsealed = sum(walk.unsealed for walk in walks.values() if not walk.dense)
    heads = {head.stream_id: head for head in live.heads}
    found.is_behind = live.position > standing.lake and any(
        head.count > (walks[name].count if name in walks else 0) for name, head in heads.items()
    )
    if not found.is_behind:
        found.live += _head_problems(walks, heads)
        found.live += _parity_problems(live.rows, replayed)
    return found


def _walked(
    chunks: Iterable[Chunk], walks: dict[str, StreamWalk], sizes: SealSizes, found: Examined
) -> Iterator[Chunk]:
    """The chunks as they are, each looked at before it is passed on."""
    for chunk in chunks:
        for position, line in zip(chunk.positions, chunk.lines, strict=True):
            found.events += 1
            try:
                record, hashes = _record(line), _hashes(line)
            except msgspec.MsgspecError as error:
                found.problems.append(Problem(what=f"position {position} has no readable event: {error}"))
                continue
            walk = walks.get(record.stream_id)
            if walk is None:
                name = record.stream_id
                walk = walks[name] = StreamWalk(name, sizes.get(name, frozenset()))
            stored = Audited(
                position=position,
                record=record,
                envelope_checksum=hashes.envelope_checksum,
                chain_hash=hashes.chain_hash,
            )
            found.problems += [
                Problem(what=f"{walk.stream_id}: {what}", event_id=event_id, stream_id=walk.stream_id)
                for event_id, what in walk.step(stored)
            ]
        yield chunk


def _fold(
    root: Stream,
    chunks: Iterator[Chunk],
    live: Live,
    registry: UpcasterRegistry,
    standing: Standing,
    found: Examined,
) -> Replayed | None:
    """The state that the live rows should be; None if there is none."""
    ahead = [row.version for row in live.rows if standing.is_shared and row.row_id == ROOT_ID]
    try:
        replayed = fold_root(root, chunks, registry, Bounds(position=max([standing.projected, *ahead])))
    except Corruption:
        return None  # the walk has said so
    except InvalidEvent as error:
        found.problems.append(Problem(what=f"the log cannot be folded: {error.message}", event_id=error.event_id))
        return None
    return replayed if replayed.events_folded else None


def _head_problems(walks: Mapping[str, StreamWalk], heads: Mapping[str, StreamHead]) -> Iterator[Problem]:
    """The heads' own seals need the wallet's key, which no task is given: their sum is checked where the key is."""
    for stream_id in sorted(walks.keys() | heads.keys()):
        event_id, what = head_fault(walks.get(stream_id), heads.get(stream_id), None)
        if what:
            yield Problem(what=f"{stream_id}: {what}", event_id=event_id, stream_id=stream_id)


def _parity_problems(rows: Sequence[ProjectionRow], replayed: Replayed | None) -> Iterator[Problem]:
    stored: dict[str, dict[str, bytes]] = {}
    for row in rows:
        stored.setdefault(row.surface, {})[row.row_id] = row.row
    told = {} if replayed is None else replayed.bundle()
    surfaces = {} if replayed is None else replayed.state.surfaces
    for name in [*told, *sorted(stored.keys() - told.keys())]:
        own = stored.get(name, {})
        ids = (
            {row_id for row_id, _ in replayed.state.rows(name)} if replayed is not None and name in surfaces else set()
        )
        if checksum_of_rows(name, own.values()) != told.get(name) or own.keys() != ids:
            yield Problem(what=f"the live rows of surface '{name}' are not what the log gives")
