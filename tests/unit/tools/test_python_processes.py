"""The processes that run python code: limits, crashes, concurrency, what they print, what they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.tools.base import Outcome
from noetl.tools.python.tool import PythonTool
from tests.unit.tools.processes import is_gone, until
from tests.unit.tools.python_calls import call, error_of, result_of, running


@pytest.fixture
async def tool() -> AsyncIterator[PythonTool]:
    async with running(workers=2) as made:
        yield made


def code_of(outcome: Outcome) -> str:
    assert outcome.error is not None, outcome
    code: str = outcome.error["code"]
    return code


# --- Ordinary life ----------------------------------------------------------------------------------------


async def test_many_calls_in_a_row_use_a_warm_process(tool: PythonTool) -> None:
    pids = {await result_of(tool, "result = os.getpid()") for _ in range(200)}
    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_calls_run_at_the_same_time(tool: PythonTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "there")
    os.mkfifo(tmp_path / "back")
    first = "with open('there', 'w') as f: f.write('ping')\nwith open('back') as f: return f.read()"
    second = "with open('there') as f: heard = f.read()\nwith open('back', 'w') as f: f.write('pong')\nreturn heard"
    outcomes = await asyncio.gather(
        tool.run(call(first, directory=tmp_path)), tool.run(call(second, directory=tmp_path))
    )
    assert [outcome.result for outcome in outcomes] == ["pong", "ping"]


async def test_calls_beyond_the_number_of_processes_wait_for_one(tool: PythonTool) -> None:
    pids = await asyncio.gather(*(result_of(tool, "result = os.getpid()") for _ in range(50)))
    assert 1 <= len(set(pids)) <= 2


async def test_a_prepared_process_runs_the_first_call(tool: PythonTool, tmp_path: Path) -> None:
    await tool.prepare(tmp_path)
    outcome = await tool.run(call("result = os.getcwd()", directory=tmp_path))
    assert outcome.result == str(tmp_path)


async def test_large_values_pass_in_both_directions(tool: PythonTool) -> None:
    rows = [{"id": i, "text": "x" * 80} for i in range(100_000)]
    assert await result_of(tool, "result = rows", rows=rows) == rows


async def test_memory_does_not_grow_with_the_number_of_calls(tool: PythonTool) -> None:
    code = "rows = [{'id': i, 'text': 'x' * 50} for i in range(1000)]\nreturn [len(rows), rows]"
    resident = "with open('/proc/self/statm') as f: return int(f.read().split()[1]) * 4096"
    for _ in range(50):
        await result_of(tool, code)
    before = await result_of(tool, resident)
    for _ in range(1000):
        await result_of(tool, code)
    assert await result_of(tool, resident) - before < 8 << 20


async def test_modules_of_the_project_can_be_imported(tool: PythonTool, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pricing.py").write_text(f"WHO = '{name}'")
    code = "import pricing\nresult = pricing.WHO"
    found = [(await tool.run(call(code, directory=tmp_path / name))).result for name in ("one", "two", "one")]
    assert found == ["one", "two", "one"]


# --- Surroundings -----------------------------------------------------------------------------------------


async def test_the_environment_is_small(tool: PythonTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SECRET", "hunter2")
    names = await result_of(tool, "result = sorted(os.environ)")
    assert set(names) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}


async def test_a_credential_is_in_the_environment_during_the_call_only() -> None:
    async with running(workers=1) as tool:
        auth = {"db_password": "hunter2", "port": 5432, "mail": {"token": "t0ken"}, "none": None}
        code = "return [os.environ.get(name) for name in ('DB_PASSWORD', 'PORT', 'MAIL_TOKEN')]"
        assert (await tool.run(call(code, auth=auth))).result == ["hunter2", "5432", "t0ken"]
        assert await result_of(tool, code) == [None, None, None]
        listed = await result_of(
            tool, "import subprocess\nreturn subprocess.run('env', capture_output=True, text=True).stdout"
        )
        assert "hunter2" not in listed


async def test_a_credential_is_gone_also_when_the_code_failed() -> None:
    async with running(workers=1) as tool:
        await tool.run(call("1 / 0", auth={"token": "t0ken"}))
        assert await result_of(tool, "result = os.environ.get('TOKEN')") is None


async def test_there_is_nothing_to_read_and_a_session_of_its_own(tool: PythonTool) -> None:
    code = "import sys\nresult = [sys.stdin.read(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()]"
    assert await result_of(tool, code) == ["", True, True]


# --- Output -----------------------------------------------------------------------------------------------


async def test_what_is_printed_goes_to_the_log_of_its_call(tool: PythonTool) -> None:
    code = "import sys\nprint('out ä')\nprint('err', file=sys.stderr)\nos.system('echo child')\nsys.stdout.write('end')"
    assert (await tool.run(call(code))).logs == "out ä\nerr\nchild\nend"
    assert (await tool.run(call("result = 1"))).logs == ""


async def test_the_log_is_bounded_and_the_rest_counted(tool: PythonTool) -> None:
    outcome = await tool.run(call("print('x' * 999)\nfor _ in range(9_999): print('y' * 999)\nresult = 1"))
    assert outcome.result == 1
    assert len(outcome.logs) < 257 * 1024
    assert outcome.logs.startswith("xxx")
    assert outcome.logs.endswith(f"... and {10_000_000 - 256 * 1024} bytes more")


async def test_code_that_closes_its_output_costs_its_process(tool: PythonTool) -> None:
    for code in ("import sys\nsys.stdout.close()\nresult = 1", "os.close(1)\nprint('x')"):
        await tool.run(call(code))
        assert (await tool.run(call("print('hello')"))).logs == "hello\n"


# --- Limits -----------------------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_ended_with_all_it_started(tool: PythonTool, tmp_path: Path) -> None:
    code = """
