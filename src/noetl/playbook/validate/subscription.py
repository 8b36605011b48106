"""`kind: Subscription`: where messages come from and what each of them starts."""

from __future__ import annotations

from typing import Any

from noetl.playbook.bounds import COUNT, OutOfBounds
from noetl.playbook.document import Dispatch, Subscription
from noetl.playbook.problems import Report
from noetl.playbook.source import Node
from noetl.playbook.validate.root import read_api_version, read_metadata
from noetl.playbook.validate.shapes import (
    Context,
    bounded,
    choice,
    entries,
    ignore_unknown,
    mapping,
    optional_text,
    texts,
    truth,
)
from noetl.playbook.validate.spool import check_spool

__all__ = ["CONTROLS", "PAYLOADS", "SOURCES", "SPEC_KEYS", "VERIFY_TYPES", "read_subscription"]

SOURCES = ("nats", "kafka", "pubsub", "webhook")
MODES = ("pull", "push")
ACTIVATIONS = ("continuous", "scheduled")
PAYLOADS = ("message.json", "message.body", "message.attributes")
VERIFY_TYPES = ("hmac_sha256", "hmac", "bearer", "oidc", "pubsub_oidc")
CONTROLS = (
    "dispatch.playbook", "dispatch.execution_pool", "priority", "idempotency_key", "content_type", "schema_hint",
)  # fmt: skip
SPEC_KEYS = (
    "source", "mode", "activation", "cadence", "auth", "stream", "consumer", "topic", "group", "subscription",
    "subject", "runtime", "dispatch", "headers", "dedup", "limits", "spool", "ingress",
)  # fmt: skip

_NEEDS = {"nats": ("stream", "consumer"), "kafka": ("topic", "group"), "pubsub": ("subscription",), "webhook": ()}
_SECRETS = ("hmac_sha256", "hmac", "bearer")
_DIRECTIVE_NEEDS = {"dispatch.playbook": "allowed", "dispatch.execution_pool": "allowed", "priority": "map"}


def read_subscription(context: Context, root: Node) -> Subscription:
    """The subscription of a root mapping."""
    report = context.report
    api_version = read_api_version(report, root, "Subscription")
    metadata = read_metadata(report, root)
    for key in root.entries:
        if key == "workflow":
            report.add("NTL-706", root.key(key))
        elif key not in ("apiVersion", "kind", "metadata", "spec"):
            report.add("NTL-901", root.key(key), key=key)
    spec = root.get("spec")
    if spec is None or not spec.is_mapping:
        report.add("NTL-102", root if spec is None else spec, field="spec", shape="a mapping with source and dispatch")
        spec = Node({}, root.line, root.column)
    else:
        ignore_unknown(report, spec, "spec", SPEC_KEYS)
    source = _required_choice(report, spec, "source", SOURCES)
    mode = _required_choice(report, spec, "mode", MODES if source != "webhook" else ("push",))
    activation, cadence = _read_activation(report, spec, mode)
    if mode == "push":
        _check_ingress(report, spec)
    elif source is not None:
        _check_source(report, spec, source)
    _check_headers(report, spec)
    _check_numbers(report, spec)
    check_spool(report, spec.get("spool"))
    auth = spec.get("auth")
    return Subscription(
        path=metadata.path,
        name=metadata.name,
        api_version=api_version,
        metadata=metadata,
        source=source,
        mode=mode,
        activation=activation,
        cadence=cadence,
        auth=auth.data() if auth is not None else None,
        dispatch=_read_dispatch(report, spec),
        spec=spec.data(),
    )


def _required_choice(report: Report, spec: Node, field: str, allowed: tuple[str, ...]) -> Any:
    node = spec.get(field)
    if node is None and spec.entries:
        report.add("NTL-701", spec, field=field, value="", allowed=allowed)
    return choice(report, node, field, allowed, "NTL-701")


def _read_activation(report: Report, spec: Node, mode: str | None) -> tuple[Any, str | None]:
    activation = choice(report, spec.get("activation"), "activation", ACTIVATIONS, "NTL-701", default="continuous")
    cadence = optional_text(report, spec.get("cadence"), "cadence", shape='cron text such as "*/5 * * * *"')
    if activation == "scheduled" and "cadence" not in spec.entries and mode != "push":
        report.add("NTL-102", spec, field="cadence", shape='cron text such as "*/5 * * * *"')
    return activation, cadence


