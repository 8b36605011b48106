"""The server's time, carried on by a clock of this machine."""

from __future__ import annotations

import pytest

from noetl.adapters.postgres import times
from noetl.adapters.postgres.times import HeardTime

SECOND = 1_000_000
FAR = 1_000 * SECOND


class Steady:
    """A clock of this machine that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 5 * SECOND
        monkeypatch.setattr(times, "steady", lambda: self.now)

    def hear(self, heard: HeardTime, *, apart: int, there: int, back: int) -> None:
        """One question: the way to the server and back, of which the clock is `apart`."""
        asked = self.now
        told = asked + there + apart
        self.now += there + back
        heard.hear(told, asked)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    return Steady(monkeypatch)


def test_nothing_was_heard_yet() -> None:
    assert HeardTime().now() is None


def test_it_goes_on_between_two_answers(steady: Steady) -> None:
    heard = HeardTime()
    steady.hear(heard, apart=FAR, there=0, back=0)
    steady.now += 700
    assert heard.now() == steady.now + FAR


def test_it_is_never_ahead_and_at_most_one_way_back_behind(steady: Steady) -> None:
    heard = HeardTime()
    for there, back in ((300, 900), (100, 200), (2 * SECOND, 5000), (50, 800)):
        steady.hear(heard, apart=FAR, there=there, back=back)
        now = heard.now()
        assert now is not None
        assert 0 <= steady.now + FAR - now <= 900
    assert heard.now() == steady.now + FAR - 200  # by the quickest answer of them


@pytest.mark.parametrize("step", [-3600 * SECOND, 3600 * SECOND])
def test_a_clock_that_is_set_is_followed(steady: Steady, step: int) -> None:
    heard = HeardTime()
    steady.hear(heard, apart=FAR, there=100, back=100)
    steady.hear(heard, apart=FAR + step, there=100, back=100)
    now = heard.now()
    assert now is not None
    assert abs(steady.now + FAR + step - now) <= 100


def test_what_was_told_long_ago_is_told_no_more(steady: Steady) -> None:
    heard = HeardTime()
    steady.hear(heard, apart=FAR, there=100, back=100)
    steady.now += 2 * SECOND
    assert heard.now() is not None
    steady.now += 1
    assert heard.now() is None
    steady.hear(heard, apart=FAR, there=100, back=100)
    assert heard.now() is not None
