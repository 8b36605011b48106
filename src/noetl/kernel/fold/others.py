"""What the events of registry, subscription and tenant streams mean."""

from __future__ import annotations

from noetl.kernel.event import Envelope
from noetl.kernel.fold.read import mapping, number, required, text
from noetl.kernel.fold.rows import GrantRow, ResourceRow, SubscriptionRow, TenantRow
from noetl.kernel.fold.state import State
from noetl.kernel.seal import seal_in

__all__ = ["REGISTRY_HANDLERS", "SUBSCRIPTION_HANDLERS", "TENANT_HANDLERS"]

_SUBSCRIPTION_STATUS = {
    "registered": "REGISTERED",
    "activated": "ACTIVE",
    "resumed": "ACTIVE",
    "paused": "PAUSED",
    "draining": "DRAINING",
    "deactivated": "INACTIVE",
}


def _registered(state: State, event: Envelope) -> None:
    row: ResourceRow = state.root
    row.resource_id = event.aggregate_id
    row.kind = text(event, "kind")
    row.version += 1
    row.descriptor = mapping(event, "descriptor")
    row.status = "REGISTERED"
    row.registered_at = row.registered_at or event.event_time


def _located(state: State, event: Envelope) -> None:
    row: ResourceRow = state.root
    row.locations.append(required(event, "payload.location", mapping(event, "location")))
    if event.event_type.endswith("replica_available"):
        row.replicas += 1


def _granted(state: State, event: Envelope) -> None:
    grant: GrantRow = state.surfaces["grants"].edit(event.aggregate_id)
    grant.principal = required(event, "payload.principal", text(event, "principal"))
    grant.terms = mapping(event, "terms")
    grant.created_at = event.event_time


def _resource_ended(state: State, event: Envelope) -> None:
    row: ResourceRow = state.root
    row.status = "ARCHIVED" if event.event_type.endswith("archived") else "DELETED"
    row.ended_at = event.event_time


def _subscription_changed(state: State, event: Envelope) -> None:
    row: SubscriptionRow = state.root
    row.subscription_id = event.aggregate_id
    row.status = _SUBSCRIPTION_STATUS[event.event_type.rpartition(".")[2]]
    row.changed_at = event.event_time


def _message(state: State, event: Envelope) -> None:
    row: SubscriptionRow = state.root
    outcome = event.event_type.removeprefix("subscription.").removeprefix("message.")
    row.messages[outcome] = row.messages.get(outcome, 0) + 1


def _circuit(state: State, event: Envelope) -> None:
    state.root.circuit = event.event_type.rpartition(".")[2].upper()


def _sealed(_: State, event: Envelope) -> None:
    """A subscription's stream has no root above it and records its seals in itself."""
    required(event, "payload.seal", seal_in(event))


def _tenant_changed(state: State, event: Envelope) -> None:
    row: TenantRow = state.root
    row.status = {"suspended": "SUSPENDED", "deleted": "DELETED"}.get(event.event_type.rpartition(".")[2], "ACTIVE")
    row.settings.update(mapping(event, "settings") or {})
    row.changed_at = event.event_time


def _credential_registered(state: State, event: Envelope) -> None:
    row: TenantRow = state.root
    row.credentials[event.aggregate_id] = {
        "type": required(event, "payload.type", text(event, "type")),
        "version": required(event, "payload.version", number(event, "version")),
        "fingerprint": required(event, "payload.fingerprint", text(event, "fingerprint")),
    }
    row.key_id = required(event, "payload.key_id", text(event, "key_id"))


def _credential_removed(state: State, event: Envelope) -> None:
    state.root.credentials.pop(event.aggregate_id, None)


def _credential_rotated(state: State, event: Envelope) -> None:
    state.root.key_id = required(event, "payload.key_id", text(event, "key_id"))


def _token_created(state: State, event: Envelope) -> None:
    name = required(event, "payload.name", text(event, "name"))
    state.root.tokens[event.aggregate_id] = {"name": name, "expires_at": text(event, "expires_at")}


