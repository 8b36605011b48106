"""A pod of an installation: not as root, on a root file system that cannot be written, with probes of real routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl.deploy.roles import Role
from noetl.deploy.shape import HOME, USER

__all__ = ["CONFIG", "SECRET", "STORE", "Pod", "labels", "pod_spec", "selector"]

Json = dict[str, Any]

CONFIG, SECRET = "noetl-settings", "noetl-secrets"
STORE = "noetl-store"
"""A Secret with what opens the bucket, such as AWS_ACCESS_KEY_ID; there is none where pods may enter by themselves."""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of pod is told."""

    role: str
    image: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = {}
    secrets: Sequence[str] = ()
    """The variables that it has from the Secret, which has more than it may know."""
    renamed: Mapping[str, str] = {}
    """Variables whose value stands in the Secret under another name."""
    port: tuple[str, int] | None = None
    probes: Role | None = None
    grace: int | None = None
    shared_memory: str | None = None
    before: Sequence[tuple[str, Sequence[str], Sequence[str]]] = ()
    """What has to have succeeded before it starts: a name, arguments, and secrets."""
    requests: Mapping[str, str]
    limits: Mapping[str, str]


def labels(role: str | None = None) -> dict[str, str]:
    """What its objects are found by."""
    return {**selector(role), "app.kubernetes.io/part-of": "noetl"}


def selector(role: str | None = None) -> dict[str, str]:
    """The part of it that stays the same for ever."""
    return {"app.kubernetes.io/name": "noetl", **({"app.kubernetes.io/component": role} if role else {})}


def pod_spec(pod: Pod) -> Json:
    """The pod as Kubernetes takes it."""
    main: Json = _container(pod.role, pod, pod.arguments, pod.secrets)
    if pod.port is not None:
        main["ports"] = [{"name": pod.port[0], "containerPort": pod.port[1]}]
    if pod.probes is not None and pod.port is not None:
        main |= _probes(pod.probes, pod.port[0])
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # its variables would look like settings
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if pod.grace is not None:
        spec["terminationGracePeriodSeconds"] = pod.grace
    if pod.before:
        spec["initContainers"] = [_container(name, pod, arguments, names) for name, arguments, names in pod.before]
    return {**spec, "containers": [main], "volumes": _volumes(pod)}


def _container(name: str, pod: Pod, arguments: Sequence[str], secrets: Sequence[str]) -> Json:
    renamed = pod.renamed.items() if name == pod.role else ()
    given = [{"name": key, "value": value} for key, value in pod.environment.items()]
    given += [_secret(key, key) for key in secrets] + [_secret(key, kept) for key, kept in renamed]
    mounts = [{"name": "home", "mountPath": HOME}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - of the container
    if pod.shared_memory is not None:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    return {
        "name": name,
        "image": pod.image,
        "args": list(arguments),
        "envFrom": [{"configMapRef": {"name": CONFIG}}, {"secretRef": {"name": STORE, "optional": True}}],
        "env": given,
        "resources": {"requests": dict(pod.requests), "limits": dict(pod.limits)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _secret(name: str, key: str) -> Json:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}}


def _probes(role: Role, port: str) -> Json:
    def ask(path: str, **how: int) -> Json:
        return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 5, **how}

    return {
        "startupProbe": ask(role.alive, periodSeconds=2, failureThreshold=60),
        "readinessProbe": ask(role.probe, periodSeconds=5, failureThreshold=3),
        "livenessProbe": ask(role.alive, periodSeconds=10, failureThreshold=6),
    }


def _volumes(pod: Pod) -> list[Json]:
    found: list[Json] = [{"name": "home", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    if pod.shared_memory is not None:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pod.shared_memory}})
    return found
