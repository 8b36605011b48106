"""A server in the background: starting one and waiting for it, asking one, ending one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from noetl.errors import InvalidInput, NoetlError, Unavailable
from noetl.runtime.binding import check_binding
from noetl.runtime.home import Home
from noetl.runtime.presence import Presence, ServerRecord
from noetl.settings import Settings, format_duration

__all__ = ["answers", "start_server", "stop_server"]

T = TypeVar("T")

_BETWEEN_LOOKS = 0.05
_ANSWER_SECONDS = 2.0
_AFTER_DRAIN = 15.0
_USAGE = 2
_MOST_SAID = 4000


def answers(record: ServerRecord) -> bool:
    """Whether a server says that it is well."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of this machine
    try:
        with opener.open(f"{record.url}/api/health", timeout=_ANSWER_SECONDS) as response:
            return bool(response.status == HTTPStatus.OK)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def start_server(home: Home, settings: Settings, tenant: str | None) -> ServerRecord:
    """Start a server in a process of its own and wait until it answers.

    Raises what kept it from starting, in its own words; Unavailable if it took longer than `server.start`.
    """
    check_binding(settings.server.host, settings.server.port, settings.server.auth)
    home.create()
    presence = Presence(home.path)
    logs = home.path / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    said = logs / "server.out"
    with said.open("wb") as output:
        process = subprocess.Popen(
            _command(home.path, settings, tenant),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,  # the terminal's signals are not for it
        )
    limit = settings.server.start

    def ready() -> ServerRecord | None:
        if process.poll() is not None:
            raise _failed(process.returncode, said)
        record = presence.running()
        return record if record is not None and record.pid == process.pid and answers(record) else None

    record = _await(ready, limit)
    if record is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        raise Unavailable(
            f"the server did not answer within {format_duration(limit)}, so it was stopped",
            hint=f"see {said} and {logs / 'server.log'}; raise server.start if the machine is slow",
        )
    return record


def stop_server(home: Path, settings: Settings, *, now: bool) -> int | None:
    """End the server of a home and wait for it; its process id, or None if there was none."""
    presence = Presence(home)
    record = presence.running()
    if record is None:
        if presence.is_held():
            raise Unavailable("a server is starting or stopping", hint="try again in a moment")
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, signal.SIGTERM)
        if now:
            _await(lambda: None if presence.is_held() else True, _BETWEEN_LOOKS * 4)
            os.kill(record.pid, signal.SIGTERM)
    limit = settings.server.drain + _AFTER_DRAIN
    if _await(lambda: None if presence.is_held() else True, limit) is None:
        raise Unavailable(
            f"the server (process {record.pid}) has not ended within {format_duration(limit)}",
            hint="noetl server stop --now does not wait for what is running",
        )
    return record.pid


def _command(home: Path, settings: Settings, tenant: str | None) -> list[str]:
    server = settings.server
    options = ["--host", server.host, "--port", str(server.port), "--auth", server.auth]
    if server.workers is not None:
        options += ["--workers", str(server.workers)]
    if tenant is not None:
        options += ["--tenant", tenant]
    return [sys.executable, "-m", "noetl", "server", "start", "--background", "--home", str(home), *options]


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
    return kind(message or f"the server ended at once with code {code}", hint=fix)
