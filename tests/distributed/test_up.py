"""`noetl up` and `noetl down`: one stack as its user has it, whose processes are killed one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from noetl.cli.stacks import document_of
from noetl.deploy.local.control import standing
from noetl.deploy.local.locks import is_held
from noetl.deploy.local.nats import find_nats
from noetl.deploy.local.place import Place
from noetl.deploy.local.ports import free_ports
from noetl.deploy.local.postgres import find_programs
from noetl.errors import Unavailable
from tests.e2e.cli import Home
from tests.e2e.test_examples import EXAMPLES, EXPECTED
from tests.services.emulator import NOT_AVAILABLE

Document = dict[str, Any]
KINDS = ("postgres", "nats", "server", "outbox", "projector", "worker")
SLOW = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: tests/slow}
workflow:
  - step: wait
    tool: {kind: python, code: "import time; time.sleep(2); result = {'done': True}"}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    try:
        find_programs()
        find_nats()
    except Unavailable as error:
        pytest.skip(f"{NOT_AVAILABLE}: stack: {error}")
    home = Home(tmp_path_factory.mktemp("stack") / "home")
    yield home
    home.run("down", "--now", "--purge", "--yes")


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Home]:
    """A home for a stack of the test's own, which does not outlive it."""
    home = Home(tmp_path / "home")
    yield home
    home.run("down", "--now", "--purge", "--yes")


@pytest.fixture(scope="module")
def up(home: Home) -> Document:
    """The stack as it was brought up. Tests of this module follow each other and change it."""
    return home.json("up", "--projectors", "2", "--port", str(free_ports(1)[0]))


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked how may still be listed, by a machine without an init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def status(home: Home) -> Document:
    """What `noetl up --status --json` says, without the start of a process."""
    found = standing(Place(home.path))
    assert found is not None
    return document_of(found)


def is_up(home: Home) -> bool:
    return bool(status(home)["status"] == "up")


def run_example(home: Home, name: str) -> Document:
    result = home.run("run", EXAMPLES / f"{name}.yaml", "--wait", "--json")
    assert result.code in (0, 1), result
    return result.document


class TestUp:
    def test_says_where_everything_is(self, home: Home, up: Document) -> None:
        assert {"url", "token", "postgres", "nats", "home", "pids", "console"} <= up.keys()
        assert up["home"] == str(home.path)
        assert {"supervisor", *KINDS[:4], "projector-0", "projector-1", "worker-0", "worker-1"} == up["pids"].keys()
        assert httpx.get(f"{up['url']}/api/health").status_code == 200
        assert home.json("up", "--status") == status(home) == up

    def test_its_keys_are_for_nobody_else(self, home: Home, up: Document) -> None:
        for name in ("stack.json", "stack.env", "stack.token", "nats/nats.conf", "run/state.json"):
            assert stat.S_IMODE((home.path / name).stat().st_mode) == 0o600, name
        assert stat.S_IMODE((home.path / "logs").stat().st_mode) == 0o700

    def test_nobody_enters_without_a_key(self, up: Document) -> None:
        assert httpx.get(f"{up['url']}/api/executions").status_code == 401
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(up["postgres"].replace("password=", "password=x"), connect_timeout=5)
        answer = httpx.get(f"{up['url']}/api/executions", headers={"Authorization": f"Bearer {up['token']}"})
        assert answer.status_code == 200
        with psycopg.connect(up["postgres"]) as connection:
            row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
            assert row == (False,)

    def test_nats_lets_nobody_in_without_a_password_and_writes_before_it_acknowledges(
        self, home: Home, up: Document
    ) -> None:
        ports = json.loads((home.path / "stack.json").read_text())["ports"]
        with socket.create_connection(("127.0.0.1", ports["nats"]), timeout=5) as connection:
            assert b'"auth_required":true' in connection.recv(4096)
        found = httpx.get(f"http://127.0.0.1:{ports['nats-monitor']}/jsz", params={"config": "true"}).json()
        assert found["config"]["sync_always"]

    @pytest.mark.parametrize(
        ("name", "ends", "result"),
        [(name, ends, result) for name, given, ends, result in EXPECTED if not given and name < "08"],
    )
    def test_an_example_runs_unchanged(self, home: Home, up: Document, name: str, ends: str, result: Any) -> None:
        ended = run_example(home, name)
        assert (ended["status"], ended["result"]) == (ends, result)

    def test_what_ran_can_be_proven_from_its_database(self, home: Home, up: Document) -> None:
        said = home.json("verify", "--all", env={"NOETL_DATABASE": up["postgres"]})
        assert said["ok"]
        assert all(one["keyed"] for one in said["results"])

    def test_a_second_up_changes_nothing(self, home: Home, up: Document) -> None:
        assert home.json("up")["pids"] == up["pids"]

    def test_the_shell_finds_it_by_its_note(self, home: Home, up: Document) -> None:
        text = (home.path / "stack.env").read_text()
        assert f"export NOETL_DATABASE='{up['postgres']}'" in text

    def test_more_workers_join_those_that_work(self, home: Home, up: Document) -> None:
        more = home.json("up", "--workers", "3")
        assert "worker-2" in more["pids"]
        assert {name: pid for name, pid in more["pids"].items() if name != "worker-2"} == up["pids"]
        fewer = home.json("up", "--workers", "2")
        assert fewer["pids"] == up["pids"]
        assert not is_held(home.path / "run" / "worker-2.lock")


