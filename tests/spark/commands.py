"""The `noetl` command with a Spark of its own, for tests that kill it or need another master."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.services.quick_java import QUICK

__all__ = ["Commands"]


class Commands:
    """A home, and calls that use it."""

    def __init__(self, place: Path, master: str, *, eager: bool = False) -> None:
        """With `eager` stages go to Spark that leave it to us, however small they are: reduces, for one."""
        self.place = place
        self._program = ["-c", _EAGER] if eager else ["-m", "noetl"]
        self._started: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "NOETL_SPARK__MASTER": master, "NOETL_SPARK__CONF": _CONF}

    def __enter__(self) -> Commands:
        """Leave no call running behind the block."""
        return self

    def __exit__(self, *_: object) -> None:
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.communicate()

    def write(self, name: str, *steps: dict[str, Any]) -> str:
        """A playbook."""
        head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": name}}
        file = self.place / f"{name}.yaml"
        file.write_text(json.dumps({**head, "workflow": list(steps)}))
        return str(file)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A call that runs; the caller waits for it."""
        command = [sys.executable, *self._program, *arguments, "--home", str(self.place / "home"), "--json"]
        started = subprocess.Popen(command, cwd=self.place, env=self._environment, stdout=subprocess.PIPE)
        self._started.append(started)
        return started

    def run(self, *arguments: str) -> dict[str, Any]:
        """The document of a call."""
        return self.document(self.start(*arguments))

    def abandoned(self) -> int:
        """How often a frame was in the hands of somebody who was lost: its rows may have been run, or begun."""
        with contextlib.closing(sqlite3.connect(self.place / "home" / "ledger.db")) as log:
            (found,) = log.execute("SELECT count(*) FROM event WHERE event_type = 'frame.abandoned'").fetchone()
            return int(found)

    def document(self, started: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What a call that was started has to say."""
        said, _ = started.communicate(timeout=200)
        document: dict[str, Any] = json.loads(said)
        return document


_EAGER = """
from noetl.cli import main
from noetl.runtime.stages import spark_host

spark_host.is_worth_it = lambda *_, **__: True
main()
"""
_CONF = f"spark.driver.memory=512m,spark.executor.memory=512m,spark.executor.extraJavaOptions={QUICK}"
