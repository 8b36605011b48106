"""A server as its users reach it: contexts, `noetl run -r server`, and `noetl.connect`."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetl
from tests.e2e.cli import PROJECT_ROOT, Home, Result

HELLO = PROJECT_ROOT / "examples" / "01_hello.yaml"
FAILING = PROJECT_ROOT / "examples" / "07_failure_and_final_step.yaml"
CALLING = PROJECT_ROOT / "examples" / "06_sub_playbook.yaml"
SLOW = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: team/slow}
workflow:
  - {step: only, tool: {kind: python, code: "import time; time.sleep(20)"}}
"""


class Serving:
    """A server of its own home, and a user elsewhere who has a context for it."""

    def __init__(self, place: Path) -> None:
        self.home = Home(place / "server" / "home")
        self.user = Home(place / "user" / "home")
        for home in (self.home, self.user):
            home.path.parent.mkdir(parents=True)
        self.token_file = place / "token"
        made = self.home.json("token", "create", "--name", "ada", "--role", "operator")
        self.token: str = made["token"]
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(self.token, encoding="utf-8")
        self.url: str = self.home.json("server", "start", "--port", "0", "--auth", "token", "--detach")["url"]

    def stop(self) -> None:
        self.home.run("server", "stop")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    started = Serving(tmp_path_factory.mktemp("remote"))
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def user(serving: Serving) -> Home:
    """A user whose current context is the server."""
    added = serving.user.run(
        "context", "add", "there", "--replace", "--url", serving.url, "--token-file", serving.token_file
    )
    assert added.code == 0, added
    assert serving.user.run("context", "use", "there").code == 0
    return serving.user


@pytest.fixture
def server(serving: Serving) -> noetl.Remote:
    return noetl.connect(serving.url, serving.token)


# --- The command line -------------------------------------------------------------------------------------


def test_a_file_is_registered_once_and_runs_there(user: Home) -> None:
    runs = [user.run("run", HELLO, "-r", "server", "--wait", "--json", "--set", f"who={who}") for who in "ab"]
    assert [run.code for run in runs] == [0, 0]
    assert [run.document["result"] for run in runs] == [{"greeting": "Hello, a!"}, {"greeting": "Hello, b!"}]
    assert not user.ledger.exists()


def test_a_run_is_in_the_trace_of_whoever_has_started_it(user: Home) -> None:
    place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    started = user.json("run", HELLO, "-r", "server", env={"TRACEPARENT": place, "TRACESTATE": "vendor=1"})
    first = user.json("events", started["execution_id"], "--context", "there")["events"][0]
    assert first["meta"]["trace"] == {"traceparent": place, "tracestate": "vendor=1"}


def test_a_catalog_path_goes_to_the_current_server_and_returns_once_accepted(user: Home) -> None:
    user.run("run", HELLO, "-r", "distributed", "--wait")
    accepted = user.run("run", "examples/hello", "--json")
    assert accepted.code == 0
    assert set(accepted.document) >= {"execution_id", "status", "result", "error", "checksum"}
    followed = user.run("events", accepted.document["execution_id"], "--context", "there", "--follow", "--json")
    assert '"event_type":"playbook.completed"' in followed.stdout.splitlines()[-1]


