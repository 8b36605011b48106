"""An error of ours that was raised on an executor is raised where the job was started."""

from __future__ import annotations

import pytest

from noetl.data.sweeps.faults import brought, carried
from noetl.errors import (
    Corruption,
    IntegrityMismatch,
    InvalidInput,
    NoetlError,
    NotFound,
    StreamSealed,
    Unavailable,
)


def through_spark(error: NoetlError) -> None:
    """What PySpark makes of an exception in a task: the text of its traceback, among other text."""
    try:
        with carried():
            raise error
    except Exception as raised:
        said = (
            f"Job aborted: Traceback (most recent call last):\n  File x\n{type(raised).__name__}: {raised}\n\tat java"
        )
    with brought():
        raise RuntimeError(said)


@pytest.mark.parametrize("kind", [IntegrityMismatch, Corruption, NotFound, InvalidInput, Unavailable])
def test_branch_message_and_hint_arrive(kind: type[NoetlError]) -> None:
    said = 'it\'s "so": {x}'
    with pytest.raises(kind) as caught:
        through_spark(kind(said, hint="do\nthat"))
    assert (type(caught.value), caught.value.message, caught.value.hint) == (kind, said, "do\nthat")


def test_an_error_that_is_made_otherwise_arrives_as_its_branch() -> None:
    sealed = StreamSealed("execution/1/stage/2")
    with pytest.raises(NoetlError) as caught:
        through_spark(sealed)
    assert isinstance(sealed, type(caught.value))
    assert caught.value.message == sealed.message


def test_what_goes_wrong_with_spark_itself_is_a_dependency_that_is_away() -> None:
    with pytest.raises(Unavailable, match="the Spark job of the sweep failed: ") as caught, brought():
        raise RuntimeError("no space left")
    assert caught.value.message.endswith("no space left")
    assert caught.value.hint == "run it without --spark"


def test_an_error_of_this_side_stays_what_it_is() -> None:
    with pytest.raises(NotFound, match="gone"), brought():
        raise NotFound("gone")
