"""An installation as Kubernetes manifests. Postgres and NATS are there already; how they are reached is in a Secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl import __version__
from noetl.deploy import roles
from noetl.deploy.pods import CONFIG, SECRET, Pod, labels, pod_spec, selector
from noetl.deploy.roles import Role
from noetl.deploy.shape import (
    KEYS,
    METRICS_PORT,
    PROBED,
    SERVER_PORT,
    WORKER_TOKEN,
    Shape,
    as_yaml,
    settings_of_all,
)

__all__ = ["SECRETS", "kubernetes_files", "secret_document"]

Json = dict[str, Any]

SECRETS = ("NOETL_LEDGER__URL", "NOETL_NATS__URL", *KEYS, WORKER_TOKEN)
STORES = {"payloads.url": "s3://noetl/payloads", "archive.url": "s3://noetl/archive"}
"""Where payloads and archives are kept, unless settings say otherwise: there is no disk that all pods have."""
_SERVER = "noetl-server"
_GRACE = 15


def kubernetes_files(shape: Shape) -> dict[str, str]:
    """The manifests by the name of their file, and `kustomization.yaml` that lists them."""
    shape = msgspec.structs.replace(shape, settings={**STORES, **shape.settings})
    grace = round(roles.settings_in(settings_of_all(shape)).server.drain) + _GRACE
    found = {
        "settings.yaml": as_yaml(_settings(shape), about="Settings of every process."),
        "migrate.yaml": as_yaml(
            _migrate(shape), about="Brings the tables up to this release, before anything uses them."
        ),
        "server.yaml": as_yaml(*_server(shape, grace), about="The server, and how it is reached."),
        "outbox.yaml": as_yaml(*_outbox(shape), about="The publisher of events and commands."),
        "projector.yaml": as_yaml(*_projector(shape), about="Projectors: the number of a pod is its share."),
        "worker.yaml": as_yaml(
            *_workers(shape, roles.WORKER, shape.workers, grace), about="Workers, without a database."
        ),
        "network.yaml": as_yaml(*_network(), about="Who may talk to whom."),
    }
    if shape.spark:
        about = "Workers for pool spark, each with a Spark driver."
        found["spark.yaml"] = as_yaml(*_workers(shape, roles.SPARK, shape.spark, grace), about=about)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(found),
    }  # fmt: skip
    about = "`noetl deploy secrets --kubernetes | kubectl apply -f -`, then `kubectl apply -k .`"
    return {**found, "kustomization.yaml": as_yaml(kustomization, about=about)}


def secret_document(values: Mapping[str, str]) -> Json:
    """The Secret that the manifests refer to."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "labels": labels()},
        "type": "Opaque",
        "stringData": dict(values),
    }


# --- The workloads ----------------------------------------------------------------------------------------


def _settings(shape: Shape) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "labels": labels()},
        "data": settings_of_all(shape),
    }


def _migrate(shape: Shape) -> Json:
    name = f"noetl-migrate-{__version__.replace('.', '-')}"  # what a Job does cannot be changed, so each has its own
    pod = Pod(
        role="migrate",
        image=shape.image,
        arguments=roles.MIGRATE.arguments,
        secrets=["NOETL_LEDGER__URL"],
        requests={"cpu": "100m", "memory": "256Mi"},
        limits={"memory": "512Mi"},
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels("migrate")},
        "spec": {
            "backoffLimit": 20,
            "ttlSecondsAfterFinished": 86400,
            "template": {
                "metadata": {"labels": labels("migrate")},
                "spec": {**pod_spec(pod), "restartPolicy": "OnFailure"},
            },
        },
    }


def _server(shape: Shape, grace: int) -> Sequence[Json]:
    adopt = ("adopt-token", roles.adopting(WORKER_TOKEN), ["NOETL_LEDGER__URL", *KEYS, WORKER_TOKEN])
    pod = Pod(
        role="server",
        image=shape.image,
        arguments=roles.SERVER.arguments,
        secrets=["NOETL_LEDGER__URL", "NOETL_NATS__URL", *KEYS],
        port=("http", SERVER_PORT),
        probes=roles.SERVER,
        grace=grace,
        before=[("await-tables", ("db", "status"), ["NOETL_LEDGER__URL"]), adopt],
        requests={"cpu": "500m", "memory": "512Mi"},
        limits={"memory": "2Gi"},
    )
    return [_deployment("server", shape.servers, pod), _service("server", [("http", SERVER_PORT)]), _budget("server")]


