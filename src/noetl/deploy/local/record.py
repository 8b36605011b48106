"""What is known of a stack: what it consists of and the keys to it, and how its processes are just now."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from noetl.deploy.local import postgres
from noetl.deploy.local.place import Place, read_json, write_private
from noetl.deploy.local.ports import LOOPBACK, free_ports, is_free
from noetl.errors import InvalidInput, Unavailable

__all__ = ["Phase", "Plan", "Report", "Stack", "State", "load_stack", "make_stack", "save_stack", "with_ports"]

_FORMAT = 1
_ROLE = "noetl"
_USUAL_PORT = 8082
_SYSTEM_DATA = Path("/var/lib/noetl")

Phase = Literal["starting", "up", "stopping", "down", "failed"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of what may be many."""

    workers: int = 2
    projectors: int = 1
    spark: bool = False
    storage_only: bool = False
    """Whether only Postgres and NATS run, for somebody who restores a backup."""


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """An installation of this machine. It stays the same when it is stopped and started again."""

    home: str
    url: str
    postgres: str
    nats: str
    ports: dict[str, int]
    plan: Plan
    database_root: str
    """Where Postgres keeps its files: in the home, or where the user may reach it that it runs as."""
    database_password: str
    nats_password: str
    directory: str
    """Where its processes work, and the settings of which directory they have."""
    token: str | None = None
    worker_token: str | None = None
    context: str | None = None
    former_context: str | None = None
    """Which context was the current one before."""
    format: int = _FORMAT


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    name: str
    state: Literal["waiting", "starting", "well", "unwell", "restarting", "stopped"]
    pid: int | None = None
    restarts: int = 0
    detail: str | None = None
    """Why it is not well, in a line."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, as the supervisor has seen them last."""

    phase: Phase
    parts: list[State] = []
    message: str | None = None
    hint: str | None = None
    seconds: float | None = None
    """How long the start took."""
    plan: Plan | None = None
    """What was asked for, once all of it was started."""


def load_stack(place: Place) -> Stack | None:
    """The stack of a home, or None if there is none. Raises InvalidInput for one that cannot be understood."""
    if not place.record.exists():
        return None
    found = read_json(place.record, Stack)
    if found is None or found.format != _FORMAT:
        raise InvalidInput(
            f"{place.record} does not describe a stack of this release", hint="restore it, or choose another --home"
        )
    return found


def save_stack(place: Place, stack: Stack) -> None:
    """Write it down, and what shells and contexts read of it."""
    write_private(place.record, msgspec.json.format(msgspec.json.encode(stack), indent=2) + b"\n")


def make_stack(place: Place, plan: Plan, *, port: int | None, directory: Path) -> Stack:
    """A new one: ports and passwords are chosen, nothing is started. Raises Unavailable if the port is taken."""
    if port is not None and not is_free(port):
        raise taken(port)
    database, nats, monitor = free_ports(3, but=(_USUAL_PORT,))
    chosen = port or (_USUAL_PORT if is_free(_USUAL_PORT) else free_ports(1, but=(database, nats, monitor))[0])
    password, nats_password = secrets.token_hex(24), secrets.token_hex(24)
    return Stack(
        home=str(place.home),
        url=f"http://{LOOPBACK}:{chosen}",
        postgres=f"host={LOOPBACK} port={database} dbname={_ROLE} user={_ROLE} password={password}",
        nats=f"nats://{_ROLE}:{nats_password}@{LOOPBACK}:{nats}",
        ports={"server": chosen, "postgres": database, "nats": nats, "nats-monitor": monitor},
        plan=plan,
        database_root=str(_database_root(place)),
        database_password=password,
        nats_password=nats_password,
        directory=str(directory),
    )


def with_ports(stack: Stack, names: Iterable[str]) -> Stack:
    """The same with a port for each of these; who has one keeps it."""
    missing = [name for name in names if name not in stack.ports]
    found = free_ports(len(missing), but=stack.ports.values())
    return msgspec.structs.replace(stack, ports={**stack.ports, **dict(zip(missing, found, strict=True))})


def taken(port: int) -> Unavailable:
    """Somebody else listens there."""
    return Unavailable(f"port {port} is used by another program", hint="choose another with --port")


def _database_root(place: Place) -> Path:
    """Root's own directories are closed to the user that Postgres runs as there, so its files are outside of them."""
    user = postgres.account()
    root = _SYSTEM_DATA / f"stack-{secrets.token_hex(6)}" if user else place.home / "postgres"
    try:
        root.parent.mkdir(mode=0o755 if user else 0o700, parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=not user)
        if user:
            os.chown(root, user["user"], user["group"])
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)
        raise Unavailable(f"cannot create {root}: {error.strerror}", hint="check its permissions") from None
    return root
