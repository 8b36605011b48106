"""Who is still heard about a command: whoever has it as it is now, not as it was before it waited for a call."""

from __future__ import annotations

import pytest

from noetl.engine.control import CommandState, Control
from noetl.engine.decide import Report, Suspension, awaited


def control(stage: int) -> Control:
    return Control(execution_id=1, commands={5: CommandState("call", 1, "pipeline", stage=stage)})


@pytest.mark.parametrize("said", [Report(command_id=5, stage=2), Suspension(command_id=5, call={}, stage=2)])
def test_whoever_has_the_command_as_it_is_is_heard(said: Report | Suspension) -> None:
    assert awaited(control(2), said) is not None


@pytest.mark.parametrize("said", [Report(command_id=5, stage=0), Suspension(command_id=5, call={}, stage=0)])
def test_whoever_had_it_before_it_waited_is_not(said: Report | Suspension) -> None:
    assert awaited(control(2), said) is None


def test_what_nobody_was_given_needs_no_stage() -> None:
    assert awaited(control(2), Report(command_id=5)) is not None


def test_a_command_that_has_ended_is_not_awaited() -> None:
    assert awaited(control(2), Report(command_id=6)) is None
