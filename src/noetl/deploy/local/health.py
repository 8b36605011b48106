"""Whether a process says that it is well, and what it said last if it does not."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import deque
from http import HTTPStatus
from pathlib import Path

from noetl.deploy.local.postgres import accepts

__all__ = ["ill", "last_lines"]

_ANSWER_SECONDS = 3.0
_MOST_SAID = 200
_MOST_LINE = 400


def ill(address: str) -> str | None:
    """Why it is not well, or None if it is."""
    if address.isdecimal():
        return None if accepts(int(address)) else "it lets nobody in yet"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of this machine
    try:
        with opener.open(address, timeout=_ANSWER_SECONDS) as response:
            return None if response.status == HTTPStatus.OK else f"it answers {response.status}"
    except urllib.error.HTTPError as error:
        return _said(error) or f"it answers {error.code}"
    except (urllib.error.URLError, OSError, ValueError):
        return "it does not answer"


def last_lines(log: Path, count: int = 8) -> list[str]:
    """The end of what a process has said."""
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return [line.rstrip()[:_MOST_LINE] for line in deque(lines, count) if line.strip()]
    except OSError:
        return []


def _said(error: urllib.error.HTTPError) -> str | None:
    try:
        document = json.loads(error.read(_MOST_SAID * 10))
        return str(document.get("detail") or document.get("error") or "")[:_MOST_SAID] or None
    except (ValueError, AttributeError, OSError):
        return None
