"""The picture of a run: what is in it, and that it never grows beyond its frame."""

from __future__ import annotations

import pytest

from noetl.cli.live.drawing import duration
from tests.unit.cli.live.story import CHILD, ROOT, Story


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def test_nothing_is_drawn_before_anything_happens() -> None:
    assert Story().drawn() == []


def test_a_run_with_all_there_is_to_see(story: Story) -> None:
    story.run("start")
    story.issue("call", "playbook")
    story.begin(CHILD, path="team/inner", parent=ROOT)
    story.event("command.issued", "deep", kind="python", execution=CHILD, parent=ROOT)
    story.event("loop.opened", "each", total=20)
    story.issue("each", loop_index=0)
    story.notice("log", "each", text="row 1")
    story.issue("unsteady", "http")
    story.pass_time(2.0)
    story.event("command.completed", "each")
    story.event("command.failed", "each")
    story.notice("waiting", "unsteady", attempt=3, attempts=4, seconds=1.5)
    assert story.drawn() == [
        "⠋ team/orders  2.0 s  1 done",
        "  ✓ start  0 ms",
        "  ⠋ call  playbook  2.0 s",
        "    └ team/inner",
        "      ⠋ deep  python  2.0 s",
        "  ⠋ each  python  ━━━━━━━━━━━━━━━━━━━━━━━━  2/20  1 failed  1.0/s  18.0 s left",
        "    │ row 1",
        "  ⠋ unsteady  http  2.0 s  attempt 3 of 4 failed, waiting 1.5 s",
    ]


def test_an_attempt_under_way(story: Story) -> None:
    story.issue("call")
    story.notice("attempt", "call", attempt=2)
    assert story.drawn()[-1].endswith("attempt 2")


def test_a_loop_of_unknown_length_has_no_bar(story: Story) -> None:
    story.event("stage.opened", "score")
    story.event("frame.committed", "score", rows=50_000)
    story.pass_time(10)
    assert story.drawn()[-1] == "  ⠋ score  1 frame  50,000 rows  5,000 rows/s"


def test_a_stage_on_spark_says_where_to_watch_it_and_what_is_run_again(story: Story) -> None:
    story.event("stage.opened", "score")
    story.event("frame.dispatched", "score", frames=4)
    story.event("stage.started", "score", host="spark", ui="http://127.0.0.1:4040")
    story.event("frame.committed", "score", rows=500, outcomes={"ok": 498, "error": 2})
    story.event("frame.abandoned", "score")
    story.pass_time(2)
    _, line, watch = story.drawn(width=140)
    assert watch == "    │ on Spark, see http://127.0.0.1:4040"
    assert line.endswith("1/4  500 rows (2 failed)  1 run again  250 rows/s  6.0 s left")
    story.exit("score")
    assert story.drawn()[-1].endswith("4 frames, 500 rows (2 failed), 1 run again")


def test_the_end_of_a_short_run_lists_its_steps(story: Story) -> None:
    story.run("load")
    story.event("step.skipped", "mail")
    story.event("loop.opened", "each", total=2)
    story.event("command.failed", "each")
    story.event("call.error", "each", error={"message": "no\x1b[2Jstock"})
    story.exit("each", "FAILED")
    story.pass_time(3)
    story.event("playbook.failed")
    assert story.drawn(over=True) == [
        "✗ team/orders  3.0 s  1 done, 1 failed, 1 skipped",
        "  ✓ load  0 ms",
        "  - mail  skipped",
        r"  ✗ each  0 ms  2 iterations, 1 failed  no\x1b[2Jstock",
    ]


def test_the_end_of_a_long_run_is_short(story: Story) -> None:
    for number in range(2000):
        story.run(f"s{number}", "FAILED" if number == 1234 else "COMPLETED")
    story.event("playbook.completed")
    assert story.drawn(over=True, height=40) == [
        "✓ team/orders  0 ms  1,999 done, 1 failed",
        "  … 1996 more ended",
        "  ✗ s1234  0 ms",
        "  ✓ s1997  0 ms",
        "  ✓ s1998  0 ms",
        "  ✓ s1999  0 ms",
    ]


@pytest.mark.parametrize("height", [4, 6, 10, 24, 40])
def test_the_picture_fits_its_frame_and_keeps_what_matters(story: Story, height: int) -> None:
    for number in range(500):
        story.run(f"s{number}", "FAILED" if number % 50 == 0 else "COMPLETED")
    for number in range(8):
        story.issue(f"running{number}")
        story.notice("log", f"running{number}", text="at work")
    lines = story.drawn(height=height)
    assert len(lines) <= height
    assert any("running0" in line for line in lines)
    assert any("✗" in line for line in lines)


def test_deep_calls_end_somewhere(story: Story) -> None:
    parent = ROOT
    for depth in range(32):
        story.event("command.issued", "call", kind="playbook", execution=parent)
        story.begin(CHILD + depth, path=f"team/p{depth}", parent=parent)
        parent = CHILD + depth
    assert len(story.drawn(height=20)) <= 20


@pytest.mark.parametrize("width", [40, 60, 120])
def test_long_names_leave_room_for_what_is_said_about_them(story: Story, width: int) -> None:
    name = "a step with a very long name that goes on and on, über 日本語 and so on"
    story.issue(name)
    line = story.drawn(width=width)[-1]
    assert "…" in line
    assert line.endswith("python  0 ms")
    assert len(line) <= width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0774, "77 ms"), (1.234, "1.2 s"), (59.9, "59.9 s"), (125, "2 min 5 s"), (3780, "1 h 3 min")],
)
def test_lengths_of_time_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the query is wrong\n== SQL ==\n^^^", "the query is wrong"),
        ('Traceback (most recent call last):\n  File "x"\nValueError: no', "ValueError: no"),
    ],
)
def test_of_a_long_message_the_line_that_says_most(story: Story, message: str, shown: str) -> None:
    story.issue("load", "spark")
    story.event("call.error", "load", error={"message": message})
    story.exit("load", "FAILED")
    assert story.drawn()[1] == f"  ✗ load  0 ms  {shown}"


def test_a_stage_that_goes_on_is_as_fast_as_it_is_now(story: Story) -> None:
    story.event("stage.opened", "price")
    story.event("frame.dispatched", "price", frames=20)
    for _ in range(7):
        story.event("frame.committed", "price", rows=1000)
    story.pass_time(3600)
    story.board.recall()
    story.pass_time(2)
    assert story.drawn()[1].strip(" ⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏").endswith("7/20  7,000 rows")
    for _ in range(4):
        story.event("frame.committed", "price", rows=1000)
    assert story.drawn()[1].endswith("11/20  11,000 rows  2,000 rows/s  4.5 s left")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "  ⠹ price  stage  ━━━━━━━━━━━━━━━━━━━━━━━━  2,464/6,000  1,232,000 rows  16,427 rows/s  1 min 47 s left",
        ),
        (80, "  ⠹ price  ━━━━━━━━━━━━━━  2,464/6,000  1.2M rows  16.4k rows/s  1 min 47 s left"),
        (60, "  ⠹ price  2,464/6,000  1.2M rows  16.4k rows/s  1 min 47 s left"),
    ],
)
def test_on_a_narrow_terminal_what_is_told_comes_first(story: Story, width: int, line: str) -> None:
    story.issue("price", "stage")
    story.event("stage.opened", "price")
    story.event("frame.dispatched", "price", frames=6000)
    for _ in range(2464):
        story.event("frame.committed", "price", rows=500)
    story.pass_time(75)
    drawn = story.drawn(width=width)[1]
    assert drawn[4:] == line[4:]
