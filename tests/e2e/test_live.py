"""A run as it looks: on a terminal, on a poor one, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cli import Home
from tests.e2e.scenes import END, Scene, book, chain, task

_COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-7]")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A call whose standard error is a terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.bytes = b""

    @property
    def text(self) -> str:
        return _CONTROL.sub("", self.bytes.decode(errors="replace"))

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.text):
            assert self._read(), self.text

    def read_to_the_end(self) -> int:
        while self._read():
            pass
        return self.process.wait(END)

    def _read(self) -> bool:
        assert select.select([self._screen], [], [], END)[0], self.text
        try:
            chunk = os.read(self._screen, 1 << 16)
        except OSError:  # how Linux says that nobody holds the other end any more
            chunk = b""
        self.bytes += chunk
        return bool(chunk)


@contextmanager
def on_a_terminal(
    home: Home, *args: str | Path, env: Mapping[str, str] | None = None, rows: int = 30, columns: int = 100
) -> Iterator[Terminal]:
    screen, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = home.start(*args, env={"TERM": "xterm-256color", **(env or {})}, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        os.close(screen)


def test_a_running_step_is_seen_and_then_its_end(scene: Scene) -> None:
    with on_a_terminal(scene.home, "run", chain(scene), "--set", "stop=b") as terminal:
        terminal.read_until(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] b  python")
        scene.gate.open("w").close()
        assert terminal.read_to_the_end() == 0
    ended = terminal.text.rpartition("✓ chain")[2]
    assert "4 done" in ended
    assert re.search(r"✓ a .*✓ b .*✓ c .*✓ d .*COMPLETED", ended, re.DOTALL)
    assert _COLOUR.search(terminal.bytes)


def test_a_call_is_seen_below_its_caller(scene: Scene) -> None:
    child = book("child", {"step": "x", "tool": task("x", scene)})
    call = {"kind": "playbook", "path": "child", "input": {"stop": "{{ stop }}"}}
    file = scene.write(child, book("parent", {"step": "call", "tool": call}))
    with on_a_terminal(scene.home, "run", file, "--set", "stop=x") as terminal:
        terminal.read_until(r"call  playbook .*\s+└ child\s+[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] x  python")
        scene.gate.open("w").close()
        assert terminal.read_to_the_end() == 0


def test_a_loop_has_a_bar(scene: Scene) -> None:
    loop = {"in": "{{ ['l0', 'l1', 'l2'] }}", "iterator": "n"}
    given = {**task("", scene)["input"], "name": "{{ n }}"}
    file = scene.write(book("loop", {"step": "each", "loop": loop, "tool": {**task("", scene), "input": given}}))
    with on_a_terminal(scene.home, "run", file, "--set", "stop=l2") as terminal:
        terminal.read_until(r"each  python  ━+  2/3")
        scene.gate.open("w").close()
        assert terminal.read_to_the_end() == 0
    assert re.search(r"✓ each .* 3 iterations", terminal.text)


def test_an_interrupt_is_answered_above_the_picture(scene: Scene) -> None:
    with on_a_terminal(scene.home, "run", chain(scene), "--set", "stop=b") as terminal:
        terminal.read_until(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] b  python")
        terminal.process.send_signal(2)
        terminal.read_until("cancelling; what is running may finish")
        scene.gate.open("w").close()
        assert terminal.read_to_the_end() == 1
    assert "■ chain" in terminal.text
    assert "CANCELLED" in terminal.text


@pytest.mark.parametrize("columns", [40, 200])
def test_no_line_is_wider_than_the_terminal(scene: Scene, columns: int) -> None:
    name = "a step whose name is long, " * 4
    file = scene.write(book("p", {"step": name, "tool": task("a", scene)}))
    with on_a_terminal(scene.home, "run", file, "--set", "stop=a", columns=columns) as terminal:
        terminal.read_until(r"a step")
        scene.gate.open("w").close()
        assert terminal.read_to_the_end() == 0
    drawn = [line for line in terminal.text.replace("\r", "\n").split("\n") if "a step" in line and "NTL-" not in line]
    assert drawn
    assert all(len(line) <= columns for line in drawn)


def test_without_colours(scene: Scene) -> None:
    with on_a_terminal(scene.home, "run", chain(scene), env={"NO_COLOR": "1"}) as terminal:
        assert terminal.read_to_the_end() == 0
    assert not _COLOUR.search(terminal.bytes)
    assert "✓ a" in terminal.text


def test_a_poor_terminal_gets_lines(scene: Scene) -> None:
    with on_a_terminal(scene.home, "run", chain(scene), env={"TERM": "dumb", "NO_COLOR": "1"}) as terminal:
        assert terminal.read_to_the_end() == 0
    assert b"\x1b" not in terminal.bytes
    assert re.search(r"  ✓ a  \d+ ms\r?\n  ✓ b  \d+ ms\r?\n", terminal.text)


def test_a_pipe_gets_a_line_for_each_step_and_no_control_codes(scene: Scene) -> None:
    shown = scene.home.run("run", chain(scene))
    assert "\x1b" not in shown.stderr + shown.stdout
    assert re.fullmatch(r"(  ✓ [abcd]  \d+ ms\n){4}COMPLETED  \d+  \d+ ms, \d+ events\n", shown.stderr)


def test_scripts_get_nothing_but_the_document(scene: Scene) -> None:
    with on_a_terminal(scene.home, "run", chain(scene), "--json") as terminal:
        assert terminal.read_to_the_end() == 0
    assert terminal.bytes == b""


@pytest.mark.parametrize("more", [(), ("-v",)])
def test_a_run_does_not_stop_because_nobody_reads_what_it_says(scene: Scene, more: tuple[str, ...]) -> None:
    process = scene.home.start("run", chain(scene), *more)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    stdout, _ = process.communicate(timeout=END)
    assert (process.returncode, b'"name": "d"' in stdout) == (0, True)
    assert sorted(scene.effects) == ["a", "b", "c", "d"]
    (execution,) = scene.roots()
    assert scene.home.json("status", execution)["status"] == "COMPLETED"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_verbose_prints_every_event(scene: Scene, more: tuple[str, ...]) -> None:
    shown = scene.home.run("run", chain(scene), "-v", *more)
    (execution,) = scene.roots()
    events = scene.home.json("events", execution, "--limit", "1000")["events"]
    own = [event["event_type"] for event in events if event["stream_id"].count("/") == 1]
    lines = [line.split()[1] for line in shown.stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d\.\d{3}  ", line)]
    assert lines == own
    assert "\x1b" not in shown.stderr


def test_attempts_are_told_at_the_end(new_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "unsteady.yaml"
    file.write_text("""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: unsteady, path: unsteady}
workflow:
  - step: call
    tool:
      kind: python
      input: {attempt: "{{ _attempt }}"}
      code: |
        if attempt < 3: raise ConnectionError("not ready")
      spec: {policy: {rules: [{when: "{{ output.error.retryable }}", then: {do: retry, attempts: 4, delay: 0.01}}]}}
""", encoding="utf-8")  # fmt: skip
    assert re.search(r"✓ call  \d+ ms  3 attempts\n", new_home.run("run", file).stderr)
