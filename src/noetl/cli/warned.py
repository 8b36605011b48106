"""Warnings of the work itself, as lines on standard error, without a secret in them."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
from collections.abc import AsyncIterator
from io import TextIOWrapper
from pathlib import Path

__all__ = ["KEPT", "warnings_shown"]

KEPT = "warnings.log"
_LONGEST = 300
_MOST_BYTES = 1 << 20


class _Line(logging.Formatter):
    """One line for a warning, however much there is to say: what Java or a library adds is in the file."""

    def format(self, record: logging.LogRecord) -> str:
        first, _, more = record.getMessage().strip().partition("\n")
        cut = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
        kept = f" (all of it is in logs/{KEPT})" if more or record.exc_info or cut != first else ""
        return f"warning: {cut}{kept}"


class _Kept(logging.handlers.RotatingFileHandler):
    """The file, made when there is something to write, for the user alone. A full disk must not stop the run."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def _open(self) -> TextIOWrapper:
        file = Path(self.baseFilename)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        """The terminal has had its line."""


@contextlib.asynccontextmanager
async def warnings_shown(guard: logging.Filter, home: Path) -> AsyncIterator[None]:
    """Print what is logged from warnings upwards, by us and by libraries, until the end of the block."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Line())
    kept = _Kept(home / "logs" / KEPT)
    root = logging.getLogger()
    for handler in (shown, kept):
        handler.setLevel(logging.WARNING)
        handler.addFilter(guard)
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in (shown, kept):
            root.removeHandler(handler)
        kept.close()
