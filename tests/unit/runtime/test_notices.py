"""What workers say while they work: attempts, waits, and what was printed, without secrets and not without end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.kernel.event import Json
from noetl.runtime import notices
from noetl.runtime.notices import Notice, Printed, all_of
from noetl.runtime.worker import Worker
from noetl.tools.base import Call, Outcome, failed
from noetl.tools.processes import BoundedOutput
from noetl.tools.registry import Registry
from noetl.tools.secrets.redaction import Redactor
from tests.scribe import START
from tests.unit.runtime.test_worker import NOW, work
from tests.unit.runtime.workshop import FunctionTool, book, step

ABOUT = Notice(execution_id=7, command_id=70, step="load", task="load_task", what="attempt", attempt=2, index=3)


class Ear(list[Notice]):
    """Hears, and remembers."""

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(notice.stream, notice.text) for notice in self if notice.what == "log" and not notice.truncated]


@pytest.fixture
def ear() -> Ear:
    return Ear()


class TestPrinted:
    def test_whole_lines_are_passed_on_as_they_come_and_the_rest_at_the_end(self, ear: Ear) -> None:
        printed = Printed(ABOUT, ear.append, None)
        printed.add("stdout", b"one\ntw")
        assert ear.texts == [("stdout", "one")]
        printed.add("stdout", b"o\nthree\nfo")
        printed.add("stderr", b"oh")
        printed.end()
        assert ear.texts == [("stdout", "one"), ("stdout", "two\nthree"), ("stdout", "fo"), ("stderr", "oh")]
        assert {(notice.step, notice.attempt, notice.index) for notice in ear} == {("load", 2, 3)}

    def test_a_character_may_come_in_two_pieces(self, ear: Ear) -> None:
        printed = Printed(ABOUT, ear.append, None)
        for byte in "grün\n".encode():
            printed.add("output", bytes([byte]))
        printed.add("output", b"\xff\xc3")
        printed.end()
        assert ear.texts == [("output", "grün"), ("output", "��")]

    def test_secrets_are_masked_also_when_they_come_in_two_pieces(self, ear: Ear) -> None:
        redactor = Redactor()
        redactor.add("pg.password", "correct-horse-battery")
        printed = Printed(ABOUT, ear.append, redactor)
        printed.add("output", b"using correct-hor")
        assert not ear, "half a secret would not be recognised"
        printed.add("output", b"se-battery now\n")
        assert ear.texts == [("output", "using *** now")]

    @pytest.mark.parametrize("chunk", [b"x" * 99 + b"\n", b"\n" * 1000])
    def test_more_than_is_kept_is_said_once(self, ear: Ear, monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
        monkeypatch.setattr(notices, "MOST_TEXT", 250)
        monkeypatch.setattr(notices, "MOST_LINES", 2)
        printed = Printed(ABOUT, ear.append, None)
        for _ in range(5):
            printed.add("output", chunk)
        printed.end()
        assert [notice.truncated for notice in ear].count(True) == 1
        assert ear[-1].truncated
        assert sum(len(text) for _, text in ear.texts) <= 250

    def test_what_comes_after_the_end_belongs_to_nobody(self, ear: Ear) -> None:
        printed = Printed(ABOUT, ear.append, None)
        printed.end()
        printed.add("output", b"late\n")
        assert not ear

    def test_text_that_a_tool_hands_over_counts_if_nothing_was_heard(self, ear: Ear) -> None:
        silent, heard = Printed(ABOUT, ear.append, None), Printed(ABOUT, ear.append, None)
        heard.add("output", b"hello\n")
        for printed in (silent, heard):
            printed.add_unheard("hello\n")
            printed.end()
        assert ear.texts == [("output", "hello")] * 2


class Speaking(FunctionTool):
    """A tool whose function gives the outcome itself."""

    async def run(self, call: Call) -> Outcome:
        said: Outcome = self._body(call)
        return said


class TestWorker:
    async def run(self, ear: Ear, document: Json, body: Any, directory: Path) -> None:
        clock = VirtualClock(START)
        registry = Registry({"python": Speaking("python", body)})

        async def no_calls(*_: Any) -> Outcome:
            return failed("unknown", "NO", "no")

        worker = Worker(registry, clock, no_calls, directory, directory, notice=ear.append)
        running = asyncio.create_task(worker.run(work(document), lambda: NOW))
        while not running.done():
            await asyncio.sleep(0)
            clock.advance(1)
        running.result()

    async def test_attempts_and_waits_are_told(self, ear: Ear, tmp_path: Path) -> None:
        retry = {"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 2}}
        document = book(step("a", tool={"kind": "python", "code": "-", "spec": {"policy": {"rules": [retry]}}}))

        def body(call: Call) -> Outcome:
            return failed("connection", "NO", "not ready") if call.attempt < 3 else Outcome(result=1, logs="done\n")

        await self.run(ear, document, body, tmp_path)
        assert [(n.what, n.attempt, n.attempts, n.seconds, n.text) for n in ear] == [
            ("attempt", 1, 3, 0.0, ""), ("waiting", 1, 3, 2.0, ""),
            ("attempt", 2, 3, 0.0, ""), ("waiting", 2, 3, 2.0, ""),
            ("attempt", 3, 3, 0.0, ""), ("log", 3, 3, 0.0, "done"),
        ]  # fmt: skip

    async def test_what_a_process_prints_is_heard_at_once(self, ear: Ear, tmp_path: Path) -> None:
        def body(_: Call) -> Outcome:
            output = BoundedOutput(10, "stderr")
            output.add(b"careful\n")
            heard_meanwhile.extend(ear.texts)
            return Outcome(result=1, logs=output.text())

        heard_meanwhile: list[tuple[str, str]] = []
        await self.run(ear, book(step("a")), body, tmp_path)
        assert heard_meanwhile == ear.texts == [("stderr", "careful")]


def test_several_can_listen(ear: Ear) -> None:
    other = Ear()
    all_of(ear.append, other.append)(ABOUT)
    assert ear == other == [ABOUT]
