"""Sessions of other processes: killed, restarted, kept warm, on a Connect server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.data.session.warm import Warm
from tests.services.emulator import wait_for
from tests.services.spark_cluster import connect_server
from tests.spark.processes import PROLOGUE, process, run, told

pytestmark = pytest.mark.timeout(300)  # several JVMs each, on a machine that may be busy


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path(f"/proc/{pid}").exists() else True


class TestOwn:
    def test_a_killed_jvm_is_started_again_a_killed_process_leaves_none_and_a_good_one_leaves_nothing(
        self, tmp_path: Path
    ) -> None:
        code = """
        async def main():
            sessions = SparkSessions(HOME)
            session = await sessions.get(conf())
            first = sessions.info().jvm_pid
            os.kill(first, signal.SIGKILL)
            session = await sessions.get(conf())
            count = await run_job(session, "again", lambda: session.range(10).mapInArrow(same, "id long").count())
            say(first=first, jvm=sessions.info().jvm_pid, count=count)
            sys.stdin.read()
        asyncio.run(main())
        """
        with process(tmp_path, code) as started:
            said = told(started)
            assert said["count"] == 10
            assert said["jvm"] != said["first"]
            assert is_alive(said["jvm"])
            started.send_signal(signal.SIGKILL)
            started.wait()
            wait_for(lambda: not is_alive(said["jvm"]), "the JVM outlives its process")
        assert list((tmp_path / "spark").glob("scratch-*"))

        here = tmp_path / "here"
        here.mkdir()
        code = """
        sessions = SparkSessions.shared(HOME)
        session = asyncio.run(sessions.get(conf()))
        assert SparkSessions.shared(HOME) is sessions
        session.sql("CREATE TABLE t USING parquet AS SELECT 1 AS x")
        say(rows=session.table("t").count(), jvm=sessions.info().jvm_pid)
        """  # closed at the end of the process
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROLOGUE + textwrap.dedent(code), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=here,
        )
        assert (done.stderr, done.returncode) == ("", 0)
        said = json.loads(done.stdout)
        assert said["rows"] == 1
        assert not is_alive(said["jvm"])
        assert list(here.iterdir()) == []
        assert not list((tmp_path / "spark").glob("scratch-*"))
        assert (tmp_path / "logs" / "spark.log").stat().st_mode & 0o077 == 0

    def test_one_that_is_killed_in_the_middle_of_its_start_leaves_nothing_in_the_way_of_the_next(
        self, tmp_path: Path
    ) -> None:
        code = """
        from noetl.data.session import classic
        settle, killed = classic._settle, []

        def kill_the_first(context):
            if not killed:
                killed.append(context._jvm.java.lang.ProcessHandle.current().pid())
                os.kill(killed[0], signal.SIGKILL)
            settle(context)

        classic._settle = kill_the_first
        async def main():
            sessions = SparkSessions(HOME)
            session = await sessions.get(conf())
            say(first=killed[0], jvm=sessions.info().jvm_pid, rows=session.range(3).count(), kind=sessions.info().kind)
        asyncio.run(main())
        """
        said = run(tmp_path, code)
        assert (said["rows"], said["kind"]) == (3, "own")
        assert said["jvm"] != said["first"]


@pytest.fixture
def warm_home(tmp_path: Path) -> Iterator[Path]:
    """A home whose warm session does not outlive the test, however that ends."""
    yield tmp_path
    _noetl(tmp_path, "stop", "--now")


class TestWarm:
    def test_runs_attach_and_what_a_killed_one_left_running_is_cancelled(self, warm_home: Path) -> None:
        assert _noetl(warm_home, "status")[0] == 3
        code, started, _ = _noetl(warm_home, "start", "--master", "local[2]")
        assert code == 0
        assert "secret" not in started
        assert _noetl(warm_home, "start", "--master", "local[2]")[1]["pid"] == started["pid"]
        refused = _noetl(warm_home, "start", "--master", "local[1]")
        assert refused[0] == 2
        assert "warm session with other settings" in refused[2]

        user = """
        async def main():
            sessions = SparkSessions(HOME)
            asked = SessionConf(master="local[2]", conf={"spark.sql.shuffle.partitions": "3"})
            session = await sessions.get(asked)
            count = await run_job(session, "count", lambda: session.range(10).mapInArrow(same, "id long").count())
            say(kind=sessions.info().kind, jvm=sessions.info().jvm_pid, count=count)
            def sleep(batches):
                import time
                time.sleep(3600)
                yield from batches
            await run_job(session, "sleep", lambda: session.range(10).mapInArrow(sleep, "id long").count())
        asyncio.run(main())
        """
        with process(warm_home, user) as first:
            assert told(first) == {"kind": "warm", "jvm": started["jvm_pid"], "count": 10}
            assert _noetl(warm_home, "status")[1]["users"] == 1
            busy = _noetl(warm_home, "stop")
            assert busy[0] != 0
            assert "1 running process uses the warm session" in busy[2]
            wait_for(lambda: _active(warm_home) > 0, "the job has not begun")
            first.kill()
            wait_for(lambda: _active(warm_home) == 0, "the job of a dead process goes on")

        other = """
        from noetl.data.session.opened import _attach
        from contextlib import ExitStack
        asked = [conf(), conf("local[1]"), SessionConf(master="local[2]")]
        say(attached=[_attach(one, HOME, ExitStack()) is not None for one in asked])
        """
        assert run(warm_home, other) == {"attached": [False, False, True]}  # another memory, another master
        assert Warm(warm_home).users() == []

        code, stopped, _ = _noetl(warm_home, "stop")
        assert (code, stopped["pid"]) == (0, started["pid"])
        assert not is_alive(started["jvm_pid"])
        assert _noetl(warm_home, "stop")[1] == {"stopped": False, "pid": None}

    def test_one_whose_home_is_deleted_ends(self, warm_home: Path) -> None:
        _, started, _ = _noetl(warm_home, "start", "--master", "local[1]")
        shutil.rmtree(warm_home / "spark")

        wait_for(lambda: not is_alive(started["pid"]) and not is_alive(started["jvm_pid"]), "it goes on for nobody")

    def test_one_whose_keeper_was_killed_is_forgotten(self, warm_home: Path) -> None:
        _, started, _ = _noetl(warm_home, "start", "--master", "local[1]")
        os.kill(started["pid"], signal.SIGKILL)
        wait_for(lambda: not is_alive(started["jvm_pid"]), "the JVM outlives its keeper")

        assert _noetl(warm_home, "status")[0] == 3
        assert not (warm_home / "spark" / "session.json").exists()


class TestElsewhere:
    def test_a_connect_server_runs_sql_and_python_and_is_not_classic(self, tmp_path: Path) -> None:
        code = """
        async def main():
            sessions = SparkSessions(HOME)
            asked = SessionConf(remote=REMOTE, conf={"spark.sql.shuffle.partitions": "3"})
            session, other = await sessions.get(asked, modules=[HOME / "modules"]), await sessions.get(asked)
            session.range(5).createOrReplaceTempView("mine")
            rows = session.sql("SELECT count(*) AS n FROM mine").collect()[0].n
            mapped = await run_job(session, "map", lambda: session.range(7).mapInArrow(same, "id long").count())
            try:
                other.sql("SELECT * FROM mine").collect()
            except Exception as error:
                refused = explain(error).message
            def broken(batches):
                raise ValueError("a bad row")
                yield
            try:
                session.range(3).mapInArrow(broken, "id long").collect()
            except Exception as error:
                failed = explain(error).message
            def answer(batches):
                import pyarrow, users_module
                yield pyarrow.record_batch({"id": [users_module.ANSWER]})
            answers = [row.id for row in session.range(1).repartition(1).mapInArrow(answer, "id long").collect()]
            began = HOME / "began"
            def sleep(batches):
                import time
                began.touch()
                time.sleep(3600)
                yield from batches
            mapped_slowly = session.range(3).mapInArrow(sleep, "id long")
            slow = asyncio.create_task(run_job(session, "slow", mapped_slowly.count))
            while not began.exists():
                await asyncio.sleep(0.01)
            slow.cancel()
            cancelled = isinstance((await asyncio.gather(slow, return_exceptions=True))[0], asyncio.CancelledError)
            for thread in threading.enumerate():
                if thread.name == "spark-slow":
                    thread.join(30)
            info = sessions.info()
            say(kind=info.kind, classic=info.is_classic, rows=rows, mapped=mapped, refused=refused, failed=failed,
                cancelled=cancelled, answers=answers)
            await sessions.release(session)
            sessions.close()
        asyncio.run(main())
        """
        (tmp_path / "home" / "modules").mkdir(parents=True)
        (tmp_path / "home" / "modules" / "users_module.py").write_text("ANSWER = 42\n")
        with connect_server(tmp_path) as address:
            said = run(tmp_path / "home", f"REMOTE = {address!r}\n" + textwrap.dedent(code))

        assert (said["kind"], said["classic"], said["rows"], said["mapped"]) == ("connect", False, 5, 7)
        assert (said["cancelled"], said["answers"]) == (True, [42])
        assert "`mine` cannot be found" in said["refused"]
        assert said["failed"].endswith("ValueError: a bad row")
        assert "org.apache.spark" not in said["failed"]


def _noetl(home: Path, *arguments: str) -> tuple[int, Any, str]:
    command = [sys.executable, "-m", "noetl", "spark", *arguments, "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def _active(home: Path) -> int:
    """How many jobs run in the warm session, as its own pages tell."""
    import urllib.request

    record = Warm(home).find()
    assert record is not None
    with urllib.request.urlopen(f"{record.ui}/api/v1/applications", timeout=10) as answer:
        (application,) = json.load(answer)
    jobs = f"{record.ui}/api/v1/applications/{application['id']}/jobs?status=running"
    with urllib.request.urlopen(jobs, timeout=10) as answer:
        return len(json.load(answer))
