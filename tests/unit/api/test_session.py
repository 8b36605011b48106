"""Running playbooks from Python: what goes in, what comes out, how it ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import noetl
from noetl.kernel.event import Envelope
from noetl.playbook.document import Playbook
from noetl.tools import registry
from tests.unit.api.books import FAILING, HELLO, calling


@pytest.fixture(autouse=True)
def own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that a test registers are gone with it."""
    monkeypatch.setattr(registry, "_user_tools", {})


@pytest.fixture
def session(home: Path) -> Iterator[noetl.Session]:
    with noetl.open(home) as opened:
        yield opened


def test_a_run_has_its_result_its_time_and_its_checksum(home: Path) -> None:
    run = noetl.run(HELLO, home=home, who="you")
    assert (run.status, run.ok, run.result, run.error) == ("COMPLETED", True, {"said": "Hello, you!"}, None)
    assert run.path == "team/t"
    assert run.duration is not None
    assert run.duration >= 0
    assert run.checksum == run.replay().checksum
    assert repr(run) == f"Run({run.execution_id}, team/t, COMPLETED)"


def test_names_that_are_keywords_come_by_workload(home: Path) -> None:
    text = HELLO.replace("{who: world}", "{key: k, timeout: 1}").replace("{{ who }}", "{{ key }} {{ timeout }}")
    assert noetl.run(text, home=home, workload={"key": "door", "timeout": 9}).result == {"said": "Hello, door 9!"}


def test_a_builder_runs_and_is_recorded_as_ephemeral(home: Path) -> None:
    made = Playbook.builder("made").workload(n=2).step("a").tool("noop", result={"n": "{{ n }}"}).build()
    run = noetl.run(made, home=home, n=5)
    document = run.replay().surfaces["execution"][0]["document"]
    assert run.result == {"n": 5}
    assert (document["origin"], document["path"]) == ("ephemeral", "made")


def test_a_parent_and_the_root_above_it_are_recorded(home: Path) -> None:
    root = noetl.run(HELLO, home=home)
    child = noetl.run(HELLO, home=home, parent_execution_id=root.execution_id)
    below = noetl.run(HELLO, home=home, parent_execution_id=str(child.execution_id))
    row = below.replay().surfaces["execution"][0]
    assert (row["parent_execution_id"], row["root_execution_id"]) == (child.execution_id, root.execution_id)


def test_a_parent_that_is_not_there_runs_nothing(home: Path) -> None:
    noetl.run(HELLO, home=home)
    with pytest.raises(noetl.NotFound, match="there is no execution 7"):
        noetl.run(HELLO, home=home, parent_execution_id=7)


def test_the_same_key_gives_the_same_execution(home: Path) -> None:
    first, second = (noetl.run(HELLO, home=home, key="monday") for _ in range(2))
    assert first.execution_id == second.execution_id
    assert first.checksum == second.checksum


async def test_it_runs_inside_a_running_loop(home: Path) -> None:
    assert noetl.run(HELLO, home=home).ok
    assert (await noetl.arun(HELLO, home=home)).ok


def test_events_are_heard_in_the_callers_thread_as_they_stand_in_the_log(home: Path) -> None:
    heard: list[tuple[Envelope, threading.Thread]] = []
    run = noetl.run(HELLO, home=home, on_event=lambda event: heard.append((event, threading.current_thread())))
    assert [event for event, _ in heard] == list(run.events())
    assert {thread for _, thread in heard} == {threading.current_thread()}


def test_a_listener_that_raises_cancels_the_execution(home: Path) -> None:
    def refuse(event: Envelope) -> None:
        raise ZeroDivisionError

    release = threading.Event()

    @noetl.tool("gate")
    def gate() -> None:
        release.wait(20)

    with noetl.open(home) as session:
        with pytest.raises(ZeroDivisionError):
            session.run(calling("gate"), on_event=refuse)
        release.set()
        assert [run.status for run in session.executions()] == ["CANCELLED"]


# --- Failure ----------------------------------------------------------------------------------------------


def test_a_failed_run_says_where_and_why(home: Path) -> None:
    run = noetl.run(FAILING, home=home)
    assert (run.status, run.failed_step) == ("FAILED", "only")
    assert run.error is not None
    assert run.error["code"] == "PY_LookupError"
    with pytest.raises(noetl.ExecutionFailed, match="failed at step 'only': PY_LookupError") as failed:
        run.raise_for_status()
    assert (failed.value.step, failed.value.run, failed.value.execution_id) == ("only", run, run.execution_id)


