"""Log lines, errors and extra fields come out without secrets."""

from __future__ import annotations

import gc
import io
import logging

import pytest

from noetl.tools.secrets.logs import RedactingFilter
from noetl.tools.secrets.redaction import Redactor

SECRET = "hunter2-hunter2"


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.add("crm.token", SECRET)
    return made


@pytest.fixture
def filter_(redactor: Redactor) -> RedactingFilter:
    return RedactingFilter(redactor)


@pytest.fixture
def lines(filter_: RedactingFilter) -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(lines: io.StringIO, filter_: RedactingFilter) -> logging.Logger:
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter("%(message)s %(fields)s", defaults={"fields": ""}))
    handler.addFilter(filter_)
    logger = logging.Logger("a test's own")
    logger.addHandler(handler)
    return logger


def test_messages_and_their_arguments(log: logging.Logger, lines: io.StringIO) -> None:
    log.warning("token %s, again %r", SECRET, {"t": SECRET})
    log.warning(f"plain {SECRET} at 100%")
    assert lines.getvalue() == "token ***, again {'t': '***'} \nplain *** at 100% \n"


def test_errors_and_their_causes(log: logging.Logger, lines: io.StringIO) -> None:
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as cause:
            raise RuntimeError(f"because of {SECRET}") from cause
    except RuntimeError:
        log.exception("failed", stack_info=True)
    assert SECRET not in lines.getvalue()
    assert "ValueError: ***" in lines.getvalue()
    assert "RuntimeError: because of ***" in lines.getvalue()


def test_fields_that_were_added(log: logging.Logger, lines: io.StringIO) -> None:
    log.warning("x", extra={"fields": {"token": SECRET, "n": 1}})
    assert lines.getvalue() == "x {'token': {'$secret': 'crm.token'}, 'n': 1}\n"


def test_arguments_that_do_not_fit_are_still_printed(log: logging.Logger, lines: io.StringIO) -> None:
    log.warning("%d items", SECRET)
    assert lines.getvalue() == "%d items ('***',) \n"


def test_a_redactor_is_watched_as_long_as_it_lives(
    log: logging.Logger, lines: io.StringIO, filter_: RedactingFilter
) -> None:
    other = Redactor()
    other.add("x.y", "another-secret")
    filter_.watch(other)
    log.warning("another-secret")
    del other
    gc.collect()
    log.warning("another-secret")
    assert lines.getvalue() == "*** \nanother-secret \n"


@pytest.mark.parametrize(
    ("link", "printed"),
    [
        ("https://b.s3/k?X-Amz-Date=1&X-Amz-Signature=0badcafe", "https://b.s3/k?X-Amz-Date=1&X-Amz-Signature=***"),
        ("https://g/b/k?X-Goog-Signature=0bad&X-Goog-Date=1", "https://g/b/k?X-Goog-Signature=***&X-Goog-Date=1"),
        ("https://a/c/k?sv=1&sig=b64%3D&sp=r", "https://a/c/k?sv=1&sig=***&sp=r"),
        ("https://a/c/k?signal=red", "https://a/c/k?signal=red"),
    ],
)
def test_signed_links_lose_their_signature(log: logging.Logger, lines: io.StringIO, link: str, printed: str) -> None:
    log.warning("fetched %s", link)
    try:
        raise ValueError(f"cannot fetch {link}")
    except ValueError:
        log.exception("failed")
    assert f"fetched {printed} " in lines.getvalue()
    assert f"ValueError: cannot fetch {printed}\n" in lines.getvalue()
