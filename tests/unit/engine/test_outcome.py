"""What a finished call looks like to arcs and step-level `set` (7.2, 3.4)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from noetl.engine.outcome import error_view, failure, normalised_status, step_output
from noetl.payloads.tables import TableValue
from noetl.playbook import templates


@pytest.mark.parametrize("status", ["ok", "SUCCESS", "Completed", "done", "noop", "pending", "", None, 5, True])
def test_statuses_that_are_ok(status: Any) -> None:
    assert normalised_status(status) == "ok"


@pytest.mark.parametrize("status", ["error", "FAILED", "Failure"])
def test_statuses_that_are_errors(status: str) -> None:
    assert normalised_status(status) == "error"


def test_data_is_the_own_data_of_a_result_else_the_whole() -> None:
    assert step_output({"data": [1], "x": 2}, failed=False, error=None)["data"] == [1]
    assert step_output({"data": None}, failed=False, error=None)["data"] is None
    assert step_output({"x": 2}, failed=False, error=None)["data"] == {"x": 2}
    assert step_output([1], failed=False, error=None)["data"] == [1]


def test_the_status_of_a_failed_run_is_error_whatever_it_says() -> None:
    assert step_output({"status": "ok"}, failed=True, error={})["status"] == "error"


def test_the_raw_result_the_reference_and_the_error_are_there() -> None:
    output = step_output(7, failed=False, error=None, reference={"ref": "r"}, more={"http": {"status": 200}})
    assert output == {
        "status": "ok",
        "data": 7,
        "ref": {"ref": "r"},
        "error": None,
        "response": 7,
        "http": {"status": 200},
    }


def test_what_the_task_adds_cannot_pretend_to_be_the_outcome() -> None:
    assert step_output(1, failed=True, error={"code": "X"}, more={"status": "ok", "error": None})["status"] == "error"


def test_the_error_view_wins_over_fields_of_the_result() -> None:
    error = failure("X", "m")
    assert error_view({"status": "ok", "error": 0, "x": 1}, error) == {"status": "error", "error": error, "x": 1}
    assert error_view([1], error) == {"status": "error", "error": error}


def test_an_error_has_all_its_fields() -> None:
    assert failure("X", "m", kind="timeout", retryable=True) == {
        "kind": "timeout",
        "code": "X",
        "message": "m",
        "retryable": True,
    }


def test_the_output_of_a_step_that_returned_a_table_is_read_like_any_other() -> None:
    table = TableValue(pa.table({"a": [1, 2]}))
    names = {"output": step_output(table, failed=False, error=None, more={"meta": {"attempt": 1}})}
    assert templates.render("{{ output.data.row_count + output.response.rows[1].a + output.meta.attempt }}", names) == 5
    assert templates.render("{{ output.status }}", names) == "ok"
    assert templates.render("{{ output }}", names)["data"] == table.plain()
