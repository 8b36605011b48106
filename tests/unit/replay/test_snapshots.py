"""A state put down and taken up again is the same state, or it is refused."""

from __future__ import annotations

import msgspec
import pytest
import zstandard

from noetl.errors import Corruption
from noetl.kernel.fold import FOLD_VERSION, apply, new_state, state_checksum
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.ports.projections import Snapshot
from noetl.replay.snapshots import read_snapshot, take_snapshot
from tests.golden.produce import produce, replayed
from tests.scribe import START
from tests.unit.kernel.drafts import PAYLOAD_REF, envelope

DIGEST = default_registry().digest()
LOGS = produce()


def snapshot_of(file: str) -> tuple[Snapshot, str]:
    events = LOGS[file]
    state = replayed(events)
    root = Stream(events[0].tenant_id, events[0].stream_id)
    last = max(event.ingest_time for event in events)
    taken = take_snapshot(
        root, state, position=len(events), last_ingest_time=last, registry_digest=DIGEST, now=START
    )  # fmt: skip
    return taken, state.category


@pytest.mark.parametrize("file", LOGS)
def test_a_snapshot_of_any_state_gives_that_state(file: str) -> None:
    taken, category = snapshot_of(file)
    state = read_snapshot(taken, category)
    assert state_checksum(state.bundle(), DIGEST) == taken.checksum
    assert state.bundle() == replayed(LOGS[file]).bundle()
    assert (taken.event_count, taken.last_event_id) == (state.root.event_count, state.root.last_event_id)


def test_a_snapshot_says_under_what_it_was_made() -> None:
    taken, _ = snapshot_of("examples/logs/orders.jsonl")
    assert (taken.fold_version, taken.registry_digest, taken.position) == (FOLD_VERSION, DIGEST, 87)
    assert taken.created_at == "2026-03-02T08:00:00.000000Z"


def test_the_payload_root_tells_states_with_other_payloads_apart() -> None:
    roots = set()
    for ref in (None, PAYLOAD_REF, msgspec.structs.replace(PAYLOAD_REF, sha256="cd" * 32)):
        state = apply(new_state("execution/4101"), envelope(payload_ref=ref))
        taken = take_snapshot(
            Stream("acme", "execution/4101"), state, position=1, last_ingest_time="", registry_digest=DIGEST, now=0
        )
        roots.add(taken.payload_digest_root)
    assert len(roots) == 3


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_torn_body_cannot_be_read(cut: int) -> None:
    taken, category = snapshot_of("examples/logs/orders.jsonl")
    with pytest.raises(Corruption, match="cannot be read"):
        read_snapshot(msgspec.structs.replace(taken, body=taken.body[:cut]), category)


def test_a_changed_row_does_not_give_the_checksum() -> None:
    taken, category = snapshot_of("examples/logs/orders.jsonl")
    body = zstandard.ZstdDecompressor().decompress(taken.body).replace(b"CANCELLED", b"SHIPPED")
    changed = msgspec.structs.replace(taken, body=zstandard.ZstdCompressor().compress(body))
    with pytest.raises(Corruption, match="do not give its checksum"):
        read_snapshot(changed, category)


def test_a_snapshot_of_another_category_cannot_be_read() -> None:
    taken, _ = snapshot_of("tests/golden/corpus/tenant.jsonl")
    with pytest.raises(Corruption, match="cannot be read"):
        read_snapshot(taken, "execution")
