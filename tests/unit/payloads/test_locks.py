"""Locks between processes, and between threads, that nobody waits long for."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from noetl.payloads.locks import locked

HOLDER = """
import pathlib, sys
from noetl.payloads.locks import locked
with locked(pathlib.Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path) as mine, locked(path) as other:
        assert (mine, other) == (True, False)
    with locked(path) as again:
        assert again


def test_whoever_waits_a_moment_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(path):
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    threading.Timer(0.01, release.set).start()
    with locked(path) as mine:
        assert mine
    holder.join()


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with locked(path) as mine:
            assert not mine
        holder.kill()
        holder.wait()
    with locked(path) as mine:
        assert mine
