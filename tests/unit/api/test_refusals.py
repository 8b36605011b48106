"""Problem details, as the error that the same call gives here."""

from __future__ import annotations

import msgspec
import pytest

from noetl.api.refusals import error_of
from noetl.errors import (
    Conflict,
    Forbidden,
    InvalidDocument,
    InvalidInput,
    NoetlError,
    NotFound,
    StorageFull,
    Unauthenticated,
    Unavailable,
)
from noetl.playbook.problems import Problem
from noetl.server.problems import problem_of

URL = "http://server"


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("bad", hint="better"),
        NotFound("not there", hint="look elsewhere"),
        Conflict("too late"),
        StorageFull("no room", hint="make some"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_through_a_server(error: NoetlError) -> None:
    said = problem_of(error)
    back = error_of(said.status, msgspec.json.encode(said), URL)
    assert (type(back), back.message, back.hint) == (type(error), error.message, error.hint)


@pytest.mark.parametrize("kind", [Unauthenticated, Forbidden])
def test_a_token_that_does_not_do_names_the_server(kind: type[NoetlError]) -> None:
    said = problem_of(kind("no"))
    back = error_of(said.status, msgspec.json.encode(said), URL)
    assert type(back) is kind
    assert back.message == "http://server: no"
    assert back.hint


def test_an_invalid_document_comes_back_with_its_problems() -> None:
    problem = Problem(code="NTL-202", severity="error", line=6, column=12, message="m", hint="h", file="<document>")
    said = problem_of(InvalidDocument([problem, "in words"]))
    back = error_of(said.status, msgspec.json.encode(said), URL)
    assert isinstance(back, InvalidDocument)
    assert back.problems == (problem, "in words")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_in_trouble_is_unavailable(status: int) -> None:
    error = error_of(status, b"<html>oops</html>", URL)
    assert isinstance(error, Unavailable)
    assert str(status) in error.message


def test_an_answer_without_a_problem_is_told_by_its_status() -> None:
    assert isinstance(error_of(404, b"", URL), NotFound)
    assert error_of(418, b"", URL).message == "http://server answered 418"