def _check_source(report: Report, spec: Node, source: str) -> None:
    missing = [field for field in _NEEDS[source] if (node := spec.get(field)) is None or node.value in (None, "")]
    if missing:
        report.add("NTL-702", spec, source=source, fields=tuple(missing))


def _check_ingress(report: Report, spec: Node) -> None:
    ingress = spec.get("ingress")
    if ingress is None or not ingress.is_mapping:
        report.add("NTL-703", spec if ingress is None else ingress)
        return
    ignore_unknown(report, ingress, "ingress", ("gateway_path", "verify"))
    path, verify = ingress.get("gateway_path"), ingress.get("verify")
    if path is None or not isinstance(path.value, str) or not path.value or verify is None or not verify.is_mapping:
        report.add("NTL-703", ingress)
    if verify is None or not verify.is_mapping:
        return
    kind = choice(report, verify.get("type"), "ingress.verify.type", VERIFY_TYPES, "NTL-701")
    secret = verify.get("secret")
    if "type" not in verify.entries or (kind in _SECRETS and (secret is None or secret.value in (None, ""))):
        report.add("NTL-703", verify)


def _read_dispatch(report: Report, spec: Node) -> Dispatch:
    node = spec.get("dispatch")
    playbook = node.get("playbook") if node is not None else None
    if node is None or playbook is None or not isinstance(playbook.value, str) or not playbook.value:
        if spec.entries:
            at = playbook or node or spec
            report.add("NTL-102", at, field="dispatch", shape="a mapping with playbook")
        return Dispatch(playbook="")
    ignore_unknown(report, node, "dispatch",
                   ("playbook", "payload_from", "execution_pool", "batch_dispatch", "batch_max"))  # fmt: skip
    return Dispatch(
        playbook=playbook.value,
        payload_from=choice(
            report, node.get("payload_from"), "dispatch.payload_from", PAYLOADS, "NTL-701", default="message.json"
        ),
        execution_pool=optional_text(report, node.get("execution_pool"), "dispatch.execution_pool"),
        batch_dispatch=truth(report, node.get("batch_dispatch"), "dispatch.batch_dispatch"),
        batch_max=bounded(
            report, node.get("batch_max"), "dispatch.batch_max", COUNT, "NTL-212", default=100, open_=False
        ),
    )


def _check_headers(report: Report, spec: Node) -> None:
    headers = mapping(report, spec.get("headers"), "headers")
    ignore_unknown(report, headers, "headers", ("normalize", "directives", "passthrough", "trace"))
    truth(report, headers.get("normalize"), "headers.normalize")
    for item in entries(report, headers.get("directives"), "headers.directives"):
        header, controls = item.get("header"), item.get("controls")
        if header is None or not isinstance(header.value, str) or not header.value:
            report.add("NTL-102", item if header is None else header, field="header", shape="the name of a header")
        if controls is None:
            report.add("NTL-701", item, field="controls", value="", allowed=CONTROLS)
        what = choice(report, controls, "controls", CONTROLS, "NTL-701")
        needs = _DIRECTIVE_NEEDS.get(what)
        if needs and ((given := item.get(needs)) is None or given.value in (None, "", [], {})):
            name = header.data() if header is not None else ""
            report.add("NTL-704", item, header=name, controls=what, field=needs)
    trace = mapping(report, headers.get("trace"), "headers.trace")
    texts(report, trace.get("baggage_allowlist"), "headers.trace.baggage_allowlist")


def _check_numbers(report: Report, spec: Node) -> None:
    for section, fields in (
        ("runtime", ("batch", "timeout_ms")),
        ("dedup", ("window_secs",)),
        ("limits", ("max_in_flight", "max_dispatch_per_sec")),
    ):
        block = mapping(report, spec.get(section), section)
        for field in fields:
            node = block.get(field)
            if node is None or node.value is None:
                continue
            try:
                COUNT.read(node.data())
            except OutOfBounds:
                report.add("NTL-212", node, field=f"{section}.{field}", value=node.data(), bound=COUNT.text,
                           sample="100")  # fmt: skip
    truth(report, mapping(report, spec.get("dedup"), "dedup").get("enabled"), "dedup.enabled")
