from __future__ import annotations

from typing import Any, ClassVar

import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply
from tests.unit.kernel.drafts import envelope

AT = "2026-03-02T08:00:00.000000Z"
STREAMS = {
    "registry": "registry/acme/sales/model/churn",
    "subscription": "subscription/guide/orders",
    "tenant": "tenant/acme",
}


def told(event_type: str, **fields: Any) -> Envelope:
    aggregate = event_type.partition(".")[0]
    of_tenant = {"credential": "tenant", "token": "tenant", "schedule": "tenant"}
    category = {"catalog": "registry", **of_tenant}.get(aggregate, aggregate)
    place = {"execution_id": None, "stream_id": STREAMS[category], "aggregate_id": "churn"}
    return envelope(event_type, **{**place, **fields})


def after(*events: Envelope) -> State:
    state = State(events[0].stream_id.partition("/")[0])
    for event in events:
        apply(state, event)
    return state


class TestRegistry:
    def test_each_registration_is_a_version(self) -> None:
        one = told("catalog.resource.registered", payload={"kind": "model", "descriptor": {"v": 1}})
        two = told("catalog.resource.registered", payload={"kind": "model", "descriptor": {"v": 2}})
        row = after(one, two).root
        assert (row.resource_id, row.kind, row.version, row.descriptor) == ("churn", "model", 2, {"v": 2})
        assert (row.status, row.registered_at) == ("REGISTERED", AT)

    def test_locations_are_kept_in_order_and_replicas_counted(self) -> None:
        row = after(
            told("catalog.resource.location_added", payload={"location": {"uri": "a"}}),
            told("catalog.resource.replica_available", payload={"location": {"uri": "b"}}),
        ).root
        assert (row.locations, row.replicas) == ([{"uri": "a"}, {"uri": "b"}], 1)

    def test_a_grant_is_a_row_of_its_own(self) -> None:
        payload = {"principal": "group:ml", "terms": {"actions": ["read"]}}
        state = after(told("catalog.resource.grant_created", aggregate_id="g1", payload=payload))
        grant = state.surfaces["grants"].rows["g1"]
        assert (grant.status, grant.principal, grant.terms) == ("ACTIVE", "group:ml", {"actions": ["read"]})

    @pytest.mark.parametrize(("verb", "status"), [("archived", "ARCHIVED"), ("deleted_or_expired", "DELETED")])
    def test_a_resource_ends(self, verb: str, status: str) -> None:
        row = after(told(f"catalog.resource.{verb}")).root
        assert (row.status, row.ended_at) == (status, AT)

    @pytest.mark.parametrize(
        ("verb", "payload", "field"),
        [
            ("location_added", {}, "payload.location"),
            ("replica_available", {"location": "s3://x"}, "payload.location"),
            ("grant_created", {}, "payload.principal"),
            ("grant_created", {"principal": "a", "terms": []}, "payload.terms"),
            ("registered", {"kind": 1}, "payload.kind"),
            ("registered", {"descriptor": "text"}, "payload.descriptor"),
        ],
    )
    def test_a_malformed_event_names_event_and_field(self, verb: str, payload: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidEvent, match=f"event 500, field '{field}'"):
            after(told(f"catalog.resource.{verb}", payload=payload))


class TestSubscription:
    @pytest.mark.parametrize(
        ("verb", "status"),
        [
            ("registered", "REGISTERED"),
            ("activated", "ACTIVE"),
            ("paused", "PAUSED"),
            ("resumed", "ACTIVE"),
            ("draining", "DRAINING"),
            ("deactivated", "INACTIVE"),
        ],
    )
    def test_its_life_is_its_status(self, verb: str, status: str) -> None:
        row = after(told(f"subscription.{verb}")).root
        assert (row.status, row.subscription_id, row.changed_at) == (status, "churn", AT)

    def test_what_became_of_messages_is_counted(self) -> None:
        verbs = ["message.dispatched", "message.dispatched", "message.rejected", "rate_limited", "spool.draining"]
        row = after(*(told(f"subscription.{verb}") for verb in verbs)).root
        assert row.messages == {"dispatched": 2, "rejected": 1, "rate_limited": 1, "spool.draining": 1}
        assert row.status is None

    def test_the_circuit_opens_and_closes(self) -> None:
        opened = told("subscription.circuit.opened")
        assert after(opened).root.circuit == "OPENED"
        assert after(opened, told("subscription.circuit.closed")).root.circuit == "CLOSED"


