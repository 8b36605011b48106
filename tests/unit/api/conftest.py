"""Playbooks and places for the Python API."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.api.session import Session


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is not there yet, and nothing of the caller's environment."""
    for name in ("NOETL_HOME", "NOETL_TENANT__ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def session(home: Path) -> Session:
    """An open session; the test closes it, or its end does."""
    return Session(home)
