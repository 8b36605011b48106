"""The supervisor, over processes of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.deploy.local import record, supervisor
from noetl.deploy.local.control import Standing, bring_down, one_at_a_time, standing
from noetl.deploy.local.locks import holder, take
from noetl.deploy.local.parts import Part
from noetl.deploy.local.place import Place
from noetl.deploy.local.ports import free_ports
from noetl.deploy.local.record import Plan, Stack, make_stack, save_stack
from noetl.deploy.local.stopping import living, stop
from noetl.deploy.local.supervisor import Supervisor, supervising
from noetl.errors import InvalidInput, Unavailable
from noetl.settings import Settings

ANSWERS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def part(name: str, code: str = ANSWERS) -> Part:
    port = free_ports(1)[0]
    return Part(
        name=name, command=[sys.executable, "-c", code, str(port)], environment={}, directory="/",
        health=f"http://127.0.0.1:{port}/health", after_server=name.startswith("worker"),
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(record, "_SYSTEM_DATA", tmp_path / "data")
    place = Place(tmp_path / "home")
    place.create()
    save_stack(place, make_stack(place, Plan(), port=None, directory=tmp_path))
    yield place
    stop(place, Settings(), now=True)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    """What a stack consists of; a test may change it."""
    parts = {name: part(name) for name in ("nats", "server", "worker-0")}

    def prepared(stack: Stack, settings: Settings) -> Stack:
        return stack

    def without(*names: str) -> list[Part]:
        return [one for name, one in parts.items() if name not in names]

    monkeypatch.setattr(supervisor, "storage_parts", lambda place, stack: [parts["nats"]])
    monkeypatch.setattr(supervisor, "noetl_parts", lambda stack, settings: without("nats"))
    monkeypatch.setattr(supervisor, "prepare", prepared)
    return parts


@contextmanager
def supervised(place: Place, told: list[tuple[str, str]] | None = None) -> Iterator[Supervisor]:
    """A supervisor that has brought everything up, in a thread of its own."""
    heard = told if told is not None else []
    one = Supervisor(place, Settings(), lambda name, what: heard.append((name, what)))
    up = threading.Event()

    def run() -> None:
        with supervising(place):
            one.run(up.set)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(30)
        yield one
    finally:
        one.stop()
        thread.join()


def seen(place: Place) -> Standing:
    found = standing(place)
    assert found is not None
    return found


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def restarts(place: Place) -> dict[str, int]:
    return {one.name: one.restarts for one in seen(place).report.parts}


def kill(place: Place, name: str) -> int:
    pid = holder(place.lock_of(name))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_all_are_started_in_order_and_stopped_in_order(place: Place, parts: dict[str, Part]) -> None:
    told: list[tuple[str, str]] = []
    with supervised(place, told):
        assert seen(place).is_well
        assert list(living(place)) == ["worker-0", "server", "nats"]
    assert [name for name, what in told if what == "well"] == ["nats", "server", "worker-0"]
    assert [name for name, what in told if what == "stopped"] == ["worker-0", "server", "nats"]
    assert living(place) == {}
    assert seen(place).report.phase == "down"


def test_who_dies_is_started_again_and_counted(place: Place, parts: dict[str, Part]) -> None:
    with supervised(place):
        before = kill(place, "worker-0")
        wait_until(lambda: restarts(place)["worker-0"] == 1 and seen(place).is_well)
        assert holder(place.lock_of("worker-0")) not in (before, None)
        assert restarts(place)["server"] == 0


def test_who_dies_again_and_again_waits_longer(place: Place, parts: dict[str, Part]) -> None:
    told: list[tuple[str, str]] = []
    with supervised(place, told):
        for count in (1, 2, 3):
            kill(place, "worker-0")
            wait_until(lambda count=count: restarts(place)["worker-0"] == count and seen(place).is_well)  # type: ignore[misc]
    pauses = [what.rpartition(" in ")[2] for name, what in told if "starting it again" in what]
    assert pauses == ["0.25 s", "0.5 s", "1 s"]


def test_who_does_not_start_is_named_and_nobody_is_left(place: Place, parts: dict[str, Part]) -> None:
    parts["server"] = part("server", "import sys; sys.stderr.write('error: no luck\\n  fix: try it\\n'); sys.exit(3)")
    with pytest.raises(Unavailable, match="server did not start: no luck") as failed, supervising(place):
        Supervisor(place, Settings()).run()
    assert failed.value.hint == "try it"
    assert living(place) == {}
    assert seen(place).report.phase == "failed"


def test_who_was_called_in_a_wrong_way_is_not_tried_again(place: Place, parts: dict[str, Part]) -> None:
    parts["server"] = part("server", "import sys; sys.exit(2)")
    told: list[tuple[str, str]] = []
    with pytest.raises(Unavailable, match="it ended with code 2"), supervising(place):
        Supervisor(place, Settings(), lambda name, what: told.append((name, what))).run()
    assert sum(name == "server" and what.startswith("started") for name, what in told) == 1


def test_somebody_else_at_its_address_is_not_taken_for_it(
    place: Place, parts: dict[str, Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_START_SECONDS", 1.0)
    note = tmp_path / "server.json"
    note.write_text(f'{{"pid": {os.getpid()}}}')
    parts["server"] = msgspec.structs.replace(parts["server"], announces=str(note))
    with pytest.raises(Unavailable, match="server did not start: somebody else answers"), supervising(place):
        Supervisor(place, Settings()).run()


def test_who_runs_already_is_taken_over(place: Place, parts: dict[str, Part]) -> None:
    """As after a supervisor that was killed."""
    left = launched(place, parts["server"])
    place.lock_of("server").with_suffix(".digest").write_text(parts["server"].digest)
    with supervised(place):
        assert seen(place).is_well
        assert seen(place).pids["server"] == left.pid
        left.kill()
        left.wait()
        wait_until(lambda: restarts(place)["server"] == 1 and seen(place).is_well)


def test_who_runs_in_another_way_is_replaced(place: Place, parts: dict[str, Part]) -> None:
    left = launched(place, parts["server"])
    place.lock_of("server").with_suffix(".digest").write_text("of something else")
    with supervised(place):
        assert seen(place).is_well
        assert seen(place).pids["server"] != left.pid
    assert left.wait() == -signal.SIGTERM


def test_there_is_one_supervisor(place: Place) -> None:
    with supervising(place), pytest.raises(InvalidInput, match="has a supervisor already"), supervising(place):
        pass


def test_one_command_at_a_time(place: Place) -> None:
    with one_at_a_time(place), pytest.raises(Unavailable, match="another noetl up or down"), one_at_a_time(place):
        pass


def test_a_full_disk_stops_nobody(place: Place, parts: dict[str, Part], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Unavailable("cannot write: No space left on device")

    told: list[tuple[str, str]] = []
    with supervised(place, told):
        with monkeypatch.context() as patched:
            patched.setattr(supervisor, "write_private", full)
            kill(place, "worker-0")
            wait_until(lambda: ("worker-0", "cannot write: No space left on device") in told)
            assert {"server", "nats"} <= living(place).keys()
            patched.setattr(supervisor, "_LONGEST_PAUSE", 0.1)
        assert {"server", "nats"} <= living(place).keys()


def test_what_is_left_without_a_supervisor_is_brought_down(place: Place, parts: dict[str, Part]) -> None:
    with supervised(place):
        pass
    processes = [launched(place, one) for one in parts.values()]
    stopped, killed = bring_down(place, Settings(), now=False)
    assert (stopped, killed) == (["worker-0", "server", "nats"], [])
    assert [process.wait() for process in processes] == [-signal.SIGTERM] * 3


def test_who_does_not_go_is_made_to_go(place: Place) -> None:
    deaf = part(
        "worker-0", "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process = launched(place, deaf)
    wait_until(lambda: "deaf" in place.log_of("worker-0").read_text())
    assert bring_down(place, Settings(), now=True) == (["worker-0"], ["worker-0"])
    assert process.wait() == -signal.SIGKILL


def launched(place: Place, one: Part) -> subprocess.Popen[bytes]:
    """Started by somebody who is gone."""
    handle = take(place.lock_of(one.name))
    assert handle is not None
    process = supervisor._started(one, handle, place.log_of(one.name))
    os.close(handle)
    return process