class TestTenant:
    @pytest.mark.parametrize(
        ("verb", "status"),
        [
            ("created", "ACTIVE"),
            ("updated", "ACTIVE"),
            ("suspended", "SUSPENDED"),
            ("resumed", "ACTIVE"),
            ("deleted", "DELETED"),
        ],
    )
    def test_its_life_is_its_status(self, verb: str, status: str) -> None:
        assert after(told(f"tenant.{verb}")).root.status == status

    def test_settings_are_replaced_key_by_key(self) -> None:
        row = after(
            told("tenant.created", payload={"settings": {"plan": "team", "quota": {"runs": 1}}}),
            told("tenant.updated", payload={"settings": {"quota": {"bytes": 2}}}),
        ).root
        assert row.settings == {"plan": "team", "quota": {"bytes": 2}}

    def test_malformed_settings_name_event_and_field(self) -> None:
        with pytest.raises(InvalidEvent, match=r"event 500, field 'payload.settings'"):
            after(told("tenant.created", payload={"settings": []}))


class TestCustody:
    REGISTERED: ClassVar[dict[str, Any]] = {"type": "bearer", "version": 1, "fingerprint": "f1", "key_id": "kek-1"}

    def told(self, event_type: str, subject: str = "crm", /, **payload: Any) -> Envelope:
        return told(event_type, stream_id=STREAMS["tenant"], aggregate_id=subject, payload=payload)

    def test_a_credential_is_known_by_what_may_be_known_of_it(self) -> None:
        row = after(
            self.told("credential.registered", **self.REGISTERED),
            self.told("credential.registered", **{**self.REGISTERED, "version": 2, "fingerprint": "f2"}, data="secret"),
            self.told("credential.rotated", "*", key_id="kek-2"),
        ).root
        assert row.credentials == {"crm": {"type": "bearer", "version": 2, "fingerprint": "f2"}}
        assert row.key_id == "kek-2"

    def test_what_is_removed_leaves_a_row_as_if_it_had_never_been(self) -> None:
        row = after(
            self.told("credential.registered", **self.REGISTERED),
            self.told("credential.removed"),
            self.told("credential.removed", "never there"),
        ).root
        assert "credentials" not in row.as_dict()

    def test_tokens_are_known_until_they_are_revoked(self) -> None:
        made = self.told("token.created", "01", name="ci", expires_at=AT)
        assert after(made).root.tokens == {"01": {"name": "ci", "expires_at": AT}}
        assert after(made, self.told("token.revoked", "01")).root.tokens == {}

    @pytest.mark.parametrize("missing", ["type", "version", "fingerprint", "key_id"])
    def test_a_malformed_one_is_named(self, missing: str) -> None:
        payload = {name: value for name, value in self.REGISTERED.items() if name != missing}
        with pytest.raises(InvalidEvent, match=rf"event 500, field 'payload.{missing}': is missing"):
            after(self.told("credential.registered", **payload))


class TestSchedules:
    PLAN: ClassVar[dict[str, Any]] = {"playbook": "reports/daily", "cron": "0 6 * * *", "timezone": "Europe/Paris"}

    def told(self, event_type: str, name: str = "daily", /, **payload: Any) -> Envelope:
        return told(f"schedule.{event_type}", stream_id=STREAMS["tenant"], aggregate_id=name, payload=payload)

    def test_a_schedule_is_known_by_what_it_runs_and_how_often_it_did(self) -> None:
        made = self.told("created", **self.PLAN)
        assert after(made).root.schedules == {"daily": {**self.PLAN, "status": "ACTIVE", "fired": 0, "missed": 0}}
        row = after(
            made,
            self.told("fired", fire_time=AT, execution_id="7"),
            self.told("missed", fire_time=AT, count=3, reason="late"),
            self.told("paused"),
            self.told("changed", **{**self.PLAN, "cron": "0 7 * * *"}),
        ).root
        changed = {**self.PLAN, "cron": "0 7 * * *", "status": "PAUSED", "fired": 1, "missed": 3}
        assert row.schedules == {"daily": changed}

    def test_a_removed_one_leaves_nothing_behind(self) -> None:
        row = after(
            self.told("created", **self.PLAN),
            self.told("paused"),
            self.told("resumed"),
            self.told("removed"),
            self.told("fired", fire_time=AT, execution_id="7"),
            self.told("paused"),
            self.told("removed", "never there"),
        ).root
        assert "schedules" not in row.as_dict()
        assert row.unknown == {}

    @pytest.mark.parametrize("missing", ["playbook", "cron", "timezone"])
    def test_a_malformed_one_is_named(self, missing: str) -> None:
        payload = {name: value for name, value in self.PLAN.items() if name != missing}
        with pytest.raises(InvalidEvent, match=rf"event 500, field 'payload.{missing}': is missing"):
            after(self.told("created", **payload))


@pytest.mark.parametrize("category", sorted(STREAMS))
def test_an_unknown_type_is_counted(category: str) -> None:
    event = envelope("weather.changed", execution_id=None, stream_id=STREAMS[category])
    assert after(event, event).root.unknown == {"weather.changed": 2}


@pytest.mark.parametrize("category", sorted(STREAMS))
def test_an_event_of_another_category_is_unknown_here(category: str) -> None:
    event = envelope("step.enter", execution_id=None, stream_id=STREAMS[category], payload={"set": {"ctx.a": 1}})
    assert after(event).root.unknown == {"step.enter": 1}
