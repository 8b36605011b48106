"""The frozen logs are read as they were when they were frozen: byte for byte, checksum for checksum."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest

from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.fold import EXECUTION_SURFACES, State, state_checksum
from noetl.kernel.merkle import Merkle
from noetl.kernel.names import parse
from noetl.kernel.seal import seal_in
from noetl.kernel.stamp import Stream, adopt
from noetl.kernel.streams import is_dense, root_of
from noetl.kernel.upcast import LEGACY_SCHEMA, default_registry
from noetl.kernel.vocabulary import KNOWN_TYPES, canonical_type
from tests.golden.produce import EXPECTED, PROJECT_ROOT, encoded, expected_of, main, produce, replayed
from tests.scribe import by_stream, event_of, line_of

PINNED: dict[str, Any] = json.loads(EXPECTED.read_bytes())
FILES = sorted(PINNED)

every_file = pytest.mark.parametrize("file", FILES)


@cache
def lines_of(file: str) -> list[bytes]:
    return (PROJECT_ROOT / file).read_bytes().splitlines()


@cache
def events_of(file: str) -> list[Envelope]:
    return [event_of(line) for line in lines_of(file)]


def stored_rows(state: State) -> list[tuple[str, bytes]]:
    return [(surface, row.encoded()) for surface in state.surfaces for _, row in state.rows(surface)]


def test_every_file_of_the_corpus_is_pinned() -> None:
    found = [*(PROJECT_ROOT / "tests/golden/corpus").iterdir(), *(PROJECT_ROOT / "examples/logs").iterdir()]
    assert sorted(str(path.relative_to(PROJECT_ROOT)) for path in found) == FILES


@every_file
def test_a_line_is_the_canonical_encoding_of_its_event(file: str) -> None:
    assert [line_of(event) for event in events_of(file)] == lines_of(file)


@every_file
def test_a_file_is_one_root_in_order_of_commit(file: str) -> None:
    events = events_of(file)
    assert len({(event.tenant_id, root_of(event.stream_id)) for event in events}) == 1
    assert [event.event_id for event in events] == sorted({event.event_id for event in events})


@every_file
def test_checksums_and_chains_hold(file: str) -> None:
    heads: dict[Stream, StreamHead | None] = {}
    for event in events_of(file):
        adopt(event, heads)
    chains = {stream.stream_id: head.chain_hash for stream, head in heads.items() if head is not None}
    assert {name: chains[name] for name in chains if is_dense(name)} == PINNED[file]["heads"]


@every_file
def test_seals_are_the_merkle_roots_of_what_came_before(file: str) -> None:
    written: dict[str, list[Envelope]] = {}
    for event in events_of(file):
        seal = seal_in(event)
        if seal is not None:
            tree = Merkle()
            for sealed in written.get(seal.stream_id, []):
                tree.add(sealed.envelope_checksum)
            assert (tree.root(), tree.count, tree.peaks) == (seal.root, seal.count, seal.peaks)
        written.setdefault(event.stream_id, []).append(event)


@every_file
def test_the_fold_gives_the_pinned_checksums(file: str) -> None:
    bundle = replayed(events_of(file)).bundle()
    assert bundle == PINNED[file]["bundle"]
    assert state_checksum(bundle, default_registry().digest()) == PINNED[file]["state"]
    assert len(events_of(file)) == PINNED[file]["events"]


@every_file
def test_the_order_of_streams_does_not_matter(file: str) -> None:
    streams = by_stream(events_of(file))
    one_by_one = [event for stream in streams.values() for event in stream]
    last_first = [event for name in reversed(streams) for event in streams[name]]
    assert replayed(one_by_one).bundle() == replayed(last_first).bundle() == PINNED[file]["bundle"]


@every_file
def test_a_fold_resumes_from_the_rows_of_any_prefix(file: str) -> None:
    events = events_of(file)
    for cut in range(1, len(events)):
        before = replayed(events[:cut])
        resumed = State(before.category)
        for surface, row in stored_rows(before):
            resumed.load(surface, row, file)
        assert resumed.bundle() == before.bundle()
        assert replayed(events[cut:], resumed).bundle() == PINNED[file]["bundle"]


@every_file
def test_the_fold_leaves_events_as_they_are(file: str) -> None:
    events = events_of(file)
    replayed(events)
    assert [line_of(event) for event in events] == lines_of(file)


@every_file
def test_names_in_events_are_names(file: str) -> None:
    for event in events_of(file):
        parse(event.producer)
        if event.payload_ref is not None:
            parse(event.payload_ref.uri)


def test_one_ledger_can_hold_every_file() -> None:
    events = [event for file in FILES for event in events_of(file)]
    keys = [event.idempotency_key for event in events if event.idempotency_key is not None]
    assert len({event.event_id for event in events}) == len(events)
    assert len(set(keys)) == len(keys)
    heads: dict[Stream, StreamHead | None] = {}
    for event in events:
        adopt(event, heads)


def test_every_known_event_type_occurs() -> None:
    occurring = {canonical_type(event.event_type) for file in FILES for event in events_of(file)}
    assert occurring >= KNOWN_TYPES


def test_the_corpus_has_unknown_types_and_older_spellings() -> None:
    events = [event for file in FILES for event in events_of(file)]
    assert {event.event_type for event in events} - KNOWN_TYPES >= {"model.checkpointed", "playbook_started"}
    assert any((event.schema_name, event.schema_version) == (LEGACY_SCHEMA, 1) for event in events)


def test_every_surface_has_rows_somewhere() -> None:
    filled = {surface for file in FILES for surface, _ in stored_rows(replayed(events_of(file)))}
    assert filled == {*EXECUTION_SURFACES, "resource", "grants", "subscription", "tenant"}


def test_a_child_names_its_parent() -> None:
    parent, child = (events_of(f"tests/golden/corpus/calls_{side}.jsonl") for side in ("parent", "child"))
    assert child[0].parent_execution_id == parent[0].execution_id
    suspended = next(event for event in parent if event.event_type == "command.suspended")
    assert suspended.payload["child_execution_id"] == child[0].execution_id


def test_producing_again_gives_the_same_bytes() -> None:
    produced = produce()
    assert {file: encoded(events) for file, events in produced.items()} == {
        file: (PROJECT_ROOT / file).read_bytes() for file in FILES
    }
    assert {file: expected_of(events) for file, events in produced.items()} == PINNED


def test_what_is_frozen_is_not_overwritten_by_accident(capsys: pytest.CaptureFixture[str]) -> None:
    before = EXPECTED.read_bytes()
    assert main([]) == 1
    assert "is frozen" in capsys.readouterr().err
    assert EXPECTED.read_bytes() == before


def test_one_changed_byte_of_any_line_is_found() -> None:
    """The whole of one file, each line with one letter of its text changed."""
    file = "tests/golden/corpus/hello.jsonl"
    for place, event in enumerate(events_of(file)):
        changed = msgspec.structs.replace(event, principal="user:adb@acme.example")
        heads: dict[Stream, StreamHead | None] = {}
        for earlier in events_of(file)[:place]:
            adopt(earlier, heads)
        with pytest.raises(Exception, match=f"event {event.event_id} does not match its checksum"):
            adopt(changed, heads)
