"""The board: events and notices in, what runs and what has ended out."""

from __future__ import annotations

import pytest

from tests.unit.cli.live.story import CHILD, ROOT, Story


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def test_a_step_is_there_from_its_command_to_its_exit(story: Story) -> None:
    story.issue("load", "http")
    root = story.board.root
    assert root is not None
    assert (root.path, list(root.steps), root.steps["load"].kind) == ("team/orders", ["load"], "http")
    story.pass_time(1.5)
    ended = story.exit("load")
    assert (ended.name, ended.state, ended.took_ms, ended.depth) == ("load", "ok", 1500, 0)
    assert not root.steps
    assert root.counts == {"ok": 1, "failed": 0, "skipped": 0}


def test_a_failed_step_keeps_its_reason(story: Story) -> None:
    story.issue("load")
    story.event("call.error", "load", error={"message": "no stock"})
    assert (story.exit("load", "FAILED").error, story.run("next").error) == ("no stock", "")
    assert story.board.root is not None
    assert [step.name for step in story.board.root.failures] == ["load"]


def test_a_skipped_step(story: Story) -> None:
    ended = story.event("step.skipped", "load")
    assert ended is not None
    assert ended.state == "skipped"


def test_iterations_are_counted(story: Story) -> None:
    story.event("loop.opened", "each", total=3)
    for outcome in ("completed", "failed", "completed"):
        story.issue("each", loop_index=0)
        story.event(f"command.{outcome}", "each")
    counter = story.exit("each").counter
    assert counter is not None
    assert (counter.total, counter.done, counter.failed) == (3, 3, 1)


def test_frames_are_counted_with_their_rows(story: Story) -> None:
    story.event("stage.opened", "score")
    story.event("frame.committed", "score", rows=500)
    story.event("frame.failed", "score")
    assert story.board.root is not None
    counter = story.board.root.steps["score"].counter
    assert counter is not None
    assert (counter.total, counter.done, counter.failed, counter.rows) == (None, 2, 1, 500)


def test_attempts_are_told_by_notices(story: Story) -> None:
    story.issue("call")
    story.notice("attempt", "call", attempt=1, attempts=4)
    story.notice("waiting", "call", attempt=1, attempts=4, seconds=2.0)
    assert story.board.root is not None
    step = story.board.root.steps["call"]
    assert (step.attempt, step.attempts, step.waiting_until) == (1, 4, story.now + 2.0)
    story.notice("attempt", "call", attempt=2, attempts=4)
    assert (step.attempt, step.waiting_until) == (2, None)
    assert story.exit("call").attempts == 2


def test_the_last_line_that_says_something_is_kept(story: Story) -> None:
    story.issue("call")
    story.notice("log", "call", text="one\ntwo\n ")
    story.notice("log", "call", truncated=True)
    assert story.board.root is not None
    assert story.board.root.steps["call"].log == "two"


def test_a_step_that_was_issued_before_we_looked_appears_when_its_worker_speaks() -> None:
    story = Story()
    story.notice("attempt", "load")
    story.begin()
    assert story.drawn() == ["⠋ team/orders  0 ms"]
    story.notice("attempt", "load")
    assert story.drawn() == ["⠋ team/orders  0 ms", "  ⠋ load  0 ms"]
    assert story.exit("load").took_ms == 0


def test_a_call_is_shown_below_the_step_that_made_it_and_goes_with_its_end(story: Story) -> None:
    story.issue("other", "playbook")
    story.issue("call", "playbook")
    story.begin(CHILD, path="team/inner", parent=ROOT)
    root = story.board.root
    assert root is not None
    assert list(root.called) == [CHILD], "nobody has said which step it was"
    story.event("command.suspended", "call", child_execution_id=CHILD)
    assert (list(root.called), list(root.steps["call"].called)) == ([], [CHILD])
    ended = story.run_in_child("deep")
    assert ended.depth == 1
    story.event("playbook.completed", execution=CHILD, parent=ROOT)
    assert not root.steps["call"].called
    story.event("command.cancelled", "deep", execution=CHILD, parent=ROOT)
    assert not root.called


def test_a_call_whose_step_is_known_before_it_begins(story: Story) -> None:
    story.issue("other", "playbook")
    story.event("command.issued", "call", kind="playbook", child_execution_id=CHILD)
    story.begin(CHILD, path="team/inner", parent=ROOT)
    assert story.board.root is not None
    assert list(story.board.root.steps["call"].called) == [CHILD]


def test_what_runs_when_it_is_cancelled_stays_until_it_has_finished(story: Story) -> None:
    story.issue("load")
    story.event("playbook.cancelled")
    root = story.board.root
    assert root is not None
    assert (root.ended, list(root.steps)) == ("CANCELLED", ["load"])
    story.event("command.cancelled", "load")
    story.notice("log", "load", text="late")
    assert not root.steps


def test_the_board_stays_small(story: Story) -> None:
    for number in range(1000):
        story.run(f"s{number}", "FAILED" if number % 2 else "COMPLETED")
    root = story.board.root
    assert root is not None
    assert root.counts == {"ok": 500, "failed": 500, "skipped": 0}
    assert len(root.recent) + len(root.failures) < 100