import subprocess
child = subprocess.Popen(['sleep', '1000'])
print('started')
with open('pids', 'w') as f: f.write(f'{os.getpid()} {child.pid}')
while True: pass
"""
    await tool.run(call("import subprocess", directory=tmp_path))
    outcome = await tool.run(call(code, timeout=2.0, directory=tmp_path))
    assert outcome.error is not None
    assert (outcome.error["kind"], outcome.error["code"], outcome.error["retryable"]) == ("timeout", "TIMEOUT", True)
    assert outcome.logs == "started\n"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await until(lambda: all(is_gone(pid) for pid in pids))
    assert await result_of(tool, "result = 1") == 1


async def test_code_that_eats_too_much_memory_is_told(tmp_path: Path) -> None:
    async with running(workers=1, memory_limit=512 << 20) as tool:
        before = await result_of(tool, "result = os.getpid()")
        error, _ = await error_of(tool, "x = []\nwhile True: x.append(bytearray(10 << 20))")
        assert (error["kind"], error["code"], error["line"]) == ("transform", "PY_MemoryError", 2)
        assert await result_of(tool, "result = os.getpid()") != before


async def test_a_cancelled_call_ends_its_process(tool: PythonTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    code = "with open('started', 'w') as f: f.write(str(os.getpid()))\nwhile True: pass"
    task = asyncio.create_task(tool.run(call(code, timeout=None, directory=tmp_path)))
    pid = int(await asyncio.to_thread((tmp_path / "started").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: is_gone(pid))
    assert await result_of(tool, "result = 1") == 1


async def test_a_call_cancelled_while_it_waits_disturbs_nobody(tmp_path: Path) -> None:
    async with running(workers=1) as tool:
        os.mkfifo(tmp_path / "go")
        first = asyncio.create_task(tool.run(call("with open('go') as f: return f.read()", directory=tmp_path)))
        await asyncio.sleep(0)
        second = asyncio.create_task(tool.run(call("result = 2")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.to_thread((tmp_path / "go").write_text, "went")
        assert (await first).result == "went"
        assert await result_of(tool, "result = 3") == 3


# --- Crashes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(3)", "exited with code 3"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL (out of memory, perhaps)"),
        ("import signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("print('x')\nos.closerange(3, 100)", ""),
    ],
)
async def test_a_process_that_breaks_is_an_error_and_is_replaced(tool: PythonTool, code: str, said: str) -> None:
    error, _ = await error_of(tool, code)
    assert (error["kind"], error["code"]) == ("transform", "PY_WorkerDied")
    assert said in error["message"]
    assert await result_of(tool, "result = 1") == 1


async def test_a_process_that_died_between_calls_is_replaced() -> None:
    async with running(workers=1) as tool:
        pid = await result_of(tool, "result = os.getpid()")
        os.kill(pid, signal.SIGKILL)
        await until(lambda: is_gone(pid))
        assert await result_of(tool, "result = os.getpid()") != pid


async def test_a_fork_of_user_code_does_not_answer_in_its_place(tool: PythonTool) -> None:
    code = "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nreturn pid > 0"
    assert await result_of(tool, code) is True
    assert await result_of(tool, "result = 2") == 2


async def test_closing_ends_every_process_also_a_busy_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    async with running(workers=2) as tool:
        idle = await result_of(tool, "result = os.getpid()")
        code = "with open('started', 'w') as f: f.write(str(os.getpid()))\nwhile True: pass"
        task = asyncio.create_task(tool.run(call(code, timeout=None, directory=tmp_path)))
        busy = int(await asyncio.to_thread((tmp_path / "started").read_text))
        await tool.close()
        assert code_of(await task) == "PY_WorkerDied"
        assert is_gone(idle)
        assert is_gone(busy)
        assert code_of(await tool.run(call("result = 1"))) == "PY_WorkerDied"


PARENT = """
import asyncio, os, sys
from pathlib import Path
from noetl.tools.base import Call
from noetl.tools.python.tool import PythonTool

async def main():
    tool = PythonTool(workers=2)
    idle = (await tool.run(Call(kind="python", fields={"code": "result = os.getpid()"}))).result
    Path("idle").write_text(str(idle))
    code = '''
import subprocess
child = subprocess.Popen(['sleep', '1000'])
with open('started', 'w') as f: f.write(f'{os.getpid()} {child.pid}')
while True: pass
'''
    await tool.run(Call(kind="python", fields={"code": code}, directory=Path.cwd()))

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a busy process that its parent died")
async def test_processes_end_with_their_parent_even_in_the_middle_of_a_call(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, cwd=tmp_path)
    try:
        started = await asyncio.to_thread((tmp_path / "started").read_text)
        pids = [int(pid) for pid in [*started.split(), (tmp_path / "idle").read_text()]]
    finally:
        parent.kill()
        await parent.wait()
    await until(lambda: all(is_gone(pid) for pid in pids))


async def test_an_answer_that_lets_wait_after_quick_ones_holds_nobody_up(tool: PythonTool) -> None:
    for _ in range(3):
        assert await result_of(tool, "result = 1") == 1
    slow = asyncio.create_task(result_of(tool, "import time\ntime.sleep(0.5)\nresult = 2"))
    turns = 0
    while not slow.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert (await slow, turns > 10) == (2, True)
    assert await result_of(tool, "result = 3") == 3
