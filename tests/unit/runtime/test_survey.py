"""A walk over events: what it finds out, and what it refuses to pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import PayloadRef
from noetl.kernel.names import Home, ResultCoordinates
from noetl.kernel.upcast import default_registry
from noetl.payloads.results import JSON
from noetl.runtime.survey import Survey
from tests.scribe import Scribe
from tests.unit.kernel.drafts import PAYLOAD_REF, STREAM, TELEMETRY, batch, draft
from tests.unit.runtime.histories import home_at, whole

EXECUTION = 1 << 50
HOME = Home(env="dev", region="local", cell="local-a")


async def test_it_knows_the_execution_its_commands_and_its_ends(tmp_path: Path) -> None:
    survey = Survey(default_registry())
    async with home_at(tmp_path) as embedded:
        told = await whole(embedded)
        survey.take_all(item.event for item in await embedded.ledger.read_root(told.root))
        heads = {head.stream_id: head.chain_hash for head in await embedded.ledger.heads(root=told.root)}
    assert survey.execution(told.root).status == "COMPLETED"
    assert [(row.step, row.status, row.result) for row in survey.commands(told.root)] == [("load", "COMPLETED", None)]
    assert {end.stream_id: end.chain_hash for end in survey.ends(told.root)} == heads
    assert survey.ends(told.root)[0].stream_id == told.root.stream_id


def test_payloads_are_named_once() -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    scribe.append(batch(draft(payload_ref=PAYLOAD_REF), draft(payload_ref=PAYLOAD_REF)))
    references, _ = survey.take_all(scribe.written[:1])
    assert references == [PAYLOAD_REF]
    assert survey.take_all(scribe.written[1:]) == ([], [])


def test_one_payload_has_one_length() -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    document = {"sha256": PAYLOAD_REF.sha256, "bytes": 3}
    scribe.append(batch(draft(payload_ref=PAYLOAD_REF), draft(payload={"document": document})))
    with pytest.raises(IntegrityMismatch, match="has 3 bytes, another one says 2"):
        survey.take_all(scribe.written)


def test_results_with_the_same_bytes_are_objects_of_their_own() -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    refs = [result_at(run) for run in (1, 2)]
    scribe.append(batch(*(draft(payload_ref=ref) for ref in refs)))
    references, _ = survey.take_all(scribe.written)
    assert references == refs
    assert survey.references.keys() == {ref.key for ref in refs}


@pytest.mark.parametrize(
    "wrong", [{"tenant": "labs"}, {"step": "other"}, {"execution_id": EXECUTION + 1}], ids=lambda one: next(iter(one))
)
def test_an_event_names_objects_of_its_own_results_only(wrong: dict[str, Any]) -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    place = msgspec.structs.replace(place_of(1), **wrong)
    if "tenant" in wrong:
        ref = msgspec.structs.replace(result_at(1), uri=place.logical_uri(), key=place.physical_key(HOME))
    else:
        ref = msgspec.structs.replace(result_at(1), key=place.physical_key(HOME))
    scribe.append(batch(draft(payload_ref=ref)))
    with pytest.raises(InvalidInput, match=r"refers to object 'noetl/env=.*', which is not that of 'noetl://"):
        survey.take_all(scribe.written)


def place_of(run: int) -> ResultCoordinates:
    return ResultCoordinates(tenant="acme", project="sales", execution_id=EXECUTION, step="load", run=run, attempt=1)


def result_at(run: int) -> PayloadRef:
    place = place_of(run)
    return PayloadRef(uri=place.logical_uri(), sha256="ab" * 32, media_type=JSON, bytes=9, key=place.physical_key(HOME))


def test_a_seal_over_more_than_there_is() -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    scribe.append(batch(draft("playbook.initialized", payload={"path": "a"})))
    scribe.append(batch(draft("model.checkpointed"), draft("model.checkpointed"), stream=TELEMETRY))
    scribe.append(batch(draft("stream.sealed", payload={"seal": scribe.seal(TELEMETRY, final=True)})))
    with pytest.raises(IntegrityMismatch, match="seals another number of events than there are"):
        survey.take_all([scribe.written[0], scribe.written[1], scribe.written[3]])


def test_nothing_follows_a_final_seal() -> None:
    scribe, survey = Scribe(), Survey(default_registry())
    scribe.append(batch(draft("playbook.initialized", payload={"path": "a"})))
    scribe.append(batch(draft("model.checkpointed"), stream=TELEMETRY))
    scribe.append(batch(draft("stream.sealed", payload={"seal": scribe.seal(TELEMETRY, final=True)})))
    twin = Scribe()
    twin.ids = scribe.ids
    late = twin.append(batch(draft("model.checkpointed"), stream=TELEMETRY))
    survey.take_all(scribe.written)
    with pytest.raises(IntegrityMismatch, match="is sealed and accepts no more events"):
        survey.take_all(late)
    assert survey.roots == [STREAM]
