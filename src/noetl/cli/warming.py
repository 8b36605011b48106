"""A warm Spark session in the background: starting its keeper and waiting for it, ending it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from noetl.data.session.conf import SessionConf
from noetl.data.session.warm import Warm, WarmRecord
from noetl.errors import Conflict, InvalidInput, NoetlError, Unavailable
from noetl.settings import format_duration

__all__ = ["start_keeper", "stop_keeper"]

T = TypeVar("T")

_BETWEEN_LOOKS = 0.05
_AFTER_START = 60.0
_END_SECONDS = 30.0
_USAGE = 2
_MOST_SAID = 4000


def start_keeper(home: Path, conf: SessionConf) -> WarmRecord:
    """The warm session of a home; started, in a process of its own, if there is none.

    Raises what kept it from starting, in its own words, and InvalidInput if there is one with other settings.
    """
    warm = Warm(home)
    if (record := warm.find()) is not None:
        if (record.master, record.conf) != (conf.master, conf.conf):
            raise InvalidInput(
                f"this home has a warm session with other settings, on {record.master} (process {record.pid})",
                hint="noetl spark stop ends it; then start it again",
            )
        return record
    said = home / "logs" / "spark-keeper.out"
    said.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with said.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "noetl",
                "spark",
                "start",
                "--background",
                "--home",
                str(home),
                "--master",
                conf.master,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,  # the terminal's signals are not for it
        )

    def ready() -> WarmRecord | None:
        if process.poll() is not None:
            raise _failed(process.returncode, said)
        found = warm.find()
        return found if found is not None and found.pid == process.pid else None

    limit = conf.start + _AFTER_START
    record = _await(ready, limit)
    if record is None:
        process.kill()  # its JVM ends with it
        process.wait()
        raise Unavailable(
            f"Spark was not ready within {format_duration(limit)}, so it was stopped",
            hint=f"see {said} and {said.with_name('spark.log')}; raise spark.start if the machine is slow",
        )
    process.returncode = 0  # left running on purpose
    return record


def stop_keeper(home: Path, *, now: bool) -> int | None:
    """End the warm session of a home and wait for it; the process it had, or None if there was none.

    Raises Conflict if runs use it, unless `now`.
    """
    warm = Warm(home)
    record = warm.find()
    if record is None:
        if warm.is_held():
            raise Unavailable("a warm session is starting or stopping", hint="try again in a moment")
        return None
    if (users := warm.users()) and not now:
        raise Conflict(
            f"{len(users)} running process{'es use' if len(users) > 1 else ' uses'} the warm session",
            hint="wait for them, or noetl spark stop --now",
        )
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, signal.SIGTERM)
    if _await(lambda: None if warm.is_held() else True, _END_SECONDS) is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)
        _await(lambda: None if warm.is_held() else True, _END_SECONDS)
    return record.pid


def _await(look: Callable[[], T | None], seconds: float) -> T | None:
    """What `look` finds, once it does; None if it finds nothing for so long."""
    end = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < end:
        time.sleep(_BETWEEN_LOOKS)
    return found


def _failed(code: int, said: Path) -> NoetlError:
    """Why it has ended, as it said itself: the lines after its own `error:`."""
    text = said.read_text(encoding="utf-8", errors="replace")[-_MOST_SAID:]
    message, _, hint = text.rpartition("error: ")[2].strip().partition("\n")
    kind = InvalidInput if code == _USAGE else Unavailable
    fix = hint.strip().removeprefix("fix:").strip() or f"see {said}"
    return kind(message or f"the keeper ended at once with code {code}", hint=fix)
