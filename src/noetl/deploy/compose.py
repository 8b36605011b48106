"""An installation as a Compose file: for one machine with a container engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noetl.deploy import roles
from noetl.deploy.local.nats import configuration
from noetl.deploy.roles import Role
from noetl.deploy.shape import (
    HOME,
    KEYS,
    METRICS_PORT,
    PROBED,
    SERVER_PORT,
    WORKER_TOKEN,
    Shape,
    as_yaml,
    settings_of_all,
)
from noetl.settings import format_duration

__all__ = ["SECRETS", "compose_file"]

Json = dict[str, Any]

SECRETS = ("NOETL_POSTGRES_PASSWORD", "NOETL_NATS_PASSWORD", *KEYS, WORKER_TOKEN)
"""What `.env` beside the file has to hold."""
_POSTGRES, _NATS = "postgres:18", "nats:2.12-alpine"
_NATS_PORT, _MONITOR_PORT = 4222, 8222
_STORE = "noetl"
"""A directory is a store for those on its machine only, which is known by its name."""
_GRACE = 15


def compose_file(shape: Shape) -> str:
    """The text of `compose.yaml`."""
    everybody = settings_of_all(shape)
    grace = roles.settings_in(everybody).server.drain + _GRACE
    services: Json = {"postgres": _postgres(), "nats": _nats()}
    services["migrate"] = _once(shape, everybody, roles.MIGRATE.arguments, {"postgres": "service_healthy"})
    services["tokens"] = _once(
        shape, everybody, roles.adopting(WORKER_TOKEN), {"migrate": "service_completed_successfully"}
    )
    services["tokens"]["environment"] |= _required(*KEYS, WORKER_TOKEN)
    services["tokens"]["volumes"] = [f"home:{HOME}"]
    services["server"] = _server(shape, everybody, grace)
    services["outbox"] = _beside(shape, roles.OUTBOX, roles.OUTBOX.arguments, everybody)
    for index in range(shape.projectors):
        share = roles.projecting(f"{index}/{shape.projectors}")
        services[f"projector-{index}"] = _beside(shape, roles.PROJECTOR, share, everybody)
    services["worker"] = _worker(shape, roles.WORKER, everybody, grace, shape.workers)
    if shape.spark:
        services["spark"] = _worker(shape, roles.SPARK, everybody, grace, shape.spark)
    document = {
        "name": "noetl",
        "services": services,
        "configs": {"nats": {"content": _nats_configuration()}},
        "volumes": {"postgres": {}, "nats": {}, "home": {}},
    }
    about = "NoETL on one machine: `noetl deploy secrets > .env`, then `docker compose up --build`."
    return as_yaml(document, about=about)


# --- What keeps things ------------------------------------------------------------------------------------


def _postgres() -> Json:
    return {
        "image": _POSTGRES,
        "restart": "unless-stopped",
        "environment": {"POSTGRES_USER": "noetl", "POSTGRES_DB": "noetl", "POSTGRES_PASSWORD": _given(SECRETS[0])},
        "volumes": ["postgres:/var/lib/postgresql"],
        "healthcheck": _check("CMD-SHELL", "pg_isready --username noetl --dbname noetl --host 127.0.0.1"),
    }


def _nats() -> Json:
    return {
        "image": _NATS,
        "restart": "unless-stopped",
        "command": ["-c", "/etc/nats/nats.conf"],
        "configs": [{"source": "nats", "target": "/etc/nats/nats.conf"}],
        "volumes": ["nats:/data"],
        "healthcheck": _check("CMD", "wget", "-q", "-O", "-", f"http://127.0.0.1:{_MONITOR_PORT}/healthz"),
    }


def _nats_configuration() -> str:
    """That of `noetl up`, but that others may come in: the network is that of these containers."""
    return configuration(
        "/data",
        port=_NATS_PORT,
        monitor=_MONITOR_PORT,
        user="noetl",
        password=_given(SECRETS[1]),
        host="0.0.0.0",  # noqa: S104
    )


# --- What is ours -----------------------------------------------------------------------------------------


def _noetl(shape: Shape, arguments: Sequence[str], environment: Mapping[str, str], *, target: str = "noetl") -> Json:
    return {
        "image": shape.image if target == "noetl" else shape.spark_image,
        "build": {"context": "..", "dockerfile": "deploy/Dockerfile", "target": target},
        "command": list(arguments),
        "environment": dict(environment),
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108 - of the container
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }


def _with_database(everybody: Mapping[str, str]) -> dict[str, str]:
    return {
        **everybody,
        **roles.variables({"ledger.url": f"host=postgres dbname=noetl user=noetl password={_given(SECRETS[0])}"}),
        **_queue(),
    }


def _queue() -> dict[str, str]:
    return roles.variables({"nats.url": f"nats://noetl:{_given(SECRETS[1])}@nats:{_NATS_PORT}"})


def _once(shape: Shape, everybody: Mapping[str, str], arguments: Sequence[str], after: Mapping[str, str]) -> Json:
    service = _noetl(shape, arguments, _with_database(everybody))
    return {**service, "restart": "on-failure", "depends_on": _after(after), "volumes": [HOME]}


def _server(shape: Shape, everybody: Mapping[str, str], grace: float) -> Json:
    service = _noetl(shape, roles.SERVER.arguments, {**_with_database(everybody), **_required(*KEYS)})
    return {
        **service,
        "restart": "unless-stopped",
        "depends_on": _after({"tokens": "service_completed_successfully", "nats": "service_healthy"}),
        "hostname": _STORE,
        "volumes": [f"home:{HOME}"],
        "ports": [f"127.0.0.1:{SERVER_PORT}:{SERVER_PORT}"],
        "stop_grace_period": format_duration(grace),
        "healthcheck": _asks(SERVER_PORT, roles.SERVER.probe),
    }


def _beside(shape: Shape, role: Role, arguments: Sequence[str], everybody: Mapping[str, str]) -> Json:
    service = _noetl(shape, [*arguments, *PROBED], _with_database(everybody))
    return {
        **service,
        "restart": "unless-stopped",
        "depends_on": _after({"migrate": "service_completed_successfully", "nats": "service_healthy"}),
        "volumes": [HOME],
        "healthcheck": _asks(METRICS_PORT, role.probe),
    }


def _worker(shape: Shape, role: Role, everybody: Mapping[str, str], grace: float, count: int) -> Json:
    environment = {
        **everybody,
        **_queue(),
        "NOETL_SERVER_URL": f"http://server:{SERVER_PORT}",
        "NOETL_TOKEN": _given(WORKER_TOKEN),
    }
    target = "spark" if role is roles.SPARK else "noetl"
    service = _noetl(shape, [*role.arguments, *PROBED], environment, target=target)
    return {
        **service,
        "restart": "unless-stopped",
        "depends_on": _after({"server": "service_healthy"}),
        # Spark reads and writes payloads itself, where the server keeps them.
        **({"hostname": _STORE, "volumes": [f"home:{HOME}"]} if role is roles.SPARK else {"volumes": [HOME]}),
        "shm_size": "1gb",
        "stop_grace_period": format_duration(grace),
        "deploy": {"replicas": count},
        "healthcheck": _asks(METRICS_PORT, role.probe),
    }


# --- Small things -----------------------------------------------------------------------------------------


def _given(name: str) -> str:
    return f"${{{name}:?run noetl deploy secrets}}"


def _required(*names: str) -> dict[str, str]:
    return {name: _given(name) for name in names}


def _after(services: Mapping[str, str]) -> Json:
    return {name: {"condition": condition} for name, condition in services.items()}


def _asks(port: int, path: str) -> Json:
    return _check("CMD", "python", "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{path}')")


def _check(*test: str) -> Json:
    return {"test": list(test), "interval": "5s", "timeout": "5s", "retries": 12, "start_period": "30s"}