def test_with_check_a_failure_raises_and_a_success_does_not(home: Path) -> None:
    assert noetl.run(HELLO, home=home, check=True).ok
    with pytest.raises(noetl.ExecutionFailed):
        noetl.run(FAILING, home=home, check=True)


def test_a_run_that_takes_too_long_is_cancelled(home: Path) -> None:
    with pytest.raises(noetl.ExecutionTimedOut, match=r"longer than 0\.3 s and was cancelled") as late:
        noetl.run(calling("python", code="import time; time.sleep(0.8)"), home=home, timeout=0.3)
    assert isinstance(late.value, TimeoutError)
    assert late.value.run.status == "CANCELLED"
    assert late.value.run.verify()


async def test_cancelling_a_task_cancels_its_execution(home: Path) -> None:
    begun = asyncio.Event()

    def notice(event: Envelope) -> None:
        if event.event_type == "command.issued":
            begun.set()

    with noetl.open(home) as session:
        code = "import time; time.sleep(0.5)"
        task = asyncio.create_task(session.arun(calling("python", code=code), on_event=notice))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [run.status for run in session.executions()] == ["CANCELLED"]


def test_no_time_at_all_is_refused_before_anything_is_made(home: Path) -> None:
    with pytest.raises(noetl.InvalidInput, match="leaves no time"):
        noetl.run(HELLO, home=home, timeout=0)
    assert not home.exists()


def test_an_invalid_document_makes_nothing(home: Path) -> None:
    with pytest.raises(noetl.InvalidDocument):
        noetl.run("kind: Playbook\n", home=home)
    assert not home.exists()


def test_a_catalog_path_that_leads_nowhere_makes_nothing(home: Path) -> None:
    with pytest.raises(noetl.NotFound, match="neither a file nor a registered playbook 'team/absent'"):
        noetl.run("team/absent", home=home)
    assert not home.exists()


# --- Tools in Python --------------------------------------------------------------------------------------


def test_functions_become_tools(home: Path) -> None:
    @noetl.tool("double")
    def double(n: int) -> dict[str, int]:
        return {"n": 2 * n}

    @noetl.tool("triple")
    async def triple(n: int) -> dict[str, int]:
        return {"n": 3 * n}

    assert noetl.run(calling("double", input={"n": 4}), home=home).result == {"n": 8}
    assert noetl.run(calling("triple", input={"n": 4}), home=home).result == {"n": 12}


# --- Sessions ---------------------------------------------------------------------------------------------


def test_a_session_registers_runs_lists_and_finds(session: noetl.Session) -> None:
    assert session.register(HELLO) == [{"path": "team/t", "version": 1, "kind": "Playbook"}]
    runs = [session.run("team/t", who=who) for who in ("a", "b")]
    assert [run.execution_id for run in session.executions(path="team/t")] == [
        runs[1].execution_id,
        runs[0].execution_id,
    ]
    assert session.executions(status="FAILED") == []
    assert session.get(str(runs[0].execution_id)).result == {"said": "Hello, a!"}


def test_a_catalog_path_cannot_be_registered(session: noetl.Session) -> None:
    with pytest.raises(noetl.InvalidInput, match="'team/t' is a catalog path"):
        session.register("team/t")


async def test_several_runs_at_once_hear_only_their_own_events(session: noetl.Session) -> None:
    heard: list[list[Envelope]] = [[], [], []]
    runs = await asyncio.gather(*(session.arun(HELLO, on_event=own.append) for own in heard))
    for run, own in zip(runs, heard, strict=True):
        assert {event.execution_id for event in own} == {run.execution_id}
        assert own == list(run.events())


def test_events_of_called_playbooks_are_heard_too(session: noetl.Session) -> None:
    session.register(HELLO)
    heard: list[Envelope] = []
    run = session.run(
        calling("playbook", path="team/t").replace("path: team/t", "path: team/caller"), on_event=heard.append
    )
    assert run.ok
    assert {event.execution_id == run.execution_id for event in heard} == {True, False}


def test_a_run_can_be_asked_after_its_session_is_closed(home: Path) -> None:
    with noetl.open(home) as session:
        run = session.run(HELLO)
    assert run.step("words").table().to_pylist() == [{"word": "pear"}, {"word": "fig"}]
    assert repr(session).endswith("closed)")
    with pytest.raises(noetl.InvalidInput, match="closed"):
        session.run(HELLO)
    session.close()


def test_a_home_that_cannot_be_made_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(noetl.Unavailable, match="cannot create the home"):
        noetl.open(tmp_path / "file" / "home")


