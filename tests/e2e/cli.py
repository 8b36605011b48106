"""The `noetl` command as its users run it: a process of its own, in a directory of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl.cli.app import cli
from noetl.cli.exits import run_guarded

PROJECT_ROOT = Path(__file__).parents[2]
CORPUS = PROJECT_ROOT / "tests/golden/corpus"
ORDERS_LOG = PROJECT_ROOT / "examples/logs/orders.jsonl"
FRAMES_LOG = CORPUS / "frames.jsonl"
ORDERS = "287011189555228672"
FRAMES = "286860194611228672"
COMMAND = (sys.executable, "-m", "noetl")


@dataclass(frozen=True)
class Result:
    """What a call left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document


@dataclass(frozen=True)
class Home:
    """A home directory and the calls that use it. Nothing of the caller's environment leaks in."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    @property
    def key(self) -> Path:
        return self.path / "wallet" / "ledger.key"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        return {**kept, "HOME": str(self.path.parent), "NOETL_HOME": str(self.path), **(extra or {})}

    def start(self, *args: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """A running call; the caller waits for it."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*COMMAND, *map(str, args)],
            env=self.environment(env),
            cwd=options.pop("cwd", self.path.parent),
            **{**streams, **options},
        )

    def run(self, *args: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> Result:
        """A call to its end."""
        process = self.start(*args, env=env, **options)
        stdout, stderr = process.communicate(timeout=60)
        return Result(process.returncode, (stdout or b"").decode(), (stderr or b"").decode())

    def json(self, *args: str | Path, **options: Any) -> dict[str, Any]:
        """The document of a call that must succeed."""
        result = self.run(*args, "--json", **options)
        assert result.code == 0, result
        return result.document

    def here(self, capsys: Any, *args: str | Path) -> Result:
        """The same call inside this process, for tests that need hundreds of them."""
        capsys.readouterr()
        code = run_guarded(cli, [str(arg) for arg in args] + ["--home", str(self.path)])
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    def copy(self, target: Path) -> Home:
        """The same home somewhere else."""
        shutil.copytree(self.path, target)
        return Home(target)

    @contextmanager
    def sql(self) -> Iterator[sqlite3.Connection]:
        """The ledger's file as somebody with an editor sees it: no key, no rules."""
        connection = sqlite3.connect(self.ledger, isolation_level=None)
        try:
            yield connection
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()

    def change(self, *statements: str | tuple[str, Sequence[Any]]) -> None:
        """Run statements that must each change something."""
        with self.sql() as connection:
            for statement in statements:
                text, values = (statement, ()) if isinstance(statement, str) else statement
                assert connection.execute(text, values).rowcount > 0, statement

    def fingerprint(self) -> dict[str, str]:
        """Every file and what is in it. SQLite's -wal and -shm come and go with readers."""
        if not self.path.is_dir():
            return {}
        files = (path for path in self.path.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
        return {
            str(path.relative_to(self.path)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)
        }
