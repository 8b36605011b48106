"""Run here, deliver there: what a run leaves as files, and what a server makes of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow import feather

from noetl.archive.columns import EVENT_SCHEMA
from noetl.archive.parcel import pack
from tests.e2e.cli import Home
from tests.e2e.conftest import LargeLog
from tests.e2e.scenes import END, Scene, at_the_gate, book, chain, running

CALLING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: child}
workflow:
  - step: only
    tool: {kind: python, code: "result = {'text': 'y' * 100000}"}
---
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: parent}
workload: {n: 3}
workflow:
  - step: big
    tool: {kind: python, code: "result = {'text': 'x' * 200000}"}
    set: {ctx.big: "{{ output.data.text }}"}
    next: {arcs: [{step: items}]}
  - step: items
    loop: {in: "{{ range(n) | list }}", iterator: i}
    tool: {kind: noop}
    next: {arcs: [{step: call}]}
  - step: call
    tool: {kind: playbook, path: child}
"""
FAILING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: failing, path: failing}
workflow:
  - step: only
    tool: {kind: python, code: "raise ValueError('no')"}
"""


class Server:
    """A server on a home, as a process that can be killed."""

    def __init__(self, home: Home, env: dict[str, str] | None = None) -> None:
        self.home = home
        self.env = env
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *args: str) -> None:
        self.process = self.home.start("server", "--port", "0", *args, env=self.env, stderr=subprocess.STDOUT)
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line.decode()
            found = line.decode().partition("listening at ")[2]
            if found:
                self.url = found.split()[0]
                return
        raise AssertionError(f"the server did not start: {said}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=END)


@contextlib.contextmanager
def serving(home: Home, *args: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    server = Server(home, env)
    server.start(*args)
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()


@pytest.fixture
def there(tmp_path: Path) -> Home:
    return Home(tmp_path / "there")


@pytest.fixture
def parent(new_home: Home, tmp_path: Path) -> dict[str, Any]:
    """A run that has called another, kept as files."""
    file = tmp_path / "calling.yaml"
    file.write_text(CALLING, encoding="utf-8")
    return new_home.json("run", file, "--offline")


def buffers(home: Home) -> list[Path]:
    return sorted((home.path / "local").iterdir())


def metadata(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "metadata.json").read_bytes())
    return found


# --- What a run leaves


def test_a_run_and_those_it_called_are_kept_as_files(new_home: Home, parent: dict[str, Any]) -> None:
    assert parent["buffer"] == str(new_home.path / "local" / parent["execution_id"])
    own, child = sorted(buffers(new_home), key=lambda place: metadata(place)["parent_execution_id"] or "")
    assert own.name == parent["execution_id"]
    for place in (own, child):
        assert sorted(entry.name for entry in place.iterdir()) == [
            "commands.feather", "events.feather", "metadata.json", "payloads",
        ]  # fmt: skip
    said = metadata(own)
    assert (said["status"], said["playbook_path"], said["event_count"]) == ("COMPLETED", "parent", parent["events"])
    assert said["head"]["version"] <= said["event_count"]
    assert metadata(child)["root_execution_id"] == own.name
    events = feather.read_table(own / "events.feather").to_pylist()
    assert events[0]["event_type"] == "playbook.initialized"
    assert {row["step"] for row in events} >= {"big", "items", "call"}
    assert any((row["payload_ref"] or "").startswith("local://payloads/") for row in events)
    assert feather.read_table(own / "commands.feather").num_rows >= 5


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_a_run_that_did_not_go_well_is_kept_too(status: str, scene: Scene, tmp_path: Path) -> None:
    if status == "FAILED":
        (tmp_path / "failing.yaml").write_text(FAILING, encoding="utf-8")
        assert scene.home.run("run", tmp_path / "failing.yaml", "--offline").code == 1
    else:
        with at_the_gate(scene, "run", chain(scene), "--set", "stop=b", "--offline") as process:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            while b"cancelling" not in process.stderr.readline():
                assert process.poll() is None
            scene.gate.write_text("")  # whoever waits at it may go
            process.communicate(timeout=END)
    (place,) = buffers(scene.home)
    assert metadata(place)["status"] == status


def test_a_run_that_was_killed_leaves_nothing_until_it_is_resumed(scene: Scene) -> None:
    with at_the_gate(scene, "run", chain(scene), "--set", "stop=b", "--offline") as process:
        process.kill()
        process.communicate(timeout=END)
    assert not (scene.home.path / "local").exists()
    (execution,) = scene.roots()
    refused = scene.home.run("push", execution, "--dry-run")
    assert refused.code == 2
    assert f"execution {execution} has not ended" in refused.stderr
    scene.open_gate()
    resumed = scene.home.json("resume", execution, "--offline")
    assert metadata(Path(resumed["buffer"]))["status"] == "COMPLETED"


def test_a_disk_without_room_is_said_and_the_run_is_not_lost(new_home: Home, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(json.dumps(book("one", {"step": "a", "tool": {"kind": "noop"}})))
    new_home.json("run", tmp_path / "book.yaml")
    (new_home.path / "local").write_text("in the way")
    result = new_home.run("run", tmp_path / "book.yaml", "--offline")
    assert result.code == 3
    assert "ended COMPLETED, but was not kept as files" in result.stderr
    assert "noetl push" in result.stderr
    assert {one["status"] for one in new_home.json("list")["executions"]} == {"COMPLETED"}


# --- What a server makes of it


def test_the_copy_is_the_same_and_again_is_harmless(new_home: Home, there: Home, parent: dict[str, Any]) -> None:
    execution = parent["execution_id"]
    with serving(there) as server:
        first = new_home.json("push", execution, "--to", server.url)
        assert (first["status"], first["url"]) == ("completed", server.url)
        assert len(first["executions"]) == 2
        before = there.json("events", execution, "--limit", "1000")
        second = new_home.json("push", execution, "--to", server.url)
        assert (second["status"], second["written"], second["position"]) == ("already there", 0, first["position"])
        assert there.json("events", execution, "--limit", "1000") == before
    for one in first["executions"]:
        verified = there.json("verify", one)
        assert (verified["chain"], verified["parity"]) == ("ok", True)
        assert there.json("replay", one, "--resolve-payloads")["checksum"] == new_home.json("replay", one)["checksum"]
    assert there.json("replay", execution)["checksum"] == parent["checksum"]
    assert there.run("verify", "--all").code == 0
    assert there.json("result", execution)["value"] == new_home.json("result", execution)["value"]


def test_a_run_that_was_not_kept_is_made_into_files_first(new_home: Home, there: Home, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(json.dumps(book("one", {"step": "a", "tool": {"kind": "noop"}})))
    execution = new_home.json("run", tmp_path / "book.yaml")["execution_id"]
    checked = new_home.json("push", execution, "--dry-run")
    assert checked["status"] == "not sent"
    with serving(there) as server:
        pushed = new_home.run("push", execution, "--to", server.url)
    assert (pushed.code, pushed.stdout) == (0, "")
    assert pushed.stderr.startswith(f"Pushed {checked['events']} events and 1 payloads of {execution} to http://")


def test_by_a_context_with_a_token(new_home: Home, there: Home, parent: dict[str, Any]) -> None:
    token = there.json("token", "create", "--name", "ci", "--role", "operator")["token"]
    execution = parent["execution_id"]
    with serving(there, "--auth", "token") as server:
        added = new_home.run("context", "add", "there", "--url", server.url, "--token-env", "THERE_TOKEN")
        assert added.code == 0, added
        refused = new_home.run("push", execution, "--to", server.url)
        assert refused.code == 2
        assert "token" in refused.stderr
        env = {"THERE_TOKEN": token}
        assert new_home.json("push", execution, env=env)["status"] == "completed"
        assert new_home.json("push", execution, "--context", "there", env=env)["status"] == "already there"
        by_flag = ("push", execution, "--to", server.url, "--token-env", "THERE_TOKEN")
        assert new_home.json(*by_flag, env=env)["status"] == "already there"
        unset = new_home.run(*by_flag)
        assert (unset.code, "the variable THERE_TOKEN is not set" in unset.stderr) == (2, True)
    assert token not in there.run("events", "tenant/default").stdout


def test_another_tenant(new_home: Home, there: Home, parent: dict[str, Any]) -> None:
    execution = parent["execution_id"]
    with serving(there, env={"NOETL_TENANT__ID": "labs"}) as server:
        refused = new_home.run("push", execution, "--to", server.url)
        assert refused.code == 2
        assert "the execution is of tenant 'default'" in refused.stderr
        assert "--as labs" in refused.stderr
        assert there.json("list")["executions"] == []
        taken = new_home.json("push", execution, "--to", server.url, "--as", "labs")
        assert taken["status"] == "completed"
        assert new_home.json("push", execution, "--to", server.url, "--as", "labs")["status"] == "already there"
    assert there.json("verify", execution, "--tenant", "labs")["parity"] is True
    accepted = there.json("events", "tenant/labs")["events"][0]
    assert (
        accepted["payload"]["original"]["head"]["chain_hash"] == metadata(Path(taken["buffer"]))["head"]["chain_hash"]
    )


def test_a_server_that_is_not_there(new_home: Home, parent: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    refused = new_home.run("push", parent["execution_id"], "--to", url)
    assert refused.code == 3
    assert f"{url} cannot be reached: Cannot connect to host" in refused.stderr
    assert "see that the server runs (noetl server) and that the address is right" in refused.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--to", "ftp://example.org"), 2, "is not the address of a server"),
        (("--to", "http://me:secret@example.org"), 2, "an address does not hold a password"),
        ((), 2, "there is no server to push to"),
        (("--context", "nowhere"), 2, "there is no context 'nowhere'"),
        (("--context", "a", "--to", "http://b"), 2, "both name a server"),
    ],
)
def test_ways_to_get_it_wrong(
    args: tuple[str, ...], code: int, said: str, new_home: Home, parent: dict[str, Any], capsys: Any,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = new_home.here(capsys, "push", parent["execution_id"], *args)
    assert (result.code, said in result.stderr) == (code, True), result


# --- What is wrong is found before it is sent


def test_a_file_of_events_that_was_changed_is_not_sent(new_home: Home, parent: dict[str, Any], there: Home) -> None:
    file = Path(parent["buffer"]) / "events.feather"
    table = feather.read_table(file).to_pydict()
    table["status"][3] = "FORGED"
    feather.write_feather(pa.Table.from_pydict(table, schema=EVENT_SCHEMA), str(file))
    with serving(there) as server:
        refused = new_home.run("push", parent["execution_id"], "--to", server.url)
        assert refused.code == 4
        assert f"event {table['event_id'][3]}: column 'status' is not what its envelope says" in refused.stderr
        assert there.json("list")["executions"] == []
        shutil.rmtree(new_home.path / "local")
        assert new_home.json("push", parent["execution_id"], "--to", server.url)["status"] == "completed"


def test_a_payload_that_is_missing_or_changed_is_not_sent(new_home: Home, parent: dict[str, Any]) -> None:
    file = max((Path(parent["buffer"]) / "payloads").iterdir(), key=lambda one: one.stat().st_size)
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"!")
    changed = new_home.run("push", parent["execution_id"], "--dry-run")
    assert (changed.code, f"payloads/{file.name} was changed" in changed.stderr) == (4, True)
    file.unlink()
    missing = new_home.run("push", parent["execution_id"], "--dry-run")
    assert (missing.code, f"payload {file.name} is missing, which event" in missing.stderr) == (4, True)


def test_two_histories_of_one_execution(scene: Scene, there: Home, tmp_path: Path) -> None:
    with at_the_gate(scene, "run", chain(scene), "--set", "stop=b") as process:
        process.kill()
        process.communicate(timeout=END)
    (execution,) = scene.roots()
    scene.open_gate()
    twin = scene.home.copy(tmp_path / "twin")
    scene.home.json("resume", execution)
    twin.json("resume", execution)
    with serving(there) as server:
        assert scene.home.json("push", execution, "--to", server.url)["status"] == "completed"
        refused = twin.run("push", execution, "--to", server.url)
        assert refused.code == 4
        assert "is not the one this ledger has at version" in refused.stderr
    assert there.json("verify", execution)["parity"] is True


# --- Killed in the middle


def test_a_server_killed_while_it_receives_has_nothing_and_takes_it_afterwards(
    new_home: Home, there: Home, parent: dict[str, Any]
) -> None:
    parcel = pack(buffers(new_home))
    data = b"".join(parcel.chunks())
    with serving(there) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as sender:
            head = f"POST /api/events/batch HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/x-tar\r\n"
            sender.sendall(f"{head}Content-Length: {parcel.length}\r\n\r\n".encode() + data[: len(data) // 2])
            while not list((there.path / "incoming").glob("*")):
                assert server.process is not None
                assert server.process.poll() is None
                os.sched_yield()
            server.kill()
        server.start()
        assert there.json("list")["executions"] == []
        assert new_home.json("push", parent["execution_id"], "--to", server.url)["status"] == "completed"
        assert list((there.path / "incoming").iterdir()) == []
    assert there.run("verify", "--all").code == 0


def test_a_server_killed_at_any_moment_has_all_or_nothing(
    large: LargeLog, large_home: Home, there: Home, tmp_path: Path
) -> None:
    here = large_home.copy(tmp_path / "here")
    env = {"NOETL_TENANT__ID": "acme", "NOETL_TENANT__ORGANIZATION": "retail"}
    push = ("push", large.execution, "--unfinished")
    here.json(*push, "--dry-run")
    with serving(there, env=env) as server:
        for moment in ("receiving", "batch.accepted", "batch.processing"):
            with running(here, *push, "--to", server.url) as process:
                while not _has_come_to(there, moment):
                    assert process.poll() is None
                server.kill()
                assert process.wait(timeout=END) == 3
            with there.sql() as log:
                counted = log.execute("SELECT count(*) FROM event WHERE execution_id IS NOT NULL").fetchone()[0]
            assert counted in (0, large.events)
            server.start()
        assert here.json(*push, "--to", server.url)["events"] == large.events
        assert here.json(*push, "--to", server.url)["status"] == "already there"
    assert there.json("replay", large.execution)["checksum"] == here.json("replay", large.execution)["checksum"]
    states = [event["event_type"] for event in there.json("events", "tenant/acme", env=env)["events"]]
    assert states == ["batch.accepted", "batch.processing", "batch.completed"]


def _has_come_to(home: Home, moment: str) -> bool:
    if moment == "receiving":
        return bool(list((home.path / "incoming").glob("*")))
    with contextlib.closing(sqlite3.connect(home.ledger)) as log:
        return bool(log.execute("SELECT 1 FROM event WHERE event_type = ?", (moment,)).fetchone())


def test_a_server_needs_little_memory_for_a_long_history(
    large: LargeLog, large_home: Home, there: Home, tmp_path: Path
) -> None:
    here = large_home.copy(tmp_path / "here")
    env = {"NOETL_TENANT__ID": "acme", "NOETL_TENANT__ORGANIZATION": "retail"}
    (tmp_path / "book.yaml").write_text(json.dumps(book("one", {"step": "a", "tool": {"kind": "noop"}})))
    small = here.json("run", tmp_path / "book.yaml", env=env)["execution_id"]
    with serving(there, env=env) as server:
        here.json("push", small, "--to", server.url)
        before = _peak(server.process)  # with everything loaded that a push needs
        assert here.json("push", large.execution, "--unfinished", "--to", server.url)["status"] == "completed"
        grown = _peak(server.process) - before
    assert grown < 120_000, f"{grown} kB for {large.events} events"


def _peak(process: subprocess.Popen[bytes] | None) -> int:
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
