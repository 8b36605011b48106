from __future__ import annotations

import msgspec
import pytest

from noetl.errors import InvalidEvent, InvalidInput
from noetl.kernel.event import Envelope, Json
from noetl.kernel.upcast import CURRENT_VERSIONS, LEGACY_SCHEMA, UpcasterRegistry, default_registry
from noetl.kernel.vocabulary import KNOWN_TYPES
from tests.unit.kernel.drafts import envelope

SCHEMA = "noetl.order.placed"


def raise_to(version: int, **payload: object) -> Envelope:
    return envelope("order.placed", schema_name=SCHEMA, schema_version=version, payload=payload)


def add_currency(event: Envelope) -> Envelope:
    return msgspec.structs.replace(event, schema_version=2, payload={**event.payload, "currency": "EUR"})


def rename_total(event: Envelope) -> Envelope:
    rest = {name: value for name, value in event.payload.items() if name != "sum"}
    return msgspec.structs.replace(event, schema_version=3, payload={**rest, "total": event.payload["sum"]})


@pytest.fixture
def registry() -> UpcasterRegistry:
    registry = UpcasterRegistry({SCHEMA: 3})
    registry.register(SCHEMA, 1, "currency", add_currency)
    registry.register(SCHEMA, 2, "total", rename_total)
    return registry


def test_steps_are_applied_in_order(registry: UpcasterRegistry) -> None:
    raised = registry.upcast(raise_to(1, sum=5))
    assert (raised.schema_version, raised.payload) == (3, {"currency": "EUR", "total": 5})


def test_an_event_of_today_is_returned_as_it_is(registry: UpcasterRegistry) -> None:
    event = raise_to(3, total=5)
    assert registry.upcast(event) is event


def test_an_event_of_a_schema_nobody_listed_is_returned_as_it_is(registry: UpcasterRegistry) -> None:
    event = envelope("weather.changed", schema_version=40)
    assert registry.upcast(event) is event


def test_upcasting_leaves_the_stored_event_alone(registry: UpcasterRegistry) -> None:
    event = raise_to(1, sum=5)
    registry.upcast(event)
    assert (event.schema_version, event.payload) == (1, {"sum": 5})


def test_an_older_version_without_a_way_up_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="version 1 has no upcaster to version 3") as refused:
        UpcasterRegistry({SCHEMA: 3}).upcast(raise_to(1))
    assert (refused.value.field, refused.value.event_id) == ("schema_version", 500)
    assert "register an upcaster" in str(refused.value)


def test_a_newer_version_asks_for_an_upgrade(registry: UpcasterRegistry) -> None:
    with pytest.raises(InvalidEvent, match="upgrade noetl"):
        registry.upcast(raise_to(4))


def test_a_step_that_does_not_raise_the_version_is_a_fault() -> None:
    registry = UpcasterRegistry({SCHEMA: 2})
    registry.register(SCHEMA, 1, "idle", lambda event: event)
    with pytest.raises(InvalidInput, match="upcaster 'idle' did not raise the version of event 500"):
        registry.upcast(raise_to(1))


def test_a_step_may_not_turn_one_event_into_another() -> None:
    registry = UpcasterRegistry({SCHEMA: 2})
    registry.register(SCHEMA, 1, "swap", lambda event: msgspec.structs.replace(event, schema_version=2, event_id=1))
    with pytest.raises(InvalidInput, match="upcaster 'swap'"):
        registry.upcast(raise_to(1))


def test_a_version_has_one_step(registry: UpcasterRegistry) -> None:
    with pytest.raises(InvalidInput, match="version 1 has an upcaster already"):
        registry.register(SCHEMA, 1, "again", add_currency)


def test_the_digest_does_not_depend_on_the_order_of_registration(registry: UpcasterRegistry) -> None:
    other = UpcasterRegistry({SCHEMA: 3})
    other.register(SCHEMA, 2, "total", rename_total)
    other.register(SCHEMA, 1, "currency", add_currency)
    assert other.digest() == registry.digest()


def test_the_digest_changes_with_every_transition(registry: UpcasterRegistry) -> None:
    digests = {registry.digest(), UpcasterRegistry({SCHEMA: 3}).digest()}
    registry.register(SCHEMA, 3, "more", add_currency)
    digests.add(registry.digest())
    renamed = UpcasterRegistry({SCHEMA: 3})
    renamed.register(SCHEMA, 1, "currency-2", add_currency)
    digests.add(renamed.digest())
    assert len(digests) == 4


def test_every_known_type_has_a_current_version() -> None:
    assert set(CURRENT_VERSIONS) == {f"noetl.{name}" for name in KNOWN_TYPES} | {LEGACY_SCHEMA}


class TestLegacySpelling:
    def upcast(self, event_type: str, payload: Json) -> Envelope:
        event = envelope(event_type, schema_name=LEGACY_SCHEMA, schema_version=1, payload=payload)
        return default_registry().upcast(event)

    @pytest.mark.parametrize("wrapper", ["context", "payload"])
    def test_facts_move_out_of_the_wrapper_and_get_todays_names(self, wrapper: str) -> None:
        facts = {"row_count": 5, "worker_slot_id": 2, "policy": {"max_rows": 5}, "loop_event_id": "load/1", "path": "a"}
        raised = self.upcast("frame.committed", {wrapper: facts})
        assert raised.payload == {
            "rows": 5, "slot": 2, "frame_policy": {"max_rows": 5}, "loop_id": "load/1", "path": "a",
        }  # fmt: skip

    def test_what_stands_outside_wins(self) -> None:
        raised = self.upcast("call.done", {"context": {"result": 1, "x": 2}, "result": {"status": "ok"}})
        assert raised.payload == {"result": {"status": "ok"}, "x": 2}

    @pytest.mark.parametrize(
        ("older", "today"),
        [("playbook_started", "playbook.initialized"), ("execution.cancelled", "playbook.cancelled")],
    )
    def test_older_type_names_become_todays(self, older: str, today: str) -> None:
        assert self.upcast(older, {}).event_type == today

    def test_the_version_is_raised(self) -> None:
        assert self.upcast("step.enter", {}).schema_version == CURRENT_VERSIONS[LEGACY_SCHEMA] == 2

    def test_what_ships_is_pinned_by_its_digest(self) -> None:
        assert default_registry().digest() == "640b5f8949333b3252ceb52f78322b603107e2b0a3e7829bb1d6b0a367dabd8c"
