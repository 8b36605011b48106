"""Deliveries: the first fault is named, and nothing that is not proven passes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import feather

from noetl.archive.buffer import METADATA, digest_of
from noetl.archive.columns import EVENT_SCHEMA, EventsWriter, read_events
from noetl.errors import IntegrityMismatch, InvalidInput, NoetlError
from noetl.kernel.event import Envelope, checksum_of, record_of
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.runtime.buffers import keep_buffer
from noetl.runtime.delivery import Examined, buffer_part, events_part, examine
from noetl.runtime.restamp import Restamper
from tests.scribe import Scribe
from tests.unit.kernel.drafts import batch, draft
from tests.unit.runtime.histories import EXECUTION, home_at, whole


@pytest.fixture
async def buffer(tmp_path: Path) -> Path:
    async with home_at(tmp_path) as embedded:
        history = await whole(embedded)
        await keep_buffer(embedded, tmp_path, history.root)
    return tmp_path / "local" / str(EXECUTION)


def examined(buffer: Path) -> Examined:
    return examine([buffer_part(buffer, whole=True)], default_registry())


def events_in(buffer: Path) -> list[Envelope]:
    return [event for _, event in read_events(buffer / "events.feather", "events.feather")]


def rewrite(buffer: Path, events: list[Envelope]) -> None:
    """Other events, by somebody who also corrects the digest."""
    writer = EventsWriter(buffer / "events.feather")
    writer.write(events)
    writer.close()
    vouch(buffer)


def vouch(buffer: Path, **changes: Any) -> None:
    metadata = json.loads((buffer / METADATA).read_bytes())
    metadata["files"]["events.feather"] = msgspec.to_builtins(digest_of(buffer / "events.feather"))
    (buffer / METADATA).write_text(json.dumps({**metadata, **changes}))


def refusal(buffer: Path) -> NoetlError:
    with pytest.raises((IntegrityMismatch, InvalidInput)) as refused:
        examined(buffer)
    return refused.value


def test_a_buffer_as_it_was_written_passes(buffer: Path) -> None:
    found = examined(buffer)
    assert found.executions == (EXECUTION,)
    assert found.events == len(events_in(buffer))
    assert found.missing == []
    assert found.heads == found.written


def test_a_changed_byte_names_the_file_and_the_event(buffer: Path) -> None:
    table = feather.read_table(buffer / "events.feather").to_pydict()
    table["status"][-1] = "FAILED"
    last = events_in(buffer)[-1].event_id
    feather.write_feather(pa.Table.from_pydict(table, schema=EVENT_SCHEMA), str(buffer / "events.feather"))
    error = refusal(buffer)
    assert isinstance(error, IntegrityMismatch)
    assert f"{EXECUTION}/events.feather was changed" in error.message
    assert f"event {last}: column 'status' is not what its envelope says" in error.message


def test_a_changed_envelope_names_the_event(buffer: Path) -> None:
    events = events_in(buffer)
    events[3] = msgspec.structs.replace(events[3], status="CHANGED")
    rewrite(buffer, events)
    error = refusal(buffer)
    assert isinstance(error, IntegrityMismatch)
    assert error.message == (
        f"{EXECUTION}/events.feather: row 4: event {events[3].event_id} does not match its checksum"
    )


def _forged(events: list[Envelope]) -> list[Envelope]:
    """With a checksum that holds, and a chain that does not."""
    changed = msgspec.structs.replace(events[3], status="CHANGED")
    return [
        *events[:3],
        msgspec.structs.replace(changed, envelope_checksum=checksum_of(record_of(changed))),
        *events[4:],
    ]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_forged, "does not continue the hash chain"),
        (lambda events: events[:2] + events[3:], "is version 4 of .* and follows version 2"),
        (lambda events: events[1:], "is version 2 of .* and follows version 0"),
        (lambda events: [*events, events[-1]], "does not follow"),
        (lambda events: [events[1], events[0], *events[2:]], "follows version 0"),
        (lambda events: events[:-1], "counts 11 events, events.feather has 10"),
    ],
)
def test_events_that_are_not_the_history(
    spoil: Callable[[list[Envelope]], list[Envelope]], reason: str, buffer: Path
) -> None:
    rewrite(buffer, spoil(events_in(buffer)))
    assert re.search(reason, refusal(buffer).message), refusal(buffer).message


def test_a_cut_tail_is_found_though_it_was_counted(buffer: Path) -> None:
    events = events_in(buffer)[:-1]
    rewrite(buffer, events)
    vouch(buffer, event_count=len(events))
    assert "names other stream heads than events.feather gives" in refusal(buffer).message


def test_events_of_another_execution_are_strangers(buffer: Path) -> None:
    scribe = Scribe()
    rewrite(buffer, scribe.append(batch(draft(organization_id="retail"))))
    assert "is of execution 4101, which this buffer is not" in refusal(buffer).message


def test_a_payload_that_was_changed(buffer: Path) -> None:
    file = next((buffer / "payloads").iterdir())
    data = file.read_bytes()
    file.write_bytes(data.swapcase())
    assert refusal(buffer).message.startswith(f"{EXECUTION}/payloads/{file.name} was changed")


def test_a_payload_that_is_missing_is_known(buffer: Path) -> None:
    file = next((buffer / "payloads").iterdir())
    file.unlink()
    assert [ref.sha256 for _, ref in examined(buffer).missing] == [file.name]


def test_a_payload_that_nobody_needs(buffer: Path) -> None:
    name = hashlib.sha256(b"more").hexdigest()
    (buffer / "payloads" / name).write_bytes(b"more")
    assert refusal(buffer).message == f"payloads/{name} is a payload that no event refers to"


def test_metadata_of_another(buffer: Path) -> None:
    vouch(buffer, execution_id="7")
    assert "is that of execution 7" in refusal(buffer).message
    vouch(buffer, execution_id=str(EXECUTION), tenant_id="labs")
    assert "is of tenant 'labs', organisation 'retail', its events are of tenant 'acme'" in refusal(buffer).message


def test_only_executions_are_delivered() -> None:
    scribe = Scribe()
    stream = Stream("acme", "tenant/acme")
    scribe.append(batch(draft("tenant.created", execution_id=None, aggregate_type="tenant"), stream=stream))
    part = events_part("events", lambda: iter([("events[0]", scribe.written[0])]))
    with pytest.raises(InvalidInput, match=r"events\[0\]: event \d+ belongs to 'tenant/acme', not to an execution"):
        examine([part], default_registry())


def test_an_event_that_cannot_be_understood_is_not_let_in() -> None:
    scribe = Scribe()
    scribe.append(batch(draft("playbook.initialized", payload={})))
    part = events_part("events", lambda: iter([("events[0]", scribe.written[0])]))
    with pytest.raises(InvalidInput, match=r"payload\.path"):
        examine([part], default_registry())


def test_tenants_do_not_mix() -> None:
    scribe = Scribe()
    scribe.append(batch(draft("playbook.initialized", payload={"path": "a"}), draft(organization_id="other")))
    placed = [(f"events[{number}]", event) for number, event in enumerate(scribe.written)]
    with pytest.raises(InvalidInput, match=r"events\[1\]: event \d+ is of tenant 'acme', organisation 'other'"):
        examine([events_part("events", lambda: iter(placed))], default_registry())


def test_nothing_is_no_delivery() -> None:
    with pytest.raises(InvalidInput, match="there are no events"):
        examine([events_part("events", lambda: iter([]))], default_registry())


def test_an_execution_that_is_taken_over_holds_in_itself(buffer: Path) -> None:
    part = buffer_part(buffer, whole=True)
    found = examine([part], default_registry(), Restamper("labs", "research"))
    again = examine([part], default_registry(), Restamper("labs", "research"))
    assert found.written == again.written
    assert {stream.tenant_id for stream in found.written} == {"labs"}
    assert [head.count for head in found.written.values()] == [head.count for head in found.heads.values()]
    assert not {head.chain_hash for head in found.written.values()} & {head.chain_hash for head in found.heads.values()}
    assert all(ref.uri.startswith("noetl://labs/sales/") for _, ref in found.references.values())
