"""The card in a notebook: what it shows, and that nothing in it can act."""

from __future__ import annotations

import re

from noetl.api.card import card
from noetl.api.steps import StepLine
from noetl.api.summaries import Summary

FAILED = Summary(
    execution_id=7,
    path="team/<i>t</i>",
    status="FAILED",
    error={"code": "PY_LookupError", "message": "<script>alert(1)</script>"},
    duration_ms=52,
    events=25,
)
STEPS = [
    StepLine(name="start", status="COMPLETED", runs=1, duration_ms=4),
    StepLine(name="words", status="COMPLETED", runs=1, iterations=3, duration_ms=9),
    StepLine(name='on"load', status="FAILED", runs=1, duration_ms=31),
]


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))


def test_it_shows_status_steps_times_and_the_error() -> None:
    shown = text_of(card(FAILED, STEPS))
    assert "FAILED team/" in shown
    assert "52 ms · 25 events" in shown
    assert "words COMPLETED 9 ms 3 iterations" in shown
    assert "PY_LookupError" in shown


def test_whatever_comes_from_a_playbook_is_escaped() -> None:
    shown = card(FAILED, STEPS)
    assert "<script" not in shown
    assert "<i>" not in shown
    assert 'on"load' not in shown
    assert "&lt;script&gt;" in shown


def test_it_loads_nothing_from_elsewhere_and_sets_no_background() -> None:
    shown = card(FAILED, STEPS)
    assert not re.search(r"https?:|src=|href=|url\(|background:(?!none)", shown)


def test_long_runs_and_long_texts_are_cut() -> None:
    many = [StepLine(name=f"s{number}") for number in range(70)]
    long = Summary(execution_id=7, status="FAILED", error={"code": "X", "message": "m" * 10_000})
    shown = card(long, many)
    assert "and 20 more steps" in shown
    assert len(shown) < 30_000
