"""The processes of a stack: how each is started, how one sees that it is well, and in which order they end."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from noetl.deploy import roles
from noetl.deploy.local import nats, postgres
from noetl.deploy.local.place import Place, write_private
from noetl.deploy.local.ports import LOOPBACK
from noetl.deploy.local.record import Plan, Stack
from noetl.settings import DATABASE_VARIABLE, Settings

__all__ = [
    "KINDS", "Kind", "Part", "kind_of", "names_of", "noetl_parts", "patience_of", "probed_names",
    "storage_parts",
]  # fmt: skip

_AFTER_DRAIN = 15.0
_CONNECTIONS = 20
"""Of each process that has a database, and for those who look beside them."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of one kind have in common."""

    ends: int
    """When they are stopped: those with 0 first, together."""
    signal: int = signal.SIGTERM
    drains: bool = False
    """Whether they finish what they have begun, for as long as `server.drain` says."""


KINDS: Mapping[str, Kind] = {
    "worker": Kind(ends=0, drains=True),
    "spark": Kind(ends=0, drains=True),
    "server": Kind(ends=1, drains=True),
    "outbox": Kind(ends=2),
    "projector": Kind(ends=2),
    "nats": Kind(ends=3),
    "postgres": Kind(ends=3, signal=signal.SIGINT),  # its "fast" stop: it does not wait for those who are connected
}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a stack."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    health: str
    """Where it says that it is well: an address, or the port at which Postgres listens."""
    announces: str | None = None
    """The file in which it says that it listens, and as which process: at its address somebody else may answer."""
    after_server: bool = False
    as_nobody: bool = False

    @property
    def digest(self) -> str:
        """Tells it from one that would be started in another way; most of an environment means nothing to it."""
        ours = {name: value for name, value in self.environment.items() if name.startswith("NOETL_")}
        return hashlib.sha256(msgspec.json.encode((self.command, self.directory, ours), order="sorted")).hexdigest()


def kind_of(name: str) -> Kind:
    """What kind of process has this name: `worker-3` is a worker."""
    return KINDS[name.rpartition("-")[0] or name]


def names_of(plan: Plan) -> list[str]:
    """The processes of a plan, in the order in which they are started."""
    return ["postgres", "nats", *([] if plan.storage_only else ["server", *probed_names(plan)])]


def probed_names(plan: Plan) -> list[str]:
    """Those that have a port for nothing but saying how they are."""
    if plan.storage_only:
        return []
    names = ["outbox", *(f"projector-{index}" for index in range(plan.projectors))]
    names += [f"worker-{index}" for index in range(plan.workers)]
    return [*names, "spark"] if plan.spark else names


# --- What keeps things ------------------------------------------------------------------------------------


def storage_parts(place: Place, stack: Stack) -> list[Part]:
    """Postgres and NATS, with their files made ready."""
    return [_postgres(stack), _nats(place, stack)]


def _postgres(stack: Stack) -> Part:
    root = Path(stack.database_root)
    programs = postgres.find_programs().copied_to(root)
    data = postgres.initialise(programs, root, "noetl", stack.database_password)
    processes = 2 + stack.plan.projectors
    settings = {"max_connections": str(_CONNECTIONS * (processes + 1)), "timezone": "UTC", "log_timezone": "UTC"}
    port = stack.ports["postgres"]
    return Part(
        name="postgres",
        command=postgres.server_command(programs, data, port, settings),
        environment=_inherited(),
        directory=str(root),
        health=str(port),
        as_nobody=True,
    )


def _nats(place: Place, stack: Stack) -> Part:
    file, monitor = place.nats / "nats.conf", stack.ports["nats-monitor"]
    text = nats.configuration(
        place.nats / "jetstream", port=stack.ports["nats"], monitor=monitor, user="noetl", password=stack.nats_password
    )
    write_private(file, text)
    return Part(
        name="nats",
        command=nats.nats_command(nats.find_nats(), file),
        environment=_inherited(),
        directory=str(place.nats),
        health=f"http://{LOOPBACK}:{monitor}/healthz",
    )


# --- What is ours -----------------------------------------------------------------------------------------


def noetl_parts(stack: Stack, settings: Settings) -> list[Part]:
    """The processes of NoETL itself. The stack has its tokens by now."""
    if stack.plan.storage_only:
        return []
    ports = stack.ports
    with_database = _environment(stack, {"NOETL_LEDGER__URL": stack.postgres})
    working = _environment(stack, {"NOETL_SERVER_URL": stack.url, "NOETL_TOKEN": str(stack.worker_token)})

    def part(name: str, *arguments: str, environment: Mapping[str, str], after_server: bool = False) -> Part:
        probe = ["--metrics-port", str(ports[name])] if name != "server" else []
        return Part(
            name=name,
            command=[sys.executable, "-m", "noetl", *arguments, *probe, "--home", stack.home],
            environment=environment,
            directory=stack.directory,
            health=f"http://{LOOPBACK}:{ports[name]}{roles.WORKER.probe if probe else roles.SERVER.probe}",
            announces=None if probe else str(Path(stack.home) / "server.json"),
            after_server=after_server,
        )

    listening = ("--background", "--host", LOOPBACK, "--port", str(ports["server"]))
    found = [part("server", *roles.SERVER.arguments, *listening, environment=with_database)]
    found.append(part("outbox", *roles.OUTBOX.arguments, environment=with_database))
    for index in range(stack.plan.projectors):
        share = f"{index}/{stack.plan.projectors}"
        found.append(part(f"projector-{index}", *roles.projecting(share), environment=with_database))
    workers = [f"worker-{index}" for index in range(stack.plan.workers)]
    found += [part(name, *roles.WORKER.arguments, environment=working, after_server=True) for name in workers]
    if stack.plan.spark:
        found.append(part("spark", *roles.SPARK.arguments, environment=working, after_server=True))
    return found


def _environment(stack: Stack, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of the caller's environment hold, but for those that make this stack what it is."""
    return {**_inherited(), "NOETL_HOME": stack.home, "NOETL_NATS__URL": stack.nats, **own}


def _inherited() -> dict[str, str]:
    """Without what names another database, server or queue, and without what lets somebody in elsewhere."""
    names = (
        DATABASE_VARIABLE, "NOETL_LEDGER__URL", "NOETL_NATS__URL", "NOETL_NATS__CREDENTIALS", "NOETL_SERVER_URL",
        "NOETL_TOKEN", "NOETL_CONTEXT", "NOETL_SERVER__HOST", "NOETL_SERVER__PORT", "NOETL_SERVER__WORKERS",
        "NOETL_SERVER__AUTH", "NOETL_PROJECTOR__SHARD",
    )  # fmt: skip
    return {name: value for name, value in os.environ.items() if name not in names}


def patience_of(name: str, settings: Settings) -> float:
    """How long a process may take to end."""
    return (settings.server.drain if kind_of(name).drains else 0.0) + _AFTER_DRAIN
