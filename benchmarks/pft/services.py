"""What a run needs beside the contestants: the API as a process of its own, and a Postgres that keeps what it says."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.services import postgres_server

__all__ = ["Service", "api", "postgres"]

# As a small server in use is set up: durable, with enough room that checkpoints do not interrupt a run.
_SETTINGS = {"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB", "timezone": "UTC"}


class Service:
    """The API, as somebody who watches it sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def reset(self, limit: int) -> None:
        """Set its counters to zero and its limit to this."""
        self._ask("POST", f"/reset?limit={limit}")

    def stats(self) -> dict[str, Any]:
        """What it has counted since."""
        return self._ask("GET", "/stats")

    def _ask(self, method: str, target: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{target}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return msgspec.json.decode(answer.read(), type=dict[str, Any])


@contextmanager
def api() -> Iterator[Service]:
    """The API on a free port of this machine."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.pft.server"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@contextmanager
def postgres() -> Iterator[postgres_server.Database]:
    """A database in a server of its own, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="noetl-pft-") as folder:
        Path(folder).chmod(0o755)  # the server may run as another user, who has to get in
        root = Path(folder) / "postgres"
        port = postgres_server.start(root, _SETTINGS)
        try:
            yield postgres_server.Server(root, port).database("postgres")
        finally:
            postgres_server.stop(root)