class TestKilled:
    def test_one_of_each_kind_is_started_again(self, home: Home, up: Document) -> None:
        victims = {name: up["pids"][name] for name in (*KINDS[:4], "projector-0", "worker-0")}
        for pid in victims.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: status(home)["pids"].items() & victims.items() == set() and is_up(home), "not all came back")
        found = {part["name"]: part["restarts"] for part in status(home)["parts"]}
        assert all(found[name] >= 1 for name in victims), found
        assert found["worker-1"] == 0
        assert run_example(home, "01_hello")["status"] == "COMPLETED"

    def test_a_killed_supervisor_takes_nobody_with_it(self, home: Home, up: Document) -> None:
        before = status(home)
        os.kill(before["pids"]["supervisor"], signal.SIGKILL)
        wait_until(lambda: "supervisor" not in status(home)["pids"], "the supervisor lives")
        alone = home.run("up", "--status")
        assert alone.code == 3
        assert "its supervisor is gone" in alone.stderr
        after = home.json("up")["pids"]
        assert after.pop("supervisor") != before["pids"].pop("supervisor")
        assert after == before["pids"]

    def test_everything_killed_comes_back_with_all_that_was_acknowledged(self, home: Home, up: Document) -> None:
        listed = [one["execution_id"] for one in home.json("list")["executions"]]
        pids = status(home)["pids"]
        for pid in (pids.pop("supervisor"), *pids.values()):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: status(home)["pids"] == {}, "somebody lives")
        again = home.json("up")
        assert (again["url"], again["token"]) == (up["url"], up["token"])
        assert [one["execution_id"] for one in home.json("list")["executions"]] == listed
        assert run_example(home, "04_loop")["status"] == "COMPLETED"

    def test_what_a_killed_supervisor_leaves_is_found_by_down(self, home: Home, up: Document) -> None:
        """And workers finish what they have begun before anybody else is stopped."""
        playbook = home.path.parent / "slow.yaml"
        playbook.write_text(SLOW)
        started = home.run("run", playbook, "--json").document["execution_id"]
        wait_until(lambda: home.json("status", started)["events"] >= 4, "it does not begin")
        os.kill(status(home)["pids"]["supervisor"], signal.SIGKILL)
        said = home.json("down")
        assert said["killed"] == []
        assert said["stopped"][:2] == ["worker-0", "worker-1"]
        assert set(said["stopped"][-2:]) == {"nats", "postgres"}
        assert status(home)["pids"] == {}
        assert home.json("context", "current")["name"] == "local"
        home.json("up")
        assert home.json("status", started)["status"] == "COMPLETED"


class TestDown:
    def test_asks_before_it_deletes(self, home: Home, up: Document) -> None:
        refused = home.run("down", "--purge")
        assert refused.code == 2
        assert "--yes" in refused.stderr
        assert is_up(home)

    def test_leaves_nothing_when_it_is_told_so(self, home: Home, up: Document) -> None:
        pids = status(home)["pids"].values()
        said = home.json("down", "--purge", "--yes")
        assert said["purged"]
        assert not home.path.exists()
        for pid in pids:
            wait_until(lambda pid=pid: is_gone(pid), f"process {pid} lives")  # type: ignore[misc]
        assert home.json("context", "list") == {"current": "local", "contexts": []}
        assert "there is no stack" in home.run("down").stderr
        assert home.run("up", "--status").code == 3


class TestForeground:
    def test_it_stays_until_somebody_brings_it_down(self, spare: Home) -> None:
        process = spare.start("up", "--foreground", "--workers", "1", "--port", str(free_ports(1)[0]), "--json")
        try:
            assert process.stdout is not None
            up = json.loads(process.stdout.readline())
            assert up["pids"]["supervisor"] == process.pid
            (spare.path / "stack.token").unlink()  # whoever asks again is told again
            again = spare.json("up")
            assert (again["pids"], (spare.path / "stack.token").exists()) == (up["pids"], True)
            assert run_example(spare, "01_hello")["status"] == "COMPLETED"
            assert spare.json("down")["killed"] == []
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.communicate()


class TestFailure:
    def test_a_process_that_does_not_start_is_named_with_what_it_said(self, spare: Home) -> None:
        (spare.path / "nats").mkdir(parents=True)
        (spare.path / "nats" / "jetstream").write_text("not a directory")
        failed = spare.run("up", "--storage-only")
        assert failed.code == 3
        assert "error: nats did not start" in failed.stderr
        assert "is not a directory" in failed.stderr
        assert f"fix: see {spare.path / 'logs' / 'nats.log'}" in failed.stderr
        assert spare.json("down")["stopped"] == []

    def test_a_home_with_a_log_of_its_own_is_refused(self, spare: Home) -> None:
        spare.run("run", EXAMPLES / "01_hello.yaml")
        refused = spare.run("up")
        assert (refused.code, "has a log of its own" in refused.stderr) == (2, True)

    def test_a_port_that_is_taken_is_refused(self, spare: Home) -> None:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
            port = other.getsockname()[1]
            refused = spare.run("up", "--port", str(port))
        assert refused.code == 3
        assert f"port {port} is used by another program" in refused.stderr
