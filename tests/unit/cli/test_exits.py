"""Whatever goes wrong becomes one message and the right exit code."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest

from noetl import errors
from noetl.cli.exits import FAILED, MISMATCH, OK, UNAVAILABLE, USAGE, code_of, run_guarded

CODES: dict[type[errors.NoetlError], int] = {
    errors.InvalidInput: USAGE,
    errors.InvalidName: USAGE,
    errors.InvalidSetting: USAGE,
    errors.NotFound: USAGE,
    errors.Unavailable: UNAVAILABLE,
    errors.StorageFull: UNAVAILABLE,
    errors.Corruption: MISMATCH,
    errors.IntegrityMismatch: MISMATCH,
    errors.Conflict: FAILED,
    errors.LeaseLost: FAILED,
}


def command_that(act: Callable[[], object]) -> click.Command:
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def command(as_json: bool) -> object:
        return act()

    return command


def fail_with(error: BaseException) -> click.Command:
    def act() -> None:
        raise error

    return command_that(act)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_each_branch_has_its_code(kind: type[errors.NoetlError], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(kind("x")) == CODES[kind]
    assert run_guarded(fail_with(kind("it broke", hint="mend it")), []) == CODES[kind]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: it broke\n  fix: mend it\n"


def test_an_event_error_is_bad_input() -> None:
    assert code_of(errors.InvalidEvent("payload", "is wrong", event_id=7)) == USAGE


@pytest.mark.parametrize(("result", "code"), [(None, OK), (0, OK), (1, FAILED), (4, MISMATCH), ("text", OK)])
def test_a_command_may_say_its_code(result: object, code: int) -> None:
    assert run_guarded(command_that(lambda: result), []) == code


def test_an_error_is_a_document_when_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(fail_with(errors.NotFound("nothing there")), ["--json"]) == USAGE
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": {"kind": "NotFound", "message": "nothing there", "hint": None}}
    assert printed.err == "error: nothing there\n"


def test_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(command_that(lambda: None), ["--nope"]) == USAGE
    assert "No such option" in capsys.readouterr().err


def test_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(fail_with(KeyboardInterrupt()), []) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_fault_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_guarded(fail_with(ZeroDivisionError()), [])


def test_leaving_with_another_code_stays_that() -> None:
    with pytest.raises(SystemExit) as leaving:
        run_guarded(fail_with(SystemExit(7)), [])
    assert leaving.value.code == 7