def _outbox(shape: Shape) -> Sequence[Json]:
    return [_deployment("outbox", 2, _beside(shape, roles.OUTBOX, roles.OUTBOX.arguments)), _budget("outbox")]


def _projector(shape: Shape) -> Sequence[Json]:
    pod = _beside(shape, roles.PROJECTOR, roles.projecting(f"host/{shape.projectors}"))
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "noetl-projector", "labels": labels("projector")},
        "spec": {
            "serviceName": "noetl-projector",
            "replicas": shape.projectors,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": selector("projector")},
            "template": {"metadata": {"labels": labels("projector")}, "spec": pod_spec(pod)},
        },
    }
    service = _service("projector", [("metrics", METRICS_PORT)])
    service["spec"]["clusterIP"] = "None"
    return [stateful, service, _budget("projector")]


def _workers(shape: Shape, role: Role, count: int, grace: int) -> Sequence[Json]:
    large = role is roles.SPARK
    pod = Pod(
        role=role.name,
        image=shape.spark_image if large else shape.image,
        arguments=[*role.arguments, *PROBED],
        environment={"NOETL_SERVER_URL": f"http://{_SERVER}:{SERVER_PORT}"},
        secrets=["NOETL_NATS__URL"],
        renamed={"NOETL_TOKEN": WORKER_TOKEN},
        port=("metrics", METRICS_PORT),
        probes=role,
        grace=grace,
        shared_memory="1Gi",
        requests={"cpu": "1", "memory": "3Gi"} if large else {"cpu": "500m", "memory": "512Mi"},
        limits={"memory": "8Gi" if large else "4Gi"},
    )
    return [_deployment(role.name, count, pod), _budget(role.name)]


def _beside(shape: Shape, role: Role, arguments: Sequence[str]) -> Pod:
    return Pod(
        role=role.name,
        image=shape.image,
        arguments=[*arguments, *PROBED],
        secrets=["NOETL_LEDGER__URL", "NOETL_NATS__URL"],
        port=("metrics", METRICS_PORT),
        probes=role,
        grace=_GRACE + _GRACE,
        before=[("await-tables", ("db", "status"), ["NOETL_LEDGER__URL"])],
        requests={"cpu": "250m", "memory": "256Mi"},
        limits={"memory": "1Gi"},
    )


def _deployment(role: str, replicas: int, pod: Pod, strategy: Json | None = None) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"noetl-{role}", "labels": labels(role)},
        "spec": {
            "replicas": replicas,
            "strategy": strategy or {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "selector": {"matchLabels": selector(role)},
            "template": {"metadata": {"labels": labels(role)}, "spec": pod_spec(pod)},
        },
    }


def _service(role: str, ports: Sequence[tuple[str, int]]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"noetl-{role}", "labels": labels(role)},
        "spec": {
            "selector": selector(role),
            "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports],
        },
    }


def _budget(role: str) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"noetl-{role}", "labels": labels(role)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(role)}},
    }


# --- Who may talk to whom ---------------------------------------------------------------------------------


def _network() -> Sequence[Json]:
    """Nobody is let in but by name; those with keys reach the database, NATS and the bucket only."""
    callers = [{"podSelector": {"matchLabels": selector(role)}} for role in ("worker", "spark")]
    clients = {"namespaceSelector": {"matchLabels": {"noetl.io/client": "true"}}}
    watchers = {"namespaceSelector": {"matchLabels": {"noetl.io/monitoring": "true"}}}
    storage = [{"port": port, "protocol": "TCP"} for port in (5432, 4222, 443)]
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    probed = ("outbox", "projector", "worker", "spark")
    in_roles = {"matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": list(probed)}]}
    keyed = ["server", "outbox", "projector", "migrate"]
    with_keys = {"matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": keyed}]}
    return [
        _policy("noetl-closed", {"matchLabels": selector()}, ["Ingress"], {}),
        _policy("noetl-server", {"matchLabels": selector("server")}, ["Ingress"], {
            "ingress": [{"from": [*callers, clients, watchers], "ports": [{"port": SERVER_PORT, "protocol": "TCP"}]}],
        }),
        _policy("noetl-metrics", in_roles, ["Ingress"], {
            "ingress": [{"from": [watchers], "ports": [{"port": METRICS_PORT, "protocol": "TCP"}]}],
        }),
        _policy("noetl-storage", with_keys, ["Egress"], {"egress": [{"ports": storage}, {"ports": names}]}),
    ]  # fmt: skip


def _policy(name: str, pods: Json, types: Sequence[str], rules: Json) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels()},
        "spec": {"podSelector": pods, "policyTypes": list(types), **rules},
    }
