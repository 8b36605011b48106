"""The schema of a subscription."""

from __future__ import annotations

from noetl.playbook.schema.parts import (
    ANY,
    BOOLEAN,
    MAPPING,
    SIZE,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    described,
    document,
    listed,
    obj,
    one_of,
    ref,
)
from noetl.playbook.schema.workflow import metadata
from noetl.playbook.validate.spool import BACKENDS, ON_FULL, ON_RECOVERY, ORDERINGS, SPOOL_MODES
from noetl.playbook.validate.subscription import ACTIVATIONS, CONTROLS, MODES, PAYLOADS, SOURCES, VERIFY_TYPES

__all__ = ["subscription_schema"]


def subscription_schema() -> Schema:
    """The whole schema."""
    root = obj(
        {
            "apiVersion": described({"const": "noetl.io/v1"}, "version of the language"),
            "kind": described({"const": "Subscription"}, "what the document is"),
            "metadata": ref("metadata", "who the document is"),
            "spec": ref("spec", "where messages come from and what they start"),
        },
        required=["apiVersion", "kind", "metadata", "spec"],
        description="messages that start executions",
    )
    parts = {
        "metadata": metadata(),
        "spec": _spec(),
        "dispatch": _dispatch(),
        "directive": _directive(),
        "ingress": _ingress(),
        "spool": _spool(),
    }
    return document("Subscription", root, parts)


def _spec() -> Schema:
    runtime = obj(
        {
            "target": described(TEXT, "where it runs"), "pool": described(TEXT, "worker pool"),
            "batch": described(WHOLE, "messages fetched at once"),
            "timeout_ms": described(WHOLE, "how long a fetch waits"),
        },
        closed=False, description="where and how it fetches",
    )  # fmt: skip
    trace = obj(
        {"propagate": described(TEXT, "format"), "baggage_allowlist": described(TEXTS, "baggage that is passed on")},
        closed=False, description="trace context",
    )  # fmt: skip
    headers = obj(
        {
            "normalize": described(BOOLEAN, "names in lower case"),
            "directives": listed(ref("directive"), "headers that may control something"),
            "passthrough": described(TEXT, "where the other headers go"),
            "trace": trace,
        },
        description="what headers may do",
    )
    fields: dict[str, Schema] = {
        "source": one_of(SOURCES, "where messages come from"),
        "mode": one_of(MODES, "fetch, or be sent to"),
        "activation": one_of(ACTIVATIONS, "pull: always, or by the clock", default="continuous"),
        "cadence": described(TEXT, "scheduled: cron text", examples=["*/5 * * * *"]),
        "auth": described(ANY, "credential"),
        "stream": described(TEXT, "nats: stream"),
        "consumer": described(TEXT, "nats: durable consumer"),
        "subject": described(TEXT, "nats: subject"),
        "topic": described(TEXT, "kafka: topic"),
        "group": described(TEXT, "kafka: consumer group"),
        "subscription": described(TEXT, "pubsub: subscription"),
        "runtime": runtime,
        "dispatch": ref("dispatch", "what a message starts"),
        "headers": headers,
        "dedup": obj(
            {"enabled": described(BOOLEAN, "drop duplicates"), "window_secs": described(WHOLE, "within this time")},
            description="duplicates",
        ),
        "limits": obj(
            {
                "max_in_flight": described(WHOLE, "executions at once"),
                "max_dispatch_per_sec": described(WHOLE, "executions per second"),
            },
            description="at a limit the source keeps the backlog",
        ),
        "spool": ref("spool", "where messages wait while what they need is down"),
        "ingress": ref("ingress", "push: where requests arrive and how they are verified"),
    }
    return obj(fields, required=["source", "mode", "dispatch"], description="the subscription")


def _dispatch() -> Schema:
    return obj(
        {
            "playbook": described(TEXT, "catalog path"),
            "payload_from": one_of(PAYLOADS, "what becomes the payload", default="message.json"),
            "execution_pool": described(TEXT, "worker pool of the executions"),
            "batch_dispatch": described(BOOLEAN, "start several in one request", default=False),
            "batch_max": described(WHOLE, "at most this many", default=100),
        },
        required=["playbook"],
        description="what a message starts",
    )


def _directive() -> Schema:
    return obj(
        {
            "header": described(TEXT, "name, in lower case"),
            "controls": one_of(CONTROLS, "what it controls"),
            "allowed": described(TEXTS, "values that may be chosen"),
            "map": described(MAPPING, "priority: value by header value"),
        },
        required=["header", "controls"],
        closed=False,
        description="a header that controls something",
    )


def _ingress() -> Schema:
    verify = obj(
        {
            "type": one_of(VERIFY_TYPES, "how a request proves itself"),
            "header": described(TEXT, "header with the proof"),
            "secret": described(ANY, "secret, by reference"),
            "audience": described(TEXT, "oidc: audience"),
            "service_account": described(TEXT, "oidc: account"),
        },
        required=["type"],
        closed=False,
        description="verification, which is mandatory",
    )
    path = described(TEXT, "path of the endpoint", examples=["/hooks/orders"])
    return obj({"gateway_path": path, "verify": verify}, required=["gateway_path", "verify"], description="push")


def _spool() -> Schema:
    circuit = obj(
        {
            "trip_after": described(WHOLE, "failures in a row that open the circuit"),
            "probe_after_ms": described(WHOLE, "wait before the first probe"),
            "probe_interval_ms": described(WHOLE, "wait between probes"),
            "downstream": listed(
                obj({"name": TEXT, "type": TEXT, "target": TEXT}, required=["name", "type", "target"], closed=False),
                "what is probed",
            ),
        },
        description="when to stop sending",
    )
    retention = obj(
        {
            "max_age_hours": described(WHOLE, "age of the oldest message"),
            "max_bytes": described(SIZE, "size of the spool"),
            "on_full": one_of(ON_FULL, "what a full spool does"),
        },
        description="how much is kept",
    )
    drain = obj(
        {
            "on_recovery": one_of(ON_RECOVERY, "before live traffic or beside it"),
            "max_replay_attempts": described(WHOLE, "failures before the dead-letter queue"),
        },
        description="how it empties",
    )
    return obj(
        {
            "mode": one_of(SPOOL_MODES, "whether messages are spooled", default="off"),
            "backend": one_of(BACKENDS, "where"),
            "bucket": described(TEXT, "bucket"),
            "credential": described(ANY, "credential"),
            "ordering": one_of(ORDERINGS, "what order is kept"),
            "ordering_key": described(TEXT, "per_key: field of the message"),
            "circuit": circuit,
            "retention": retention,
            "drain": drain,
        },
        closed=False,
        description="where messages wait",
    )
