"""Migrations: all or nothing, once each, and only ones this release knows."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from noetl.adapters.sqlite import migrations
from noetl.adapters.sqlite.database import Database
from noetl.errors import Corruption, InvalidInput, NoetlError

OPEN_WHEN_TOLD = """
import sys
from pathlib import Path
from noetl.adapters.sqlite.database import Database
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
Database(Path(sys.argv[1])).close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def change(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(sql)
    connection.close()


def applied(path: Path) -> list[tuple[int, str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT number, name, sha256 FROM schema_migration ORDER BY number").fetchall()
    connection.close()
    return rows


def files() -> list[tuple[int, str, str]]:
    folder = resources.files(migrations)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        (number, name, hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest())
        for number, name in enumerate(names, start=1)
    ]


def test_every_migration_is_remembered_with_its_checksum(path: Path) -> None:
    Database(path).close()
    assert applied(path) == files()
    assert all(name.startswith(f"{number:04d}_") for number, name, _ in files())


def test_opening_again_changes_nothing(path: Path) -> None:
    Database(path).close()
    before = path.read_bytes()
    Database(path).close()
    assert path.read_bytes() == before


def test_the_file_says_whose_it_is(path: Path) -> None:
    Database(path).close()
    assert int.from_bytes(path.read_bytes()[68:72], "big") == migrations.APPLICATION_ID


def test_a_modified_migration_is_refused(path: Path) -> None:
    Database(path).close()
    change(path, "UPDATE schema_migration SET sha256 = 'other' WHERE number = 2")
    with pytest.raises(Corruption, match="migration 2 differs"):
        Database(path)


def test_a_newer_schema_is_refused(path: Path) -> None:
    Database(path).close()
    change(path, f"INSERT INTO schema_migration VALUES ({len(files()) + 1}, 'later.sql', 'x')")
    with pytest.raises(InvalidInput, match="newer release"):
        Database(path)


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrations._known()
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "_known", lambda: known[:1])
        Database(path).close()
    assert len(applied(path)) == 1
    Database(path).close()
    assert applied(path) == files()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrations._known()
    broken = migrations._Migration(len(known) + 1, "broken.sql", "CREATE TABLE fine (a TEXT);\nCREATE NONSENSE;\n")
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "_known", lambda: [*known[:1], broken])
        with pytest.raises(NoetlError, match="NONSENSE"):
            Database(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    connection.close()
    Database(path).close()
    assert applied(path) == files()


def test_processes_that_open_a_new_file_at_once_agree(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", OPEN_WHEN_TOLD, str(path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(4)
        ]  # fmt: skip
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outcomes = [process.communicate() for process in processes]
        assert [error for _, error in outcomes] == [""] * 4
        assert applied(path) == files()