def _token_revoked(state: State, event: Envelope) -> None:
    """Only tokens that were not revoked are kept: the log has the others."""
    state.root.tokens.pop(event.aggregate_id, None)


def _schedule_planned(state: State, event: Envelope) -> None:
    known = state.root.schedules.get(event.aggregate_id, {})
    state.root.schedules[event.aggregate_id] = {
        "playbook": required(event, "payload.playbook", text(event, "playbook")),
        "cron": required(event, "payload.cron", text(event, "cron")),
        "timezone": required(event, "payload.timezone", text(event, "timezone")),
        "status": known.get("status", "ACTIVE"),
        "fired": known.get("fired", 0),
        "missed": known.get("missed", 0),
    }


def _schedule_switched(state: State, event: Envelope) -> None:
    known = state.root.schedules.get(event.aggregate_id)
    if known is not None:
        known["status"] = "PAUSED" if event.event_type.endswith("paused") else "ACTIVE"


def _schedule_removed(state: State, event: Envelope) -> None:
    state.root.schedules.pop(event.aggregate_id, None)


def _schedule_ran(state: State, event: Envelope) -> None:
    """What was decided before a schedule was removed may be recorded after that; it is then counted nowhere."""
    known = state.root.schedules.get(event.aggregate_id)
    if known is None:
        return
    if event.event_type.endswith("fired"):
        known["fired"] += 1
    else:
        known["missed"] += required(event, "payload.count", number(event, "count"))


def _hold_placed(state: State, event: Envelope) -> None:
    state.root.holds[event.aggregate_id] = {
        "reason": required(event, "payload.reason", text(event, "reason")),
        "principal": event.principal,
        "placed_at": event.event_time,
    }


def _hold_released(state: State, event: Envelope) -> None:
    """Only holds that stand are kept: who placed and who released the others, the log has."""
    state.root.holds.pop(event.aggregate_id, None)


def _noted(_: State, __: Envelope) -> None:
    """Counted like every event; what became of a batch is asked of the log, by its request."""


REGISTRY_HANDLERS = {
    "catalog.resource.registered": _registered,
    "catalog.resource.location_added": _located,
    "catalog.resource.replica_available": _located,
    "catalog.resource.grant_created": _granted,
    "catalog.resource.archived": _resource_ended,
    "catalog.resource.deleted_or_expired": _resource_ended,
}

SUBSCRIPTION_HANDLERS = {
    **{f"subscription.{name}": _subscription_changed for name in _SUBSCRIPTION_STATUS},
    **{
        f"subscription.{name}": _message
        for name in (
            "rate_limited", "message.directives_applied", "message.rejected", "message.deduplicated",
            "message.spooled", "message.replayed", "message.dispatched", "message.dead_lettered",
            "spool.draining", "spool.recovered",
        )
    },
    "stream.sealed": _sealed,
    "subscription.circuit.opened": _circuit,
    "subscription.circuit.closed": _circuit,
}  # fmt: skip

TENANT_HANDLERS = {
    **{f"tenant.{name}": _tenant_changed for name in ("created", "updated", "suspended", "resumed", "deleted")},
    "credential.registered": _credential_registered,
    "credential.removed": _credential_removed,
    "credential.rotated": _credential_rotated,
    "token.created": _token_created,
    "token.revoked": _token_revoked,
    "schedule.created": _schedule_planned,
    "schedule.changed": _schedule_planned,
    "schedule.paused": _schedule_switched,
    "schedule.resumed": _schedule_switched,
    "schedule.removed": _schedule_removed,
    "schedule.fired": _schedule_ran,
    "schedule.missed": _schedule_ran,
    "hold.placed": _hold_placed,
    "hold.released": _hold_released,
    **{f"batch.{name}": _noted for name in ("accepted", "processing", "completed", "failed")},
}