def test_an_execution_that_is_not_there(session: noetl.Session) -> None:
    with pytest.raises(noetl.NotFound, match="there is no execution 7"):
        session.get(7)
    for wrong in ("x", 0, -1, True):
        with pytest.raises(noetl.InvalidInput, match="is not an execution id"):
            session.get(wrong)


# --- The run afterwards -----------------------------------------------------------------------------------


def test_a_step_that_has_no_result_names_those_that_have(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    with pytest.raises(noetl.NotFound, match=r"no result of step 'absent'.*steps that ended: start, words, last"):
        run.step("absent")


def test_steps_are_listed_with_how_they_ended(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    assert [(line.name, line.status, line.runs, line.iterations) for line in run.steps] == [
        ("start", "COMPLETED", 1, None),
        ("words", "COMPLETED", 1, 2),
        ("last", "COMPLETED", 1, None),
    ]


def test_events_can_be_asked_for_by_type(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    assert [event.node_name for event in run.events("step.exit")] == ["start", "words", "last"]
    assert [event.event_type for event in run.events({"playbook_started", "playbook.completed"})] == [
        "playbook.initialized",
        "playbook.completed",
    ]


def test_a_replay_at_an_event_a_position_and_a_time(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    events = list(run.events())
    middle = events[len(events) // 2]
    at_event, at_position = run.replay(middle.event_id), run.replay(at=len(events) // 2 + 1)
    assert at_event.checksum == at_position.checksum == run.replay(str(middle.event_id)).checksum
    assert at_event.event_count == len(events) // 2 + 1
    assert run.replay(events[-1].ingest_time) == run.replay()
    assert at_event.checksum != run.checksum


def test_every_moment_of_a_log_folds_to_one_state(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    states = [run.replay(event.event_id) for event in itertools.islice(run.events(), 5)]
    assert [state.event_count for state in states] == [1, 2, 3, 4, 5]


def test_a_run_verifies_and_a_changed_one_does_not(home: Path) -> None:
    import sqlite3

    run = noetl.run(HELLO, home=home)
    changed = {event.event_id for event in run.events("call.done")}
    assert run.verify().ok
    with sqlite3.connect(home / "ledger.db") as ledger:
        ledger.execute("UPDATE event SET payload = '{}' WHERE event_type = 'call.done'")
    ledger.close()
    proof = run.verify()
    assert not proof
    assert proof.first_bad_event in changed
    with pytest.raises(noetl.NoetlError, match=f"execution {run.execution_id}"):
        proof.raise_for_status()


def test_a_run_gives_evidence_and_so_does_one_that_does_not_verify(home: Path, tmp_path: Path) -> None:
    import sqlite3

    from noetl.replay.evidence import check_evidence

    run = noetl.run(HELLO, home=home)
    given = run.evidence(tmp_path / "sound", sign=True)
    assert (given.ok, given.checksum, given.scope.execution_id) == (True, run.checksum, run.execution_id)
    assert check_evidence(tmp_path / "sound", trusted=given.signed_by).ok
    with sqlite3.connect(home / "ledger.db") as ledger:
        ledger.execute("UPDATE event SET node_name = 'x' WHERE event_type = 'call.done'")
    ledger.close()
    given = run.evidence(str(tmp_path / "changed"))
    assert (given.ok, given.chain) == (False, False)
    assert "replay-state.json" in {problem.artifact for problem in check_evidence(tmp_path / "changed").problems}


def test_what_tasks_printed_is_kept(home: Path) -> None:
    run = noetl.run(calling("python", code="print('one')\nprint('two')\nresult = 1"), home=home)
    assert [(line.step, line.text) for line in run.logs()] == [("only", "one"), ("only", "two")]
    assert list(run.logs("absent")) == []


def test_a_retry_takes_over_what_was_done(home: Path) -> None:
    last = """{kind: python, input: {n: "{{ n }}"}, code: "result = {'q': 1 // n}"}"""
    failing = HELLO.replace('{kind: noop, result: {said: "{{ start.greeting }}"}}', last)
    failed = noetl.run(failing.replace("{who: world}", "{who: world, n: 0}"), home=home)
    assert (failed.status, failed.failed_step) == ("FAILED", "last")
    again = failed.retry(n=1)
    assert again.ok
    assert again.execution_id != failed.execution_id
    assert [event.node_name for event in again.events("command.issued")] == ["last"]


def test_what_has_ended_cannot_be_cancelled(home: Path) -> None:
    assert noetl.run(HELLO, home=home).cancel() is False


def test_waiting_for_what_has_ended_gives_it(home: Path) -> None:
    run = noetl.run(HELLO, home=home)
    assert run.wait() is run
