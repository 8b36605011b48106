"""What a task prints is the task's, and nobody else's."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from noetl.data.printed import Printed, capture
from noetl.tools.processes import printing

say = print  # as the code of tasks does


async def test_only_what_the_thread_of_the_task_prints_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    printed, usual = Printed(), sys.stdout

    def work() -> None:
        with capture(printed):
            say("ours")
            say("also ours", file=sys.stderr)
            other = threading.Thread(target=say, args=("theirs",))
            other.start()
            other.join()
            sys.stdout.flush()

    await asyncio.to_thread(work)
    assert printed.text() == "ours\nalso ours\n"
    assert capsys.readouterr().out == "theirs\n"
    assert sys.stdout is usual


async def test_whoever_listens_hears_it_in_the_loop() -> None:
    heard: list[tuple[int, str, bytes]] = []
    token = printing.set(lambda stream, chunk: heard.append((threading.get_ident(), stream, chunk)))
    try:
        printed = Printed()
    finally:
        printing.reset(token)

    def work() -> None:
        with capture(printed):
            sys.stdout.writelines(["a\n", "b\n"])

    await asyncio.to_thread(work)
    assert heard == [(threading.get_ident(), "output", b"a\n"), (threading.get_ident(), "output", b"b\n")]


async def test_a_task_inside_of_which_another_runs_gets_its_own_back() -> None:
    outer, inner = Printed(), Printed()
    with capture(outer):
        with capture(inner):
            say("inner")
        say("outer")
    assert (inner.text(), outer.text()) == ("inner\n", "outer\n")
