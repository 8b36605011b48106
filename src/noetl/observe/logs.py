"""Log records as JSON lines: to standard error for whoever watches, and to a file that does not grow for ever."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["JsonLines", "filtered", "start_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_FILE_BYTES = 10 << 20
_FILES_KEPT = 5
_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600


class JsonLines(logging.Formatter):
    """One record, one line: time, level, logger, message, and whatever the caller added as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON. What JSON does not know is written as its text."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["error"] = record.exc_text
        return json.dumps(line, default=str, ensure_ascii=False)


class _PrivateRotating(logging.handlers.RotatingFileHandler):
    """Files that only their owner reads."""

    def _open(self):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the base class has no type to name
        stream = super()._open()
        Path(self.baseFilename).chmod(_PRIVATE_FILE)
        return stream


def start_logging(
    file: Path, *filters: logging.Filter, level: int = logging.INFO, console: bool = True
) -> Callable[[], None]:
    """Send all records of this process to `file` and standard error, through `filters` on every handler.

    What comes back ends it. A disk that is full costs lines, never a request.
    """
    file.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        _PrivateRotating(file, maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8")
    ]
    if console:
        handlers.append(logging.StreamHandler(sys.stderr))
    root = logging.getLogger()
    before, raising = root.level, logging.raiseExceptions
    root.setLevel(level)
    logging.raiseExceptions = False
    for handler in handlers:
        handler.setFormatter(JsonLines())
        for wanted in filters:
            handler.addFilter(wanted)
        root.addHandler(handler)

    def end() -> None:
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(before)
        logging.raiseExceptions = raising

    return end


@contextlib.contextmanager
def filtered(guard: logging.Filter) -> Iterator[None]:
    """Send the records of every handler of this process through one more filter, until the end of the block."""
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(guard)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(guard)
