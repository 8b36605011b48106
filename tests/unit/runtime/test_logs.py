"""What tasks print, in files: written by some, read by others, and never in the way of a run."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.runtime import logs
from noetl.runtime.logs import ExecutionLogs, kept_logs, log_file, read_logs
from noetl.runtime.notices import Notice
from tests.scribe import START

NOW = "2026-03-02T08:00:00.000000Z"


def printed(text: str, *, execution_id: int = 7, step: str = "load", **more: Any) -> Notice:
    given = {"task": f"{step}_task", "what": "log", "command_id": 70, **more}
    return Notice(execution_id=execution_id, step=step, text=text, **given)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def writer(tmp_path: Path, complaints: list[str]) -> ExecutionLogs:
    return ExecutionLogs(tmp_path, VirtualClock(START), complaints.append)


async def test_each_line_says_where_it_is_from(tmp_path: Path, writer: ExecutionLogs) -> None:
    writer.hear(printed("one\ntwo", attempt=2, index=3, stream="stderr"))
    writer.hear(printed("", truncated=True))
    writer.hear(printed("ignored", what="attempt"))
    writer.close()
    assert log_file(tmp_path, "default", 7).read_text().splitlines()[0] == (
        f'{{"time":"{NOW}","execution_id":"7","step":"load","task":"load_task","attempt":2,"stream":"stderr",'
        '"text":"one","index":3}'
    )
    page = await read_logs(tmp_path, "default", 7)
    assert [(line.text, line.attempt, line.index, line.truncated) for line in page.lines] == [
        ("one", 2, 3, False), ("two", 2, 3, False), ("", 1, None, True),
    ]  # fmt: skip
    assert (page.more, page.damaged, page.after) == (False, 0, log_file(tmp_path, "default", 7).stat().st_size)


async def test_executions_of_two_tenants_may_have_one_id(tmp_path: Path, writer: ExecutionLogs) -> None:
    for tenant_id in ("default", "acme", "../default", "globex"):
        writer.hear(printed(f"said to {tenant_id}", tenant_id=tenant_id))
    writer.close()
    for tenant_id in ("default", "acme", "../default", "globex"):
        assert [line.text for line in (await read_logs(tmp_path, tenant_id, 7)).lines] == [f"said to {tenant_id}"]
        assert log_file(tmp_path, tenant_id, 7).resolve().is_relative_to(tmp_path / "logs" / "executions")


async def test_only_its_owner_may_read_it(tmp_path: Path, writer: ExecutionLogs) -> None:
    writer.hear(printed("x"))
    writer.close()
    assert log_file(tmp_path, "default", 7).stat().st_mode & 0o077 == 0
    assert log_file(tmp_path, "default", 7).parent.stat().st_mode & 0o077 == 0


async def test_pages_follow_each_other(tmp_path: Path, writer: ExecutionLogs) -> None:
    for number in range(10):
        writer.hear(printed(str(number), step="even" if number % 2 == 0 else "odd"))
    first = await read_logs(tmp_path, "default", 7, limit=4)
    assert ([line.text for line in first.lines], first.more) == (list("0123"), True)
    second = await read_logs(tmp_path, "default", 7, after=first.after, limit=6)
    assert ([line.text for line in second.lines], second.more) == (list("456789"), False)
    assert [line.text for line in (await read_logs(tmp_path, "default", 7, "odd")).lines] == list("13579")
    assert [line.text for line in (await read_logs(tmp_path, "default", 7, task="even_task")).lines] == list("02468")
    writer.hear(printed("more"))
    writer.close()
    assert [line.text for line in (await read_logs(tmp_path, "default", 7, after=second.after)).lines] == ["more"]


async def test_one_call_reads_a_bounded_part(
    tmp_path: Path, writer: ExecutionLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MOST_SCANNED", 500)
    for number in range(20):
        writer.hear(printed(str(number)))
    writer.hear(printed("x", step="rare"))
    writer.close()
    after, found, calls, more = 0, [], 0, True
    while more:
        page = await read_logs(tmp_path, "default", 7, "rare", after)
        after, more, calls = page.after, page.more, calls + 1
        found += page.lines
    assert (len(found), calls > 3) == (1, True)


async def test_nothing_was_printed(tmp_path: Path) -> None:
    page = await read_logs(tmp_path, "default", 7)
    assert (page.lines, page.after, page.more) == ([], 0, False)


async def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path, writer: ExecutionLogs) -> None:
    writer.hear(printed("one"))
    writer.close()
    with log_file(tmp_path, "default", 7).open("ab") as file:
        file.write(b'{"time":')
    page = await read_logs(tmp_path, "default", 7)
    assert ([line.text for line in page.lines], page.damaged) == (["one"], 0)


async def test_what_a_killed_process_left_does_not_spoil_the_next_line(
    tmp_path: Path, writer: ExecutionLogs, complaints: list[str]
) -> None:
    log_file(tmp_path, "default", 7).parent.mkdir(parents=True)
    log_file(tmp_path, "default", 7).write_bytes(b'{"time":"2026-03-02T08:0')
    writer.hear(printed("one"))
    writer.close()
    page = await read_logs(tmp_path, "default", 7)
    assert ([line.text for line in page.lines], page.damaged, complaints) == (["one"], 1, [])


async def test_a_full_disk_is_said_once_and_costs_lines_only(
    tmp_path: Path, writer: ExecutionLogs, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.hear(printed("before"))
    write = os.write
    room = 20

    def full(handle: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(handle, data[:room])
        room -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        writer.hear(printed("lost"))
        writer.hear(printed("lost too"))
    writer.hear(printed("after"))
    writer.close()
    page = await read_logs(tmp_path, "default", 7)
    assert ([line.text for line in page.lines], page.damaged) == (["before", "after"], 1)
    assert len(complaints) == 1
    assert "No space left on device; the run goes on" in complaints[0]


async def test_few_files_are_open_at_a_time(tmp_path: Path, complaints: list[str]) -> None:
    before = open_files()
    async with kept_logs(tmp_path, VirtualClock(START), complaints.append) as keep:
        for _ in range(2):
            for number in range(100):
                keep(printed("x", execution_id=number))
        assert open_files() <= before + 33
    assert open_files() <= before
    for number in range(100):
        assert len((await read_logs(tmp_path, "default", number)).lines) == 2
