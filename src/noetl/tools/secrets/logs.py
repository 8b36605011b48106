"""Log lines without secrets."""

from __future__ import annotations

import logging
import re
import weakref

from noetl.tools.secrets.redaction import MASK, Redactor

__all__ = ["RedactingFilter"]

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_FORMATTER = logging.Formatter()
# A signed link is a key to one object for whoever reads it. Nobody knows its signature beforehand, but where it stands.
_SIGNATURE = re.compile(r"(?i)([?&](?:x-amz-signature|x-amz-security-token|x-goog-signature|sig)=)[^&#\s\"'<>]+")


class RedactingFilter(logging.Filter):
    """Takes what some redactors know out of every record: its message, its error, and the fields added to it.

    It belongs on a handler: a filter of a logger does not see what the loggers below it say. Redactors are held
    weakly, so that the secrets of an execution go when the execution does.
    """

    def __init__(self, *redactors: Redactor) -> None:
        super().__init__()
        self._lasting = redactors
        self._watched: weakref.WeakSet[Redactor] = weakref.WeakSet(redactors)

    def watch(self, redactor: Redactor) -> None:
        """Use this one too, as long as somebody else holds it."""
        self._watched.add(redactor)

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place; nothing is left out."""
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        message = _message(record)
        for redactor in list(self._watched):
            message = redactor.text(message)
            record.exc_text = record.exc_text and redactor.text(record.exc_text)
            record.stack_info = record.stack_info and redactor.text(record.stack_info)
            for name in vars(record).keys() - _PLAIN:
                setattr(record, name, redactor.value(getattr(record, name)))
        message, record.exc_text = _unsigned(message), record.exc_text and _unsigned(record.exc_text)
        # A formatter that prints the error itself would print it whole: the text above is all there is.
        record.msg, record.args, record.exc_info = message, (), None
        return True


def _unsigned(text: str) -> str:
    return _SIGNATURE.sub(rf"\1{MASK}", text)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # arguments that do not fit are the logger's mistake, not its caller's
        return f"{record.msg} {record.args}"
