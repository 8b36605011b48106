"""A NATS with JetStream from the binary of a package, for one installation of this machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from noetl.deploy.local.ports import LOOPBACK
from noetl.deploy.local.postgres import INSTALL
from noetl.errors import Unavailable

__all__ = ["configuration", "find_nats", "nats_command"]

_SERVER = "nats-server"


def find_nats() -> Path:
    """The server's program, from its package or installed. Raises Unavailable where there is none."""
    beside = Path(sys.executable).with_name(_SERVER)
    found = str(beside) if beside.exists() else shutil.which(_SERVER)
    if found is None:
        raise Unavailable("the server of NATS is not installed", hint=INSTALL)
    return Path(found)


def configuration(store: Path | str, *, port: int, monitor: int, user: str, password: str, host: str = LOOPBACK) -> str:
    """The text of its file: for one user, and each message on disk before it is acknowledged.

    `sync_interval` is two minutes by default: what was acknowledged meanwhile is lost when the machine fails.
    """
    return (
        f'listen: "{host}:{port}"\n'
        f'http: "{LOOPBACK}:{monitor}"\n'
        f"authorization {{ user: {json.dumps(user)}, password: {json.dumps(password)} }}\n"
        f"jetstream {{ store_dir: {json.dumps(str(store))}, sync_interval: always }}\n"
    )


def nats_command(program: Path, file: Path) -> Sequence[str]:
    """How to run it in the foreground."""
    return [str(program), "-c", str(file)]
