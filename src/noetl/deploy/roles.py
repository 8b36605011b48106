"""The processes of an installation, wherever it runs: what each is called with, and what it has to be told.

`noetl up`, the Compose file and the Kubernetes manifests are made from this, so that what is tried on one machine is
what runs on many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from noetl.errors import InvalidSetting
from noetl.settings import ENVIRONMENT_PREFIX, Settings, load

__all__ = [
    "MIGRATE", "OUTBOX", "PROJECTOR", "SERVER", "SPARK", "WORKER", "Role", "adopting", "projecting", "settings_in",
    "variable", "variables",
]  # fmt: skip


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process."""

    name: str
    arguments: Sequence[str]
    needs_database: bool = False
    needs_server: bool = False
    drains: bool = False
    """Whether it finishes what it has begun, for as long as `server.drain` says."""
    probe: str = "/health"
    """Where it says that it can do its work."""
    alive: str = "/live"
    """Where it says that it lives, whatever it waits for."""


SERVER = Role(
    name="server",
    arguments=("server", "start", "--workers", "0", "--auth", "token"),
    needs_database=True,
    drains=True,
    probe="/api/health/ready",
    alive="/api/health",
)
OUTBOX = Role(name="outbox", arguments=("outbox", "--commands"), needs_database=True)
PROJECTOR = Role(name="projector", arguments=("projector", "run"), needs_database=True)
WORKER = Role(name="worker", arguments=("worker",), needs_server=True, drains=True)
SPARK = Role(name="spark", arguments=("worker", "--pool", "spark"), needs_server=True, drains=True)
MIGRATE = Role(name="migrate", arguments=("db", "migrate"), needs_database=True)


def projecting(share: str) -> Sequence[str]:
    """What a projector of a share is called with: `0/4`, or `host/4` where the machine's name ends with its number."""
    return (*PROJECTOR.arguments, "--shard", share)


def adopting(variable: str) -> Sequence[str]:
    """How the token that workers will show is made known, before there is a server to ask."""
    return ("token", "adopt", "--name", "workers", "--role", "worker", "--token-env", variable)


def variable(name: str) -> str:
    """The variable of a setting such as `nats.url`."""
    section, _, key = name.partition(".")
    return f"{ENVIRONMENT_PREFIX}{section.upper()}__{key.upper()}"


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """Settings as variables. Raises InvalidSetting for one that there is not, or that cannot have that value."""
    found = {variable(name): value for name, value in values.items()}
    settings_in(found)
    return found


def settings_in(environment: Mapping[str, str]) -> Settings:
    """What a process with these variables would go by. Raises InvalidSetting."""
    try:
        return load(environ=environment, cwd=Path("/"))
    except InvalidSetting as error:
        raise InvalidSetting(f"this could not be deployed: {error.message}", hint=error.hint) from None