def test_a_file_is_registered_there(user: Home, tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text(SLOW.replace("team/slow", "team/kept"), encoding="utf-8")
    for version in (1, 2):
        said = user.run("register", file, "--context", "there", "--json")
        assert said.code == 0, said.stderr
        assert [(one["path"], one["version"]) for one in said.document["registered"]] == [("team/kept", version)]
    assert not user.ledger.exists()
    file.write_text("kind: Playbook\n", encoding="utf-8")
    refused = user.run("register", file, "--context", "there")
    assert (refused.code, str(file) in refused.stderr) == (2, True)
    assert user.run("register", file, "--context", "nowhere").code == 2


def test_a_file_runs_here_unless_the_context_says_otherwise(user: Home) -> None:
    assert user.run("run", HELLO).code == 0
    assert user.ledger.exists()


@pytest.mark.parametrize("word", ["exec", "execute"])
def test_other_words_for_run(user: Home, word: str) -> None:
    assert user.run(word, HELLO, "-r", "server", "--wait").code == 0


def test_a_failure_there_is_a_failure_here(user: Home) -> None:
    failed = user.run("run", FAILING, "-r", "server", "--wait")
    assert failed.code == 1
    assert "PY_LookupError: nothing left to ship" in failed.stderr


def test_an_execution_can_be_asked_for(user: Home) -> None:
    document = user.run("run", FAILING, "-r", "server", "--wait", "--json").document
    execution, there = document["execution_id"], ("--context", "there")
    status = user.run("status", execution, *there, "--json")
    assert (status.code, status.document) == (1, document)
    assert user.json("list", *there, "--path", "examples/reserve")["executions"][0]["execution_id"] == execution
    assert user.json("result", execution, "reserve", *there)["value"] == {"reservation": "R-1"}
    assert user.json("result", execution, *there)["value"] == document["result"]
    page = user.json("events", execution, *there, "--limit", "3")
    assert [event["stream_version"] for event in page["events"]] == [1, 2, 3]
    rest = user.json("events", execution, *there, "--cursor", page["next_cursor"], "--limit", "100")
    assert len(rest["events"]) == document["events"] - 3
    assert user.json("cancel", execution, *there)["status"] == "already_completed"


def test_what_only_a_local_run_can_do_is_refused(user: Home) -> None:
    refused = user.run("run", HELLO, "-r", "server", "-t", "start")
    assert refused.code == 2
    assert "-t is for local runs" in refused.stderr


def test_a_server_that_is_not_there(user: Home) -> None:
    user.run("context", "add", "gone", "--replace", "--url", "http://127.0.0.1:1")
    refused = user.run("status", "5", "--context", "gone")
    assert refused.code == 3
    assert "context 'gone': http://127.0.0.1:1 cannot be reached" in refused.stderr
    assert "noetl context add gone" in refused.stderr


def test_a_token_that_does_not_hold(user: Home, serving: Serving) -> None:
    user.run("context", "add", "wrong", "--replace", "--url", serving.url, "--token-env", "WRONG")
    refused = user.run("list", "--context", "wrong", env={"WRONG": "planted-secret"})
    assert refused.code == 2
    assert "context 'wrong'" in refused.stderr
    assert "--token-env VAR" in refused.stderr
    assert "planted-secret" not in refused.stdout + refused.stderr
    unset = user.run("list", "--context", "wrong")
    assert (unset.code, "WRONG, which is not set" in unset.stderr) == (2, True)


def test_contexts_keep_no_token_and_are_private(user: Home, serving: Serving) -> None:
    file = user.path.parent / ".config" / "noetl" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown: list[Result] = [user.run("context", *words) for words in (("list",), ("list", "--json"), ("current",))]
    assert serving.token not in file.read_text(encoding="utf-8") + "".join(one.stdout + one.stderr for one in shown)


def test_the_life_of_a_context(new_home: Home) -> None:
    new_home.path.parent.mkdir(exist_ok=True)
    assert new_home.json("context", "current")["name"] == "local"
    new_home.json("context", "add", "a", "--url", "http://127.0.0.1:1/")
    new_home.json("context", "add", "b", "--url", "http://127.0.0.1:2", "--runtime", "server")
    assert new_home.json("context", "current")["name"] == "a"
    assert new_home.json("context", "use", "b")["runtime"] == "distributed"
    assert new_home.json("context", "set-runtime", "local")["runtime"] == "local"
    assert new_home.json("context", "delete", "b")["current"] == "local"
    assert [one["name"] for one in new_home.json("context", "list")["contexts"]] == ["a"]
    assert new_home.run("context", "use", "b").code == 2


# --- From Python ------------------------------------------------------------------------------------------


def test_a_run_there_is_like_a_run_here(server: noetl.Remote, tmp_path: Path) -> None:
    heard: list[Any] = []
    there = server.run(CALLING, on_event=heard.append)
    here = noetl.run(CALLING, home=tmp_path / "home")
    assert (there.status, there.result) == (here.status, here.result)
    assert there.step("add_up").table().equals(here.step("add_up").table())
    assert [line.name for line in there.steps] == [line.name for line in here.steps]
    assert heard == list(there.events())
    assert there.replay().checksum == there.checksum
    assert there.verify()
    assert "COMPLETED" in there._repr_html_()


def test_failures_there_are_the_errors_of_here(server: noetl.Remote) -> None:
    with pytest.raises(noetl.ExecutionFailed, match="at step 'ship'"):
        server.run(FAILING, check=True)
    with pytest.raises(noetl.NotFound):
        server.get(7)
    with pytest.raises(noetl.NotFound):
        server.run("team/absent")
    with pytest.raises(noetl.NotFound, match="steps that ended"):
        server.run(HELLO).step("absent")


def test_an_execution_that_nobody_waits_for_can_be_watched_and_ended(server: noetl.Remote) -> None:
    run = server.run(SLOW, wait=False)
    assert run.status == "RUNNING"
    assert next(run.events()).event_type == "playbook.initialized"
    with pytest.raises(TimeoutError):
        run.wait(timeout=0.2)
    assert run.cancel("enough") is True
    assert run.wait(timeout=20).status == "CANCELLED"


def test_a_failed_run_is_retried_there(server: noetl.Remote, tmp_path: Path) -> None:
    text = SLOW.replace("team/slow", "team/odd").replace("import time; time.sleep(20)", "result = 10 // n")
    file = tmp_path / "odd.yaml"
    file.write_text(text.replace("{kind: python", "{kind: python, input: {n: '{{ n }}'}"), encoding="utf-8")
    failed = server.run(file, n=0)
    assert failed.status == "FAILED"
    again = failed.retry(n=5)
    assert (again.status, again.result) == ("COMPLETED", 2)
    assert again.execution_id != failed.execution_id
    with pytest.raises(noetl.InvalidInput, match="no step of it has failed"):
        again.retry()


def test_a_run_that_takes_too_long_is_cancelled_there(server: noetl.Remote) -> None:
    with pytest.raises(noetl.ExecutionTimedOut) as late:
        server.run(SLOW, timeout=0.5)
    assert late.value.run.wait(timeout=20).status == "CANCELLED"


def test_the_same_key_is_the_same_execution_there(server: noetl.Remote) -> None:
    assert server.run(HELLO, key="monday").execution_id == server.run(HELLO, key="monday").execution_id


async def test_runs_there_can_be_awaited_together(server: noetl.Remote) -> None:
    runs = await asyncio.gather(*(server.arun(HELLO, who=who) for who in "abc"))
    assert [run.result["greeting"] for run in runs] == ["Hello, a!", "Hello, b!", "Hello, c!"]


def test_a_server_that_does_not_know_us(serving: Serving) -> None:
    stranger = noetl.connect(serving.url, "wrong")
    with pytest.raises(noetl.NoetlError, match=serving.url):
        stranger.executions()
    assert os.environ.get("NOETL_TOKEN") is None
