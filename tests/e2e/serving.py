"""A `noetl server` of its own, as users run it, and somebody who asks it over HTTP."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.cli import Home

__all__ = ["Server", "serving"]

ENDED = ("COMPLETED", "FAILED", "CANCELLED")


class Server:
    """A running server process and a client of it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, client: httpx.Client) -> None:
        self.process = process
        self.url = url
        self.client = client

    def get(self, path: str, **params: Any) -> Any:
        response = self.client.get(f"/api{path}", params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, content: Any = None) -> Any:
        response = self.client.post(f"/api{path}", json={} if content is None else content)
        assert response.status_code == 200, response.text
        return response.json()

    def register(self, text: str) -> Any:
        return self.post("/catalog/register", {"content": text})

    def start(self, path: str, **payload: Any) -> str:
        return str(self.post("/execute", {"path": path, "payload": payload})["execution_id"])

    def follow(self, execution_id: str, last: int = 0) -> Iterator[dict[str, Any]]:
        """Events as they are streamed, up to the terminal one."""
        headers = {"Last-Event-ID": str(last)} if last else {}
        path = f"/api/executions/{execution_id}/stream"
        with self.client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def ended(self, execution_id: str) -> str:
        """The last event of an execution, once it has ended."""
        return str(list(self.follow(execution_id))[-1]["event_type"])

    def stop(self) -> int:
        """Ask it to end, and wait until it has."""
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def serving(home: Home, *options: str, cwd: Path | None = None) -> Iterator[Server]:
    """A server on any free port; whatever happens, it does not outlive the test."""
    process = home.start("server", "start", "--port", "0", "--json", *options, cwd=cwd or home.path.parent)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read().decode()
        url = json.loads(line)["url"]
        with httpx.Client(base_url=url, timeout=30) as client:
            yield Server(process, url, client)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
