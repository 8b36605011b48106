"""Log records as lines of JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.observe.logs import JsonLines, filtered, start_logging
from noetl.tools.secrets.logs import RedactingFilter
from noetl.tools.secrets.redaction import Redactor

SECRET = "tr0ub4dor-and-3"


def redactor() -> Redactor:
    knowing = Redactor()
    knowing.add("crm.token", SECRET)
    return knowing


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A log that is taken down again, whatever the test has done."""
    place = tmp_path / "logs" / "server.log"
    end = start_logging(place, RedactingFilter(redactor()))
    yield place
    end()
    assert not [handler for handler in logging.getLogger().handlers if isinstance(handler.formatter, JsonLines)]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_record_is_one_line_with_what_was_added_to_it(file: Path) -> None:
    logging.getLogger("noetl.test").info("two\nlines, %s", "größer", extra={"execution_id": "17"})
    (line,) = lines_of(file)
    assert line["message"] == "two\nlines, größer"
    assert (line["level"], line["logger"], line["execution_id"]) == ("info", "noetl.test", "17")
    assert line["time"].endswith("+00:00")


def test_an_error_brings_its_traceback(file: Path) -> None:
    try:
        raise ValueError(f"no entry for {SECRET}")
    except ValueError:
        logging.getLogger("noetl.test").exception("failed with %s", SECRET, extra={"input": {"token": SECRET}})
    (line,) = lines_of(file)
    assert "ValueError: no entry for ***" in line["error"]
    assert line["message"] == "failed with ***"
    assert SECRET not in file.read_text(encoding="utf-8")


def test_the_console_gets_the_same_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("noetl.test").warning("said %s", SECRET)
    assert SECRET not in capsys.readouterr().err


def test_only_the_owner_may_read_the_file(file: Path) -> None:
    logging.getLogger("noetl.test").info("here")
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_one_more_filter_for_a_while(file: Path) -> None:
    other = Redactor()
    other.add("erp.password", "another-secret")
    with filtered(RedactingFilter(other)):
        logging.getLogger("noetl.test").info("another-secret")
    logging.getLogger("noetl.test").info("another-secret")
    assert [line["message"] for line in lines_of(file)] == ["***", "another-secret"]


def test_a_value_that_json_does_not_know_is_written_as_text() -> None:
    record = logging.makeLogRecord({"msg": "m", "name": "n", "levelname": "INFO", "place": Path("a/b")})
    assert json.loads(JsonLines().format(record))["place"] == "a/b"
