"""A server in the background, as its operator starts it, and callers with tokens or without."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.cli import Home

PATIENCE = 30.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Client:
    """Somebody who talks to a server, with a token or without."""

    url: str
    token: str | None = None

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as response:
                return Answer(response.status, response.read().decode(), dict(response.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(), dict(error.headers))

    def ended(self, execution_id: str) -> Any:
        """The status of an execution, once it has ended."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self("GET", f"/api/executions/{execution_id}/status").document
            if found["status"] in ("COMPLETED", "FAILED", "CANCELLED"):
                return found
            assert time.monotonic() < end, found
            select.select([], [], [], 0.01)


@contextlib.contextmanager
def detached(home: Home, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Client]:
    """A server in the background on a free port; whatever happens, it does not outlive the test."""
    started = home.json("server", "start", "--detach", "--port", "0", *options, env=env)
    try:
        yield Client(started["url"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started["pid"], signal.SIGKILL)
        gone(started["pid"])


def gone(pid: int) -> None:
    """Wait until a process that is not our child is no more, or only waits to be collected."""
    end = time.monotonic() + PATIENCE
    while _alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        select.select([], [], [], 0.01)


def token(home: Home, name: str, *roles: str, tenant: str = "default", expires: str = "1h") -> str:
    """A new token."""
    given = [option for role in roles for option in ("--role", role)]
    made: str = home.json("token", "create", "--name", name, *given, "--tenant", tenant, "--expires", expires)["token"]
    return made


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
